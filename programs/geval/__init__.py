"""G-Eval (Liu et al. 2023): evaluation steps derived once, then a form with a score.

Uses the roles and the judge contract; knows no other judge.
"""
