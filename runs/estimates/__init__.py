"""estimates: see the modules."""
