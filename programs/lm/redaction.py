"""Takes secrets out of what is logged or recorded: settings, tags, addresses, error messages.

For what people configure and what providers complain about, not for texts under evaluation or replies: those are
recorded as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

REMOVED = "[removed]"

_SECRET = {"password", "passwords", "passwd", "pwd", "secret", "secrets", "credential", "credentials", "authorization"}
_SECRET_UNLESS_NUMBER = {"key", "keys", "apikey", "token", "tokens", "auth", "bearer"}
"""A limit on tokens is a number and no secret."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_USERINFO = re.compile(r"([A-Za-z][\w+.-]*://)[^/\s?#]*@")
_QUERY = re.compile(r"([?&;][^=&\s]*(?:key|token|secret|password|signature)[^=&\s]*=)[^&\s]+", re.IGNORECASE)
_LOOKS_LIKE_KEY = re.compile(r"(?i:\bbearer\s+[\w.~+/=-]{8,})|\b(?:sk-|gsk_|hf_|xai-|AIza)[\w-]{12,}")


def clean(value: object, name: str = "") -> object:
    """Return `value` without secrets, its structure kept.

    Args:
        value: A setting: text, number, or mappings and sequences of them.
        name: What the setting is called; a name such as `api_key` makes its text a secret.
    """
    if isinstance(value, Mapping):
        return {k: clean(v, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(v, name) for v in value]
    if value is not None and _words(name) & _SECRET:
        return REMOVED
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return REMOVED if _words(name) & _SECRET_UNLESS_NUMBER else clean_text(str(value))


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", _CAMEL.sub("_", name).lower()))


def clean_text(text: str, key: str | None = None) -> str:
    """Return `text` without user:password@ in addresses, keys in queries, and values of secret variables.

    Args:
        text: Such as an error message; providers quote the key that they refuse.
        key: A further value to be removed, however short it is.
    """
    if key:
        text = text.replace(key, REMOVED)
    text = _USERINFO.sub(r"\1", text)
    text = _QUERY.sub(rf"\1{REMOVED}", text)
    text = _LOOKS_LIKE_KEY.sub(REMOVED, text)
    for variable, value in os.environ.items():
        secret = bool(_words(variable) & (_SECRET | _SECRET_UNLESS_NUMBER)) and variable != "PWD"
        # Short values would blank ordinary words, and the shell's PWD is a folder. A key that was pasted with a line
        # break is quoted without it.
        for part in {value.strip(), *_passwords(value)} if secret else _passwords(value):
            if len(part) >= 8 and part in text:
                text = text.replace(part, REMOVED)
    return text


def _passwords(value: str) -> set[str]:
    """The passwords of an address, as they are written there and as they are meant."""
    if "@" not in value or "://" not in value:
        return set()
    try:
        password = urlsplit(value.strip()).password or ""
    except ValueError:
        return set()
    return {password, unquote(password)} - {""}
