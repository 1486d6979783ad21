"""The Optuna study over persona, rounds, Tie-breaker and granularity, and the dev scores that it reads.

Uses the runner and agreement; knows no tracking.
"""
