"""geval: see the modules."""
