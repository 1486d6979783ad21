"""tracking: see the modules."""
