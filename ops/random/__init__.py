"""Random numbers as functions of explicit keys: keys, bits, distributions, samples."""
