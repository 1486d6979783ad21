"""Settings of the commands: how one is declared, the groups that commands share, and the flags that follow from them.

Uses the options of `programs` and pydantic; reads no data.
"""
