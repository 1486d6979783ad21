"""MLflow: one run per compile with its trials, the registered model, the embedded store.

Uses exports and redaction; the only room that knows MLflow.
"""
