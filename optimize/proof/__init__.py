"""Measures the compiled judge: held-out scores, their comparison, figures of folds, and which judge is exported.

Uses the plan of a compile, the search and agreement; writes nothing.
"""
