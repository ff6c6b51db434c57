"""The benchmark: the same work in onstage, JAX and PyTorch, side by side. `python -m onstage.models.bench --help`."""
