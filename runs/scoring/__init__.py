"""`score`: reads new texts and writes rows of scores; a run that was stopped continues.

Uses exports and the runner. `TextScorer` is what one process and the actors of Ray have in common.
"""
