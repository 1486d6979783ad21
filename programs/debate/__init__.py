"""DEBATE (Kim et al. 2024): Scorer, Critic with a persona, Tie-breaker, and the Commander, which is the program.

Uses the roles and the judge contract; knows no other judge.
"""
