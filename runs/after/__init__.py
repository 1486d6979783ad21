"""After a compile: how good systems are, whether a judge holds on new ratings, and whether a new LM can carry it.

Uses exports, the runner, the readers of `evaluation` and the statistics of `data`; each command is also a function.
"""
