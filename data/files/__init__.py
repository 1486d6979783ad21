"""files: see the modules."""
