"""roles: see the modules."""
