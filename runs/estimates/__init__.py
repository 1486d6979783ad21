"""Cost estimates: the code of the run itself on a dry-run LM, in three cases; calls, tokens, money.

Uses the runner and reports; writes nothing and calls no LM.
"""
