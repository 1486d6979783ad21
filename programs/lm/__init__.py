"""lm: see the modules."""
