"""OpenAI's Batch API behind the same interface as direct calls: jobs are created, polled, resumed and read.

Uses the types of `programs.lm`; knows no judge.
"""
