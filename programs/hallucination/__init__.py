"""hallucination: see the modules."""
