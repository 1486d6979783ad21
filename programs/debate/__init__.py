"""debate: see the modules."""
