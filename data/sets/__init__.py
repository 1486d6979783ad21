"""Public rated sets, one file each: its location, the layout of its records, and their conversion to groups.

Uses `files` for reading; `datasets` is imported only to download a set.
"""
