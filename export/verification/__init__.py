"""The parts of verification: inputs to try, error estimates, models with their values exposed, and the report."""
