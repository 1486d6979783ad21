"""Estimates before anything is spent: the real flow with an LM for dry runs, three cases, calls, tokens, money.

Uses the runner and reports; writes nothing and asks no LM.
"""
