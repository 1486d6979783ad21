"""DEBATE (Kim et al. 2024): Scorer, Critic with a persona, Tie-breaker, and the Commander that leads them.

Uses the roles and the judge contract; knows no other judge.
"""
