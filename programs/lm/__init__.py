"""The transport of LM calls: client, engines, options, usage, prices, and the store of replies.

Uses DSPy and `data.errors`; knows no judge and no prompt.
"""
