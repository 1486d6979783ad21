"""`score --engine ray`: scores data sets of any size with Ray Data, in parts, by actors that share one account.

Uses scoring and the loaded judge; Ray itself is imported by functions, and only where it was asked for.
"""
