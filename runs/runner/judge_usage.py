"""The usage that each of several judges would have alone, although they share one store of replies.

Judges of one pass have many calls in common, and each call is made only once. A judge must not look cheaper because
another one made the call first. So the tokens of a reply are counted for every judge that needed it, once each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from debate_judge.programs.lm.replies import Reply, ReplyStore
from debate_judge.programs.lm.settings import Price

STAGE: ContextVar[str] = ContextVar("stage", default="")
"""The stage of the run that calls belong to, e.g. `fluency: tuning`; estimates count calls by stage."""

_USAGE: ContextVar[JudgeUsage | None] = ContextVar("usage", default=None)
"""Usage of the judge that the running task works for; set by `JudgeRunner.call_context`."""


@dataclass
class JudgeUsage:
    """Tokens of all replies that one judge needed, whether this run made the calls or the store had the replies."""

    fresh: int = 0
    """Input tokens at the full price."""
    cached: int = 0
    """Input tokens that the provider's prefix cache served when the call was made."""
    output: int = 0
    _keys: set[str] = field(default_factory=set, repr=False)

    def charge(self, key: str, reply: Reply) -> None:
        """Add a reply, unless it has been counted already."""
        if key not in self._keys:
            self._keys.add(key)
            self.fresh += reply.input_tokens - reply.cached_tokens
            self.cached += reply.cached_tokens
            self.output += reply.output_tokens

    def usd(self, price: Price) -> float:
        """Cost in US dollars."""
        return price.cost(self.fresh, self.cached, self.output)


@contextmanager
def charged_to(usage: JudgeUsage | None) -> Iterator[None]:
    """Count the replies that this block and tasks started in it ask for in `usage`; None counts none."""
    token = _USAGE.set(usage)
    try:
        yield
    finally:
        _USAGE.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the calls of this block, and of the work that it submits to a `JudgeRunner`, for the stage `name`."""
    token = STAGE.set(name)
    try:
        yield
    finally:
        STAGE.reset(token)


class UsageByJudge:
    """A `programs.lm.replies.ReplyStore` that counts each reply in the usage of the judge that asks for it.

    A missing reply is counted when it is stored, for every judge that has asked for it, whichever task stores it: a
    call in flight serves all that wait for it.
    """

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._awaited: dict[str, list[JudgeUsage]] = {}

    async def get(self, key: str) -> Reply | None:
        reply = await self._store.get(key)
        self._charge(key, reply)
        return reply

    async def get_or_claim(self, key: str) -> Reply | bool:
        outcome = await self._store.get_or_claim(key)
        if isinstance(outcome, Reply):
            # Another process has stored it since `get`.
            self._charge(key, outcome)
        return outcome

    def _charge(self, key: str, reply: Reply | None) -> None:
        usage = _USAGE.get()
        if usage is not None and reply is not None:
            usage.charge(key, reply)
        elif usage is not None:
            # A judge that asks twice is in the list twice; `charge` counts the reply once.
            self._awaited.setdefault(key, []).append(usage)

    async def release(self, key: str) -> None:
        await self._store.release(key)

    async def discard(self, key: str) -> None:
        await self._store.discard(key)

    def close(self) -> None:
        self._store.close()

    async def put(self, key: str, role: str, reply: Reply) -> None:
        await self._store.put(key, role, reply)
        for usage in self._awaited.pop(key, ()):
            usage.charge(key, reply)
