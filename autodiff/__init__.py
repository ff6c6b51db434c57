"""Program transforms that differentiate, one algorithm a file."""
