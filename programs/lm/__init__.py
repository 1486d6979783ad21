"""How LM calls are made: engine, limits, transport, settings, replies and their store.

Uses DSPy and `data`; knows no judge and no prompt.
"""
