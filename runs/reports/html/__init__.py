"""A run's report as one self-contained HTML page: its blocks, its charts, and its files.

Uses `export`, and MLflow to read logged reports; the content of a page is passed in by compile and comparison.
"""
