"""The small corpus that ships with the project: invented texts whose ratings follow a written table of defects.

Uses the schema alone; `build.py` writes the files anew.
"""
