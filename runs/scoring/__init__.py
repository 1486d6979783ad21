"""`score`: reads new texts and writes rows of scores; a run that was stopped continues.

Uses the runner; knows the export only through the loaded judge.
"""
