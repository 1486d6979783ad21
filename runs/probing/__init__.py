"""`probe`: measures biases of a judge, as the effects of manipulating held-out candidates on their scores.

Uses the runner, exports, tracking, reports, estimates and the entrants of a comparison; knows no optimizer.
"""
