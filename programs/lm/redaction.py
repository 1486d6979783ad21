"""Removes secrets from what is logged or recorded: settings, tags, addresses, error messages.

Texts under evaluation and replies are not redacted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

REMOVED = "[removed]"

_SECRETS = {"password", "passwords", "passwd", "pwd", "secret", "secrets", "credential", "credentials", "authorization"}
_SECRETS_UNLESS_NUMBER = {"key", "keys", "apikey", "token", "tokens", "auth", "bearer"}
"""A number under such a name, e.g. `max_tokens`, is no secret."""

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_USERINFO = re.compile(r"([A-Za-z][\w+.-]*://)[^/\s?#]*@")
_QUERY = re.compile(r"([?&;][^=&\s]*(?:key|token|secret|password|signature)[^=&\s]*=)[^&\s]+", re.IGNORECASE)
_KEY = re.compile(r"(?i:\bbearer\s+[\w.~+/=-]{8,})|\b(?:sk-|gsk_|hf_|xai-|AIza)[\w-]{12,}")


def redact(value: object, name: str = "") -> object:
    """Return `value` without secrets, its structure kept.

    Args:
        value: A setting: text, number, or mappings and sequences of them.
        name: The setting's name; a name such as `api_key` makes its text a secret.
    """
    if isinstance(value, Mapping):
        return {k: redact(v, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [redact(v, name) for v in value]
    if value is not None and _words(name) & _SECRETS:
        return REMOVED
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return REMOVED if _words(name) & _SECRETS_UNLESS_NUMBER else redact_text(str(value))


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", _CAMEL_CASE.sub("_", name).lower()))


def redact_text(text: str, key: str | None = None) -> str:
    """Return `text` without user:password@ in addresses, keys in queries, and values of secret variables.

    Args:
        text: E.g. an error message, in which providers quote the key.
        key: A further value to remove, of any length.
    """
    if key:
        text = text.replace(key, REMOVED)
    text = _USERINFO.sub(r"\1", text)
    text = _QUERY.sub(rf"\1{REMOVED}", text)
    text = _KEY.sub(REMOVED, text)
    for variable, value in os.environ.items():
        is_secret = bool(_words(variable) & (_SECRETS | _SECRETS_UNLESS_NUMBER)) and variable != "PWD"
        # Short values would blank ordinary words, and the shell's PWD is a folder. A key that was pasted with a line
        # break is quoted without it.
        for part in {value.strip(), *_passwords(value)} if is_secret else _passwords(value):
            if len(part) >= 8 and part in text:
                text = text.replace(part, REMOVED)
    return text


def _passwords(value: str) -> set[str]:
    """The password of an address, as it is written there and decoded."""
    if "@" not in value or "://" not in value:
        return set()
    try:
        password = urlsplit(value.strip()).password or ""
    except ValueError:
        return set()
    return {password, unquote(password)} - {""}
