"""After a compile: how good systems are, whether a judge holds on new ratings, whether a new LM can carry it, and what
people should rate next.

Uses exports, the runner, the readers of `evaluation` and the statistics of `data`; each command is also a function.
"""
