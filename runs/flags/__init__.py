"""Settings of the commands: their declaration, groups that commands share, and the flags that follow from them.

Uses the options of `programs` and pydantic; reads no data.
"""
