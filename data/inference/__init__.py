"""Inference after a compile: systems from few ratings and many scores, two independent samples, intervals of scores,
and which sources to rate next.

Uses numpy, scipy, `data.agreement` and the schema; knows no file format, no judge and no LM.
"""
