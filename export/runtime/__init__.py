"""Running models on ONNX Runtime: providers, sessions, and the arrays that go in and come out."""
