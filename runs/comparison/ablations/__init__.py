"""ablations: see the modules."""
