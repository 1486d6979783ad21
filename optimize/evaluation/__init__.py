"""Measures the compiled judge on held-out: scores, their comparison, what is exported, and the learning curve.

Uses the plan of a compile, the search and agreement; chooses nothing and writes nothing.
"""
