"""`score`: new texts in, rows of scores out, resumable.

Uses the runner; knows the export only through the loaded judge.
"""
