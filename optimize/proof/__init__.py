"""How good what a compile makes is: the loop over folds, and what is exported in view of the figures.

Uses selection, held-out scoring and the ledger of looks; writes nothing.
"""
