"""What the store of replies needs of databases: its tables, PostgreSQL, folders of older versions.

Knows neither limits nor judges.
"""
