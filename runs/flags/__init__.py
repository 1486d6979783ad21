"""flags: see the modules."""
