"""Running judges: scoring, comparing, exporting, tracking, and three of the commands.

Uses `data` and `programs`; knows no optimizer.
"""
