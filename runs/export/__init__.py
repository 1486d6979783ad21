"""Exported judges: saved as a folder of JSON files, read again, and connected to an LM to score texts.

Uses the runner, and MLflow only to download an export that is stored there.
"""
