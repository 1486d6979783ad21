"""The compile: tuning, the search on dev, held-out evidence, publishing. Everything is wired together here.

May use all other folders; nothing imports it.
"""
