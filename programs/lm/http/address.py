"""Addresses of LM servers: defaults by provider, normalization, and removal of credentials."""

from __future__ import annotations

import os
import re
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from debate_judge.data.errors import InputError

CALLED_DIRECTLY = {
    "openai": "https://api.openai.com/v1",
    "hosted_vllm": "http://localhost:8000/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
"""Provider prefix -> default address, of the providers that are called without LiteLLM."""

_LITELLM_LOCAL = {
    "ollama": ("OLLAMA", "http://localhost:11434"),
    "ollama_chat": ("OLLAMA", "http://localhost:11434"),
    "llamafile": ("LLAMAFILE", "http://127.0.0.1:8080/v1"),
}
"""Provider prefix -> prefix of its variables and default address, of LiteLLM's providers on this machine."""


def key_variable(spec: str) -> str:
    """The environment variable that holds the key for PROVIDER/MODEL."""
    return f"{spec.partition('/')[0].upper()}_API_KEY"


def base_variable(spec: str) -> str:
    """The environment variable that holds the server's address for PROVIDER/MODEL, or that may hold it: LiteLLM's name,
    else that of the provider's own client."""
    provider = spec.partition("/")[0]
    prefix = _LITELLM_LOCAL.get(provider, (provider.upper(), ""))[0]
    names = (f"{prefix}_API_BASE", f"{prefix}_BASE_URL")
    return next((name for name in names if os.environ.get(name)), names[0])


def default_address(spec: str) -> str | None:
    """The default address for PROVIDER/MODEL; None if only LiteLLM knows it."""
    provider = spec.partition("/")[0]
    return CALLED_DIRECTLY.get(provider) or _LITELLM_LOCAL.get(provider, ("", None))[1]


def destination(spec: str, address: str) -> str:
    """A message that says where the calls of PROVIDER/MODEL go.

    Args:
        spec: The LM.
        address: Of its server; empty for the provider's default.
    """
    provider = spec.partition("/")[0]
    server = address or default_address(spec)
    where = f"the provider {provider!r}" if server is None else without_credentials(server)
    variable = key_variable(spec)
    return f"texts go to {where}" + (f", with the key in {variable}" if os.environ.get(variable) else "")


def normalize_address(url: str | None, field: str = "--api-base") -> str | None:
    """The address of a server, validated and without a trailing slash.

    Args:
        url: As the user wrote it; None or empty is no address.
        field: The flag or variable that it comes from.

    Raises:
        InputError: It is not the address of a server.
    """
    if not url:
        return None
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InputError(
            "not the address of a server",
            field=field,
            expected="http://HOST[:PORT]/PATH or https://..., e.g. http://localhost:8000/v1",
            found=without_credentials(url),
        )
    return url if parts.query else url.rstrip("/")


def without_credentials(url: str) -> str:
    """An address without user, password, query and fragment, any of which may contain a key."""
    url = re.sub(r"[?#].*", "", url, flags=re.DOTALL)
    # Only the first ://, because a gateway's path may contain another address.
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: localhost or a loopback address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class NoServerError(InputError):
    """No server is running at an address on this machine."""


def require_listening(url: str, field: str = "--api-base") -> None:
    """Refuse an address on this machine where no server is running, without loading a library.

    Raises:
        NoServerError: The connection is refused.
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
        # Inconclusive, e.g. a slow server; the first call will show.
        return
