"""`evaluate(runner, entrants, corpus, aspects)`: one table of judgements, judge x item, from judges and score files.

Uses the runner, exports and estimates; computes no agreement and renders nothing.
"""
