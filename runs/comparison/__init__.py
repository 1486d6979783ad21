"""The one comparison of judges on one corpus, for `compare` and the compile; tables and report of `compare`.

Uses reports and tracking; knows no optimizer.
"""
