"""A reply, where it comes from inside the process, and the interface of the stores of replies. Imports no DSPy."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from debate_judge.data.errors import InputError

IMPOSSIBLE = -9999.0
"""Log-probability of a token that has none; servers that write a number there write this one."""
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
    """If requested: for each token, that token and the most likely alternatives, with log-probabilities."""

    id: str | None = field(default=None, compare=False)
    """What the server calls it; the store keeps neither this nor what follows."""
    from_cache: bool = field(default=False, compare=False)
    """Whether a gateway says that it is from its cache."""

    def __post_init__(self) -> None:
        # A reply must be the same when it comes from the store: UTF-8 cannot hold every Python string.
        if not self.text.isascii() or "\0" in self.text:
            object.__setattr__(self, "text", _storable(self.text))
        if not self.finish.isalnum():
            object.__setattr__(self, "finish", _storable(self.finish))


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def validated_reply(
    text: object, tokens: tuple[object, object, object] = (0, 0, 0), finish: object = "stop", logprobs: object = None
) -> Reply:
    """A reply from untrusted values, of a server.

    Invalid counts become 0 (unknown). Alternatives whose log-probability is no finite number are left out, and a token
    for which it is none has `IMPOSSIBLE`; log-probabilities without any number, or for what are no texts, become None.
    Characters that UTF-8 or a database cannot hold are replaced.

    Args:
        text: The reply's text.
        tokens: Input tokens, output tokens, and those of the input that came from the provider's prefix cache.
        finish: Its finish reason.
        logprobs: As in `Reply`.

    Raises:
        ValueError: Text or finish reason is not a string.
    """
    if not isinstance(text, str) or not isinstance(finish, str):
        raise ValueError("not a text")
    input_tokens, output_tokens, cached_tokens = map(_count, tokens)
    return Reply(text, input_tokens, output_tokens, min(cached_tokens, input_tokens), finish, _logprobs(logprobs))


def _count(value: Any) -> int:
    try:
        number = 0 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if 0 <= number < 10**15 else 0


def _logprobs(value: Any) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    try:
        numbers = [[(_storable(token), _finite(p)) for token, p in alternatives] for alternatives in value]
    except (TypeError, ValueError, AttributeError):
        return None
    if not all(numbers) or all(p is None for alternatives in numbers for _, p in alternatives):
        return None
    return tuple(
        ((token, IMPOSSIBLE if p is None else p), *((other, q) for other, q in others if q is not None))
        for (token, p), *others in numbers
    )


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class LocalTransport:
    """A transport that answers inside the process: the offline stand-in, the dry run, the scripted LM of tests.

    A subclass defines `answer`, which must not block: it runs on the event loop.
    """

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        """Answer a call.

        Args:
            system: The system text, empty if there is none.
            user: The last user text; earlier turns (demonstrations) are not read.
            settings: Those of the call.
        """
        raise NotImplementedError

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        system = next((m["content"] for m in messages if m["role"] == "system"), "")
        return self.answer(system, messages[-1]["content"], settings)

    async def aclose(self) -> None:
        pass


class StoreError(InputError):
    """A store cannot be read or written; the run must end."""


class ReplyStore(Protocol):
    """Stores replies by the keys of their calls. `programs.lm.store.SqlStore` is one in a database."""

    async def get(self, key: str) -> Reply | None:
        """The reply that is stored under a key."""
        ...

    async def get_or_claim(self, key: str) -> Reply | bool:
        """The stored reply; else True if this process now holds the call's claim, False while another process does.

        If it is cancelled, no claim is left behind.
        """
        ...

    async def put(self, key: str, role: str, reply: Reply) -> None:
        """Store a reply, committed when this returns, and end the claim of its call."""
        ...

    async def release(self, key: str) -> None:
        """End the claim of a call that has failed."""
        ...

    async def discard(self, key: str) -> None:
        """Forget a reply that could not be used, at the latest when the store is opened again."""
        ...

    def close(self) -> None: ...


_FIRST_POLL, _MAX_POLL = 0.02, 0.5
"""Seconds between two polls of a claim that another process holds; a call to an LM takes seconds."""


async def wait_or_claim(store: ReplyStore, key: str) -> Reply | None:
    """Wait while another process holds the claim of a call; its reply, or None if this process now holds the claim."""
    pause = _FIRST_POLL
    while (outcome := await store.get_or_claim(key)) is False:
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, _MAX_POLL)
    return None if outcome is True else outcome


class InMemoryStore:
    """A store that lasts as long as the process. It has no claims.

    Args:
        max_replies: The oldest replies beyond this number are dropped. None keeps all.
    """

    def __init__(self, max_replies: int | None = None) -> None:
        self._max_replies = max_replies
        self._replies: dict[str, Reply] = {}

    async def get(self, key: str) -> Reply | None:
        return self._replies.get(key)

    async def get_or_claim(self, key: str) -> Reply | bool:
        return self._replies.get(key) or True

    async def put(self, key: str, role: str, reply: Reply) -> None:
        self._replies[key] = reply
        if self._max_replies is not None and len(self._replies) > self._max_replies:
            del self._replies[next(iter(self._replies))]

    async def release(self, key: str) -> None:
        pass

    async def discard(self, key: str) -> None:
        self._replies.pop(key, None)

    def close(self) -> None:
        pass
