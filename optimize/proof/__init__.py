"""Measures the compiled judge: held-out scores, the loop over folds, and which judge is exported.

Uses selection, held-out scoring and the ledger of looks; writes nothing.
"""
