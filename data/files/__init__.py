"""Users' own files: JSONL and CSV of rated texts and TOML task files, read with file, line and field of every error.

Uses the schema and its errors; knows no public set by name.
"""
