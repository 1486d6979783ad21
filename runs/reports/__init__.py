"""reports: see the modules."""
