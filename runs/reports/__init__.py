"""Renders finished numbers: text tables, decisions, costs, figures.

Uses matplotlib on use; computes nothing.
"""
