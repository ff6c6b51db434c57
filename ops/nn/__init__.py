"""Neural-network functions: activations, softmax, normalisation, losses, embeddings."""
