"""batch: see the modules."""
