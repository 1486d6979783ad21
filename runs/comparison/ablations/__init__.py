"""The DEBATE paper's ablations: rounds, personas, styles, score distributions, stability over repeats.

Uses the results of a comparison and the runner.
"""
