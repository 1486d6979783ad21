"""`compare`: several judges on the same held-out sources in one table, with figures and published rows.

Uses the runner, exports, reports and estimates; knows no optimizer.
"""
