"""comparison: see the modules."""
