"""Statistics of absolute agreement, and for use after a compile: prediction-powered means, drift, non-inferiority of a
new LM, conformal intervals, and sampling of sources to rate next.

Uses numpy, scipy, `data.agreement` and the schema; knows no file format, no judge and no LM.
"""
