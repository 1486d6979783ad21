"""Runs judges over items: event loop, streaming, a shared pass for several judges, preflight, usage by judge.

Uses the judge contract and `programs.lm`; writes no file.
"""
