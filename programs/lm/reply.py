"""A reply as it is kept, and where replies are kept so that no call is paid twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Messages = list[dict[str, Any]]
"""Texts with their roles (system, user, assistant), as OpenAI's chat protocol has them."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as it is stored: nothing in it identifies a key or an account."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that the provider served from its prefix cache; `input_tokens` includes them."""
    finish: str = "stop"
    logprobs: Sequence[Sequence[tuple[str, float]]] | None = None
    """Where the call asked for them: for each token, that token and the others that were likely there."""


def sound_reply(
    text: object,
    tokens: tuple[object, object, object] = (0, 0, 0),
    finish: object = "stop",
    logprobs: object = None,
) -> Reply:
    """A reply of what a server has sent or a store has kept, fit to be kept and counted.

    Counts that are none are taken for unknown, which is 0, and log-probabilities that are none for absent; a text
    loses what UTF-8 cannot hold.

    Args:
        text: The reply's.
        tokens: Input, output, and of the input those from the provider's prefix cache.
        finish: How it ended.
        logprobs: As in `Reply`.

    Raises:
        ValueError: The text is none.
    """
    if not isinstance(text, str) or not isinstance(finish, str):
        raise ValueError("not a text")
    given, written, cached = map(_count, tokens)
    whole = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return Reply(whole, given, written, min(cached, given), finish, _tokens(logprobs))


def _count(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        return int(value)
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15
    return int(value) if fits else 0  # type: ignore[call-overload]


def _tokens(value: object) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    if not isinstance(value, (list, tuple)) or not value:
        return None
    try:
        found = tuple(tuple((_token(token), float(p)) for token, p in alternatives) for alternatives in value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if all(math.isfinite(p) for alternatives in found for _, p in alternatives) else None


def _token(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a token is a text")
    return value.encode("utf-8", "replace").decode()


class ReplyStore(Protocol):
    """Where replies are kept. `programs.lm.journal` keeps them in files."""

    def get(self, key: str) -> Reply | None: ...

    def put(self, key: str, role: str, reply: Reply) -> None: ...


@runtime_checkable
class SharedStore(ReplyStore, Protocol):
    """A store that several processes use at the same time, which share the calls that they have in common."""

    async def fetch(self, key: str) -> Reply | None:
        """The reply, where `get` has to look further than it can without waiting; `get` finds it from then on."""
        ...

    async def claim(self, key: str) -> bool:
        """Claim a call; False while another process holds the claim. `get` then finds what its last holder put."""
        ...

    def release(self, key: str) -> None:
        """Give a claim up, after what was put before can be found by all."""
        ...


class Memory:
    """A store that lasts as long as the process.

    Args:
        room: Most replies to keep; the oldest are forgotten first. None keeps all.
    """

    def __init__(self, room: int | None = None) -> None:
        self._room = room
        self._replies: dict[str, Reply] = {}

    def get(self, key: str) -> Reply | None:
        return self._replies.get(key)

    def put(self, key: str, role: str, reply: Reply) -> None:
        self._replies[key] = reply
        if self._room is not None and len(self._replies) > self._room:
            del self._replies[next(iter(self._replies))]
