"""The databases of the store of replies: its tables, PostgreSQL, folders of older versions.

Uses `programs.lm.reply`; knows neither limits nor judges.
"""
