"""agreement: see the modules."""
