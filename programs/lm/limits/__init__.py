"""What decides when a call goes out: concurrency, rate limits, budget, waits, outages, prefix warm-up.

Knows neither HTTP nor judges.
"""
