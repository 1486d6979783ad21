"""What the store of replies needs of databases: its tables, PostgreSQL, folders of older versions.

Uses `programs.lm.reply`; knows neither limits nor judges.
"""
