"""Addresses of servers: which providers have a usual one, one way to write them, and none with a key in it."""

from __future__ import annotations

from urllib.parse import urlsplit

from debate_judge.data.errors import InputError

COMPATIBLE = {"openai": "https://api.openai.com/v1", "hosted_vllm": "http://localhost:8000/v1"}
"""Provider prefixes that speak OpenAI's chat protocol, with their usual address."""


def address_of(url: str | None) -> str | None:
    """The address of a server, in one form whether or not it was written with a slash at its end.

    Raises:
        InputError: It is none.
    """
    if not url:
        return None
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise InputError(
            "not the address of a server",
            field="--api-base",
            expected="http://HOST[:PORT]/PATH or https://..., e.g. http://localhost:8000/v1",
            found=without_credentials(url),
        )
    return url if parts.query else url.rstrip("/")


def without_credentials(url: str) -> str:
    """An address without user, password and query, which may hold keys."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path.partition("?")[0]
