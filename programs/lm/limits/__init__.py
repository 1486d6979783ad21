"""Decides when a call is sent: concurrency, rate limits, budget, waits before retries, outages, prefix warm-up.

Uses `programs.lm` for options and errors; knows neither HTTP nor judges.
"""
