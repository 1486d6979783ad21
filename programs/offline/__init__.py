"""The offline stand-in for an LM: answers this project's prompts from text statistics, at no cost.

Uses the prompts and the parsing of replies; it is not a language model.
"""
