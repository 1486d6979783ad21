"""Renders results: tables of agreement, decisions and costs, and the HTML report with its charts.

Imports matplotlib and rich when they are used; computes no result.
"""
