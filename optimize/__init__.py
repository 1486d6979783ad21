"""The compile: an estimate, tuning, the search on train and dev, evaluation on held-out, the report, publishing.

Everything is wired together here, the console script included. May use all other folders; only the package's public
`compile` leads back to it.
"""
