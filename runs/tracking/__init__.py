"""MLflow: one run per compile or comparison, the registered model, the embedded store.

Uses exports and the setup of MLflow; knows no optimizer and no judge.
"""
