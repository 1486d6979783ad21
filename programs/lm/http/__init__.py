"""Chat completions over HTTP/1.1: one attempt per call, connections kept, errors typed.

Uses h11, and aiohttp behind a proxy; retries and limits are `limits`.
"""
