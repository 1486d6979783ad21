"""chateval: see the modules."""
