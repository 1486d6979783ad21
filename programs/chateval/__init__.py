"""ChatEval (Chan et al. 2023): referees with roles, three ways of communicating, votes and averages.

Uses the roles and the judge contract; knows no other judge.
"""
