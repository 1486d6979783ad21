"""Public rated sets, one file each: its location, the layout of its records, and their conversion to groups.

Uses `files` for reading; `datasets` is imported only to download a set. Each module has a function `load` with the path
of a local copy, or None to download the set; it raises `InputError` if the copy cannot be used or the download fails.
"""
