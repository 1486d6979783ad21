"""Renders finished numbers: text tables, decisions, costs, figures.

Uses matplotlib and rich on use; computes nothing.
"""
