"""`evaluate(judges, items)`: one table of judgements, judge x item, from judges that run here and from files of scores.

Uses the runner, exports and estimates; computes no agreement and renders nothing.
"""
