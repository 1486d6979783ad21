"""The offline stand-in for an LM: text statistics that answer the prompts of this project, at no cost.

Uses nothing but the prompt it is given and the parsing of replies; it is no language model.
"""
