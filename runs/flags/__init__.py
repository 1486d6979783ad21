"""Command-line flags that several commands share, each written once.

Uses the options of `programs`; reads no data.
"""
