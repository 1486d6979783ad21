"""metrics: see the modules."""
