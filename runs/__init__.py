"""Running judges: scoring, serving, comparing, exporting, tracking, and what comes after a compile.

Has all commands but `compile`. Uses `data` and `programs`, and no optimizer.
"""
