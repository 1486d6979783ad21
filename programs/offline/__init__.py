"""offline: see the modules."""
