"""The results of a finished compile as text and tables: the verdict, the terminal summary, the report's sections.

Uses the plan, the search and held-out; calls no LM.
"""
