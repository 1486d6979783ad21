"""`score`: reads new texts and writes rows of scores; a run that was stopped continues.

Uses exports and the runner.
"""
