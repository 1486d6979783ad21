"""scoring: see the modules."""
