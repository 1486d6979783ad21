"""The Markov-chain debate about hallucinations (Sun et al. 2024): claims, evidence, verification; and its baselines.

Uses the roles and the judge contract; apart from the LM it may call a web search.
"""
