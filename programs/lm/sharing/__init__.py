"""What processes share: replies that others write meanwhile, and claims, so that a call is made by one of them.

Uses `programs.lm.reply` and `segments`; knows neither limits nor judges.
"""
