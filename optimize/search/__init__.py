"""The Optuna study over knowledge, persona, rounds, Tie-breaker and granularity, and the choice by pooling.

It reads scores of train and dev. Uses the runner, agreement and the results of tuners, but no tracking.
"""
