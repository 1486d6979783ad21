"""OpenAI's Batch API behind the same interface as direct calls: jobs made, followed, resumed and read.

Uses the client types of `programs.lm`; knows no judge.
"""
