"""Control flow: primitives whose params hold Programs, and the functions that trace them."""
