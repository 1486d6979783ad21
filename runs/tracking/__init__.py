"""MLflow: one run per compile with its trials, the registered model, the embedded store, the runs of killed processes.

Uses exports and the setup of MLflow; knows no optimizer and no judge.
"""
