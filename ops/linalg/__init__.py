"""Linear algebra of the last two axes: systems, decompositions, norms. ONNX has no kernels for most: they are loops over its operators."""
