"""What stands between a call and the wire: rate limits, retries, circuit breaker, budget, prefix warm-up.

Uses `programs.lm` for options and errors; knows neither HTTP nor judges.
"""
