"""`probe`: what moves a judge's scores that should not, each manipulation of held-out candidates as an effect.

Uses the runner, exports, tracking, reports, estimates and the entrants of a comparison; knows no optimizer.
"""
