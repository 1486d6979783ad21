"""An account that several processes share: a ledger lends budget, requests and tokens to the limiter of each.

Uses the limits of a single process; how a report reaches the ledger is the caller's business.
"""
