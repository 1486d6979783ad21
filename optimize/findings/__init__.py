"""What a finished compile says about its judge: the verdict in words, and the sections of its report.

Uses the plan, the search and held-out; calls no LM.
"""
