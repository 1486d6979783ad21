"""One LM turn: the signature that roles share, the prompt layout, parsing of replies, score modes.

Uses `programs.lm` and the judge contract; knows no particular judge.
"""
