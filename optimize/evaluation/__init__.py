"""Measures the compiled judge on held-out: scores, their comparison, and what is exported.

Uses the plan of a compile, the search and agreement; chooses nothing and writes nothing.
"""
