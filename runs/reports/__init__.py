"""Renders results: tables of agreement, decisions and costs, and the HTML report with its charts.

Imports rich when it is used; computes no result.
"""
