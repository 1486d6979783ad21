"""How LM calls are made: client, engine, transports, options, usage, prices, and the store of replies.

Uses DSPy and `data.errors`; knows no judge and no prompt.
"""
