"""The primitives, one file a family, each declared once with all its rules, and the array functions made of them."""
