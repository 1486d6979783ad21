"""The transport of LM calls: client, engines, options, usage, prices, and the store of replies. Knows no judge."""
