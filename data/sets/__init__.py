"""Public rated sets; each module has a function `load` with the path of a local copy, or None to download the set.

It raises `InputError` if the copy cannot be used or the download fails. `datasets` is imported only to download a set.
"""
