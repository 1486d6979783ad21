"""search: see the modules."""
