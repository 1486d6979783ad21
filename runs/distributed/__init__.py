"""`score --engine ray`: actors score ranges of the input, each read, scored and written by one of them.

Uses scoring and the loaded judge; Ray itself is imported by functions, and only with this engine.
"""
