"""Users' own files: tables and JSON of rated texts, and TOML task files. Every error names file, line and field.

Uses the schema and its errors; knows no public set by name.
"""
