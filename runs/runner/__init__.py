"""runner: see the modules."""
