"""Settings of the calls to an LM: limits and budget, prices, addresses; and the removal of secrets. Imports no DSPy."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files import formats
from debate_judge.data.files.records import Record

Temperature = float | Literal["none"]
"""Of sampling; `none` leaves it to the provider."""
MaxTokens = int | Literal["none"]
"""Longest reply, in tokens; `none` leaves it to the provider."""

# --- limits: nothing here changes a result ---


@dataclass(frozen=True, slots=True)
class BudgetCaps:
    """Caps on the calls that a run executes; None is no cap. Replies from the store cost nothing."""

    calls: int | None = None
    tokens: int | None = None
    """Input and output together."""
    usd: float | None = None

    def __bool__(self) -> bool:
        return self != BudgetCaps()

    def share(self, processes: int) -> BudgetCaps:
        """The caps of each of several processes."""
        calls, tokens = self.calls and self.calls // processes, self.tokens and self.tokens // processes
        return BudgetCaps(calls, tokens, self.usd and self.usd / processes)

    @classmethod
    def parse(cls, text: str) -> BudgetCaps:
        """Read caps such as `calls=1000`, `tokens=2e6` or `usd=5`, joined by commas.

        Raises:
            InputError: The text has another form.
        """
        caps: dict[str, Any] = {}
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            fits = 0 < number < math.inf and (name == "usd" or number == int(number))
            if name not in ("calls", "tokens", "usd") or name in caps or not fits:
                raise InputError(
                    "the budget cannot be read",
                    field="--budget",
                    expected="calls=N, tokens=N and usd=X, each at most once, joined by commas",
                    found=part,
                )
            caps[name] = number if name == "usd" else int(number)
        return cls(**caps)


@dataclass(frozen=True, slots=True)
class LMOptions:
    """Limits on the calls to one LM. The defaults suit hosted providers and slow local servers alike."""

    rpm: float | None = None
    """Maximum requests per minute; None adapts to the provider's limits."""
    tpm: float | None = None
    """Maximum tokens per minute, input and output; estimated before a call, corrected after it."""
    budget: BudgetCaps = BudgetCaps()
    prices: Path | None = None
    """TOML file with prices; it overrides LiteLLM's table."""
    attempt_timeout: float = 300.0
    """Seconds until an attempt is given up. A local server may well let a call wait for minutes."""
    deadline: float = 900.0
    """Seconds that the attempts of one call and its pauses may take together, without waiting for a slot or for
    the end of an outage."""
    retries: int = 3
    """Further attempts after failures that may be the call's own. Rate limits and outages do not count."""
    first_wait: float = 1.0
    """Seconds before the second attempt, doubled for each further one, plus random jitter of up to this value."""
    max_wait: float = 60.0
    """Maximum number of seconds before an attempt, also if a provider asks for more with Retry-After."""
    max_outage: float = 300.0
    """Seconds for which a run waits for a provider that is down before it ends, to be resumed later."""

    def __post_init__(self) -> None:
        for name in ("rpm", "tpm", "attempt_timeout", "deadline"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError("number too small", field=name, expected="more than 0", found=value)

    def share(self, processes: int) -> LMOptions:
        """The options of each of several processes that share the limits."""
        rpm, tpm = self.rpm and self.rpm / processes, self.tpm and self.tpm / processes
        return replace(self, rpm=rpm, tpm=tpm, budget=self.budget.share(processes))

    @classmethod
    def from_settings(
        cls, *, budget: str | None = None, prices: str | Path | None = None, **settings: float | None
    ) -> LMOptions:
        """Options from the values of settings; None is the default.

        Raises:
            InputError: A value cannot be used.
        """
        given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        caps = BudgetCaps() if budget is None else BudgetCaps.parse(budget)
        options = cls(budget=caps, prices=None if prices is None else Path(prices), **given)
        timeout, outage = min(options.attempt_timeout, options.deadline), min(options.max_outage, options.deadline)
        return replace(options, attempt_timeout=timeout, max_outage=outage)


# --- prices: from the user's table, else from LiteLLM's; None for an unknown model, never 0 ---

EXAMPLE_LM = "openai/gpt-6-luna"
"""The LM that messages and pages name as an example; not one that its provider is about to retire."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    cached: float
    """Input tokens that the provider served from its prefix cache."""
    output: float

    def cost(self, fresh: float, cached: float, output: float) -> float:
        """US dollars for numbers of uncached input, cached input and output tokens."""
        return (fresh * self.input + cached * self.cached + output * self.output) / 1e6


def price_of(model: str, table: Path | None = None, *, use_litellm: bool = True) -> Price | None:
    """The price of a model, or None where it is unknown.

    Args:
        model: As DSPy knows it, PROVIDER/MODEL.
        table: TOML file with a section for each model, named like `model` or without its provider:

            ["openai/gpt-6-luna"]
            input = 0.10     # US dollars per million tokens
            cached = 0.01    # like input if left out
            output = 0.50
        use_litellm: Whether to look into LiteLLM's table; its prices do not apply to a server of the user's own.

    Raises:
        InputError: The table is not TOML, or a section lacks a number or has another field.
    """
    if table is not None:
        sections = formats.toml(table, "table of prices")
        prices = {name: _read_price(sections.child(name)) for name in sections.values}
        if (price := prices.get(model) or prices.get(model.partition("/")[2])) is not None:
            return price
    info = litellm_entry(model) if use_litellm else {}
    given, cached = info.get("input_cost_per_token"), info.get("cache_read_input_token_cost")
    if not isinstance(given, (int, float)):
        return None
    output = info.get("output_cost_per_token") or 0.0
    return Price(1e6 * given, 1e6 * (given if cached is None else cached), 1e6 * output)


def _read_price(record: Record) -> Price:
    record.refuse_unknown_fields(("input", "cached", "output"))
    prices = {name: record.number(name) for name in ("input", "output", *record.values)}
    for name, value in prices.items():
        if value < 0:
            expected = "0 or more US dollars for a million tokens"
            raise record.error("not a price", name, expected=expected, found=value)
    return Price(prices["input"], prices.get("cached", prices["input"]), prices["output"])


# --- what LiteLLM knows, without importing it, which would take seconds and use the network ---


def _litellm_file(name: str) -> str:
    """A file of LiteLLM's; empty where it is not found."""
    spec = importlib.util.find_spec("litellm")
    path = Path(spec.origin).parent / name if spec and spec.origin else None
    return path.read_text(encoding="utf-8") if path is not None and path.is_file() else ""


@lru_cache(maxsize=1)
def _litellm_table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(_litellm_file("model_prices_and_context_window_backup.json") or "{}")
    return table


def litellm_entry(model: str) -> dict[str, Any]:
    """The entry of a model, with or without its provider, in LiteLLM's table; empty if it has none."""
    return _litellm_table().get(model) or _litellm_table().get(model.partition("/")[2]) or {}


def require_provider(spec: str, flag: str = "--lm") -> None:
    """Refuse PROVIDER/MODEL whose provider is nearly that of LiteLLM; any other unknown one is left to LiteLLM itself,
    which also knows providers that were registered with it.

    Raises:
        InputError: The provider is misspelt.
    """
    provider, slash, _ = spec.partition("/")
    _, _, source = _litellm_file("types/utils.py").partition("class LlmProviders(")
    providers = re.findall(r'^    \w+ = "(\w+)"', source.partition("\nclass ")[0], re.MULTILINE)
    if slash and provider not in providers and (remedy := did_you_mean(provider, providers)):
        raise InputError(f"no provider is called {provider!r}", field=flag, found=spec, remedy=remedy)


# --- addresses ---

CALLED_DIRECTLY = {
    "openai": "https://api.openai.com/v1",
    "hosted_vllm": "http://localhost:8000/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
"""Provider prefix -> default address, of the providers that are called without LiteLLM."""
_ADDRESSES = {
    **CALLED_DIRECTLY,
    "ollama": "http://localhost:11434",
    "ollama_chat": "http://localhost:11434",
    "llamafile": "http://127.0.0.1:8080/v1",
}
"""The same with LiteLLM's providers on this machine."""


def key_variable(spec: str) -> str:
    """The environment variable that holds the key for PROVIDER/MODEL."""
    return f"{spec.partition('/')[0].upper()}_API_KEY"


def base_variable(spec: str) -> str:
    """The environment variable that holds the server's address for PROVIDER/MODEL, or that may hold it: LiteLLM's name,
    else that of the provider's own client."""
    provider = spec.partition("/")[0]
    prefix = "OLLAMA" if provider == "ollama_chat" else provider.upper()
    names = (f"{prefix}_API_BASE", f"{prefix}_BASE_URL")
    return next((name for name in names if os.environ.get(name)), names[0])


def default_address(spec: str) -> str | None:
    """The default address for PROVIDER/MODEL; None if only LiteLLM knows it."""
    return _ADDRESSES.get(spec.partition("/")[0])


def destination(spec: str, address: str) -> str:
    """A message that says where the calls of PROVIDER/MODEL go; `address` is empty for the provider's default."""
    server, variable = address or default_address(spec), key_variable(spec)
    where = without_credentials(server) if server else f"the provider {spec.partition('/')[0]!r}"
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


# --- secrets in what is logged or recorded; texts under evaluation and replies are not redacted ---

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


def redact_text(text: str, key: str | None = None) -> str:
    """Return `text` without user:password@ in addresses, keys in queries, and values of secret variables.

    Args:
        text: E.g. an error message, in which providers quote the key.
        key: A further value to remove, of any length.
    """
    if key:
        text = text.replace(key, REMOVED)
    text = _KEY.sub(REMOVED, _QUERY.sub(rf"\1{REMOVED}", _USERINFO.sub(r"\1", text)))
    for variable, value in os.environ.items():
        secrets = _passwords(value)
        # The shell's PWD is a folder. A key that was pasted with a line break is quoted without it.
        if _words(variable) & (_SECRETS | _SECRETS_UNLESS_NUMBER) and variable != "PWD":
            secrets.add(value.strip())
        for secret in secrets:
            # Short values would blank ordinary words.
            if len(secret) >= 8:
                text = text.replace(secret, REMOVED)
    return text


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", _CAMEL_CASE.sub("_", name).lower()))


def _passwords(value: str) -> set[str]:
    """The password of an address, as it is written there and decoded."""
    try:
        password = urlsplit(value.strip()).password if "@" in value and "://" in value else None
    except ValueError:
        password = None
    return {password, unquote(password)} if password else set()
