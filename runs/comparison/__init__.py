"""`compare`: several judges on the same held-out sources in one table, with its views.

Uses the evaluation, reports and tracking; knows no optimizer.
"""
