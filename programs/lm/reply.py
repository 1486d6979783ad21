"""A stored reply, and the interface of the stores of replies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from debate_judge.data.errors import InputError

Messages = list[dict[str, Any]]
"""Texts with their roles (system, user, assistant), as OpenAI's chat protocol has them."""


def replies_folder(store: str | Path, spec: str) -> Path:
    """The folder with the stored replies of the LM `spec`, below the folder given with `--store`."""
    return Path(store) / "replies" / spec.replace("/", "_")


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

    def __post_init__(self) -> None:
        # What is used must be what is recalled: neither UTF-8 nor PostgreSQL can hold every text of Python.
        if not self.text.isascii() or "\0" in self.text:
            object.__setattr__(self, "text", _storable(self.text))
        if not self.finish.isalnum():
            object.__setattr__(self, "finish", _storable(self.finish))


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def validated_reply(
    text: object, tokens: tuple[object, object, object] = (0, 0, 0), finish: object = "stop", logprobs: object = None
) -> Reply:
    """A reply of what a server has sent or a store has kept, fit to be kept and counted.

    Counts that are none are taken for unknown, which is 0, and log-probabilities that are none for absent; in a text
    what UTF-8 or a database cannot hold is replaced.

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
    return Reply(text, given, written, min(cached, given), finish, _tokens(logprobs))


def _count(value: Any) -> int:
    try:
        number = 0 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if 0 <= number < 10**15 else 0


def _tokens(value: Any) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    try:
        cleaned = tuple(tuple((_storable(token), float(p)) for token, p in alternatives) for alternatives in value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return cleaned if cleaned and all(math.isfinite(p) for alternatives in cleaned for _, p in alternatives) else None


class StoreError(InputError):
    """A store cannot be read or written any more, so that the run must not go on."""


class ReplyStore(Protocol):
    """Where replies are kept. `programs.lm.store.SqlStore` keeps them in a database."""

    async def get(self, key: str) -> Reply | None:
        """The reply that is stored under a key."""
        ...

    async def take(self, key: str) -> Reply | bool:
        """The stored reply; True if this process now holds the call's claim, False while another process does.

        Cancelled, it leaves no claim behind.
        """
        ...

    async def put(self, key: str, role: str, reply: Reply) -> None:
        """Keep a reply, committed when this returns, and end the claim of its call."""
        ...

    async def release(self, key: str) -> None:
        """Give up the claim of a call that has brought no reply."""
        ...

    def close(self) -> None: ...


_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
"""Seconds between two looks at a claim that another process holds; a call to an LM takes seconds."""


async def reply_or_claim(store: ReplyStore, key: str) -> Reply | None:
    """Wait while another process holds the claim of a call; its reply, or None if the claim is now this process's."""
    pause = _FIRST_WAIT
    while (answer := await store.take(key)) is False:
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_WAIT)
    return None if answer is True else answer


class InMemoryStore:
    """A store that lasts as long as the process. It has no claims.

    Args:
        room: Most replies to keep; the oldest are forgotten first. None keeps all.
    """

    def __init__(self, room: int | None = None) -> None:
        self._room = room
        self._replies: dict[str, Reply] = {}

    async def get(self, key: str) -> Reply | None:
        return self._replies.get(key)

    async def take(self, key: str) -> Reply | bool:
        return self._replies.get(key) or True

    async def put(self, key: str, role: str, reply: Reply) -> None:
        self._replies[key] = reply
        if self._room is not None and len(self._replies) > self._room:
            del self._replies[next(iter(self._replies))]

    async def release(self, key: str) -> None:
        pass

    def close(self) -> None:
        pass
