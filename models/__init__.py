"""Layers, optimisers and models, written with the public API only."""
