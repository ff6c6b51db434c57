"""Neural-network functions: activations, normalisation, losses, embeddings."""
