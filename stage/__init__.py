"""The intermediate representation and tracing; imports NumPy and nothing above it."""
