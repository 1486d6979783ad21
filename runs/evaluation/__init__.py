"""`evaluate(runner, entrants, corpus, aspects)`: one table of judgements, judge x item, of judges and files of scores.

Uses the runner, exports and estimates; computes no agreement and renders nothing.
"""
