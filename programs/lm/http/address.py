"""Addresses of servers: which providers have a usual one, one way to write them, and none with a key in it."""

from __future__ import annotations

import os
import re
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from debate_judge.data.errors import InputError

COMPATIBLE = {"openai": "https://api.openai.com/v1", "hosted_vllm": "http://localhost:8000/v1"}
"""Provider prefixes that speak OpenAI's chat protocol, with their usual address."""

_OF_LITELLM = {
    "ollama": ("OLLAMA", "http://localhost:11434"),
    "ollama_chat": ("OLLAMA", "http://localhost:11434"),
    "llamafile": ("LLAMAFILE", "http://127.0.0.1:8080/v1"),
}
"""Provider prefixes that LiteLLM looks for on this machine: how their variables begin, and their usual address."""


def key_variable(spec: str) -> str:
    """The environment variable that holds the key for PROVIDER/MODEL."""
    return f"{spec.partition('/')[0].upper()}_API_KEY"


def base_variable(spec: str) -> str:
    """The environment variable that may hold the server's address for PROVIDER/MODEL."""
    provider = spec.partition("/")[0]
    return f"{_OF_LITELLM.get(provider, (provider.upper(), ''))[0]}_API_BASE"


def default_address(spec: str) -> str | None:
    """Where the server of PROVIDER/MODEL is unless the user says otherwise; None where only LiteLLM knows."""
    provider = spec.partition("/")[0]
    return COMPATIBLE.get(provider) or _OF_LITELLM.get(provider, ("", None))[1]


def destination(spec: str, address: str) -> str:
    """What the user is told about where the calls of PROVIDER/MODEL go.

    Args:
        spec: The LM.
        address: Of its server; empty where it is the provider's usual one.
    """
    provider = spec.partition("/")[0]
    place = address or default_address(spec)
    where = f"the provider {provider!r}" if place is None else without_credentials(place)
    variable = key_variable(spec)
    return f"texts go to {where}" + (f", with the key in {variable}" if os.environ.get(variable) else "")


def address_of(url: str | None, field: str = "--api-base") -> str | None:
    """The address of a server, in one form whether or not it was written with a slash at its end.

    Args:
        url: As the user wrote it; None or empty is no address.
        field: The flag or variable that it stands in.

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
            field=field,
            expected="http://HOST[:PORT]/PATH or https://..., e.g. http://localhost:8000/v1",
            found=without_credentials(url),
        )
    return url if parts.query else url.rstrip("/")


def without_credentials(url: str) -> str:
    """An address without user, password, query and fragment, any of which may hold a key."""
    url = re.sub(r"[?#].*", "", url, flags=re.DOTALL)
    # Only the first: a gateway's path may hold another address.
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its usual name or its address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class NoServerError(InputError):
    """The address is that of a server on this machine, and none is running there."""


def require_listening(url: str, field: str = "--api-base") -> None:
    """Refuse the address of a server on this machine that is not running, without loading a library.

    Raises:
        NoServerError: The port is refused.
    """
    parts = urlsplit(url)
    if not is_loopback(parts.hostname or ""):
        return
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), timeout=2).close()
    except ConnectionError as error:
        raise NoServerError(
            "the LM failed: no server listens there",
            field=field,
            found=without_credentials(url),
            remedy="start the server, or correct the address",
        ) from error
    except OSError:
        # It may be slow, or behind something that this test does not know; the first call will tell.
        return
