"""sets: see the modules."""
