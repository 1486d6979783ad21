"""The small corpus that ships with the project: invented texts whose ratings follow a written table of defects.

Holds no code: `tests/sample/build.py` writes the files anew.
"""
