"""Public rated sets, one file each: where a set lives, what a record looks like, how it becomes groups.

Uses `files` for reading; `datasets` is imported only when a set is fetched from its home.
"""
