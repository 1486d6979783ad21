"""http: see the modules."""
