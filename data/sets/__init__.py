"""Public rated sets, one file each: its address, the layout of its records, and their conversion to groups.

Uses `files` for reading; `datasets` is imported only when a set is fetched from its home.
"""
