"""A reply as it is kept, and where replies are kept so that no call is paid twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


class ReplyStore(Protocol):
    """Where replies are kept. `programs.lm.journal` keeps them in files."""

    def get(self, key: str) -> Reply | None: ...

    def put(self, key: str, role: str, reply: Reply) -> None: ...


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
