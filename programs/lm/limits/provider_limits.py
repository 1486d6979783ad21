"""How fast hosted providers may be asked: by what they say themselves, and until then by their smallest accounts.

A provider that names its limits in every answer (OpenAI and many who speak its protocol) is believed from the first
answer on. Others are asked at the pace of their smallest paid account; `--rpm` and `--tpm` say better. The figures
were noted in 2025 and not asked of the providers since; accounts grow out of them. Self-hosted servers have no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits of an account; None is none that is known."""

    rpm: float | None = None
    """Requests per minute."""
    tpm: float | None = None
    """Tokens per minute, input and output."""


NO_LIMIT = RateLimits()

DEFAULT_LIMITS: Mapping[str, RateLimits] = MappingProxyType(
    {
        "openai": RateLimits(500, 200_000),
        "anthropic": RateLimits(50, 40_000),
        "gemini": RateLimits(150, 1_000_000),
        "mistral": RateLimits(60, 500_000),
        "groq": RateLimits(30, 6_000),
        "cohere": RateLimits(500),
        "deepseek": NO_LIMIT,
        "xai": RateLimits(480),
    }
)
"""Prefix of the spec -> limits of the provider's smallest account that is paid for (of Groq's free one)."""

_REQUESTS = ("x-ratelimit-limit-requests",)
_TOKENS = ("x-ratelimit-limit-tokens",)


def default_limits(spec: str, api_base: str | None) -> RateLimits:
    """The limits to begin with; none for an address that the user has given."""
    return NO_LIMIT if api_base else DEFAULT_LIMITS.get(spec.partition("/")[0], NO_LIMIT)


def limits_from_headers(headers: Mapping[str, str], spec: str) -> RateLimits | None:
    """The limits per minute that an answer names, or None where it names none.

    Groq counts requests by the day under the same name, so that only its tokens are believed.
    """
    rpm = None if spec.startswith("groq/") else _number(headers, _REQUESTS)
    tpm = _number(headers, _TOKENS)
    return None if rpm is None and tpm is None else RateLimits(rpm, tpm)


def _number(headers: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    for name in names:
        text = headers.get(name, "")
        if text.isdecimal() and int(text) > 0:
            return float(text)
    return None
