"""The report of a comparison: what its page says, and where it is left, in files and in MLflow.

Uses the finished comparison and its ablations; calls no LM.
"""
