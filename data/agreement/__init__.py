"""Agreement of scores with human ratings: correlations, absolute agreement, decisions, intervals, and the result types.

Uses numpy, scipy and the schema; knows no file format, no judge and no LM.
"""
