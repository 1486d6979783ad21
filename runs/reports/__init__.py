"""Renders finished numbers: text tables, decisions, costs, figures.

Imports matplotlib and rich when they are used; computes nothing.
"""
