"""limits: see the modules."""
