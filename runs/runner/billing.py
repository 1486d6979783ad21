"""Usage that each of several judges would have by itself, although they share one store of replies.

Judges of one pass have many calls in common, and each call is made only once. A table must not say that a judge
costs less because another one asked before it. So the tokens of a reply are counted for every judge that needed it:
once, since a store of its own would have answered it the second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply, ReplyStore

STAGE: ContextVar[str] = ContextVar("stage", default="")
"""The part of a run that calls are made for, e.g. `fluency: tuning`; estimates count by it."""

_USAGE: ContextVar[JudgeUsage | None] = ContextVar("usage", default=None)
"""Of the judge that the running task works for; `JudgeRunner.asking` sets it."""


@dataclass
class JudgeUsage:
    """Tokens of all replies that one judge needed, whether this run executed them for it or found them answered."""

    fresh: int = 0
    """Input at the full price."""
    cached: int = 0
    """Input that the provider served from its prefix cache when the call was made."""
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
        """US dollars for all of it."""
        return price.cost(self.fresh, self.cached, self.output)


@contextmanager
def charged_to(usage: JudgeUsage | None) -> Iterator[None]:
    """Count the replies that are asked for in this block, and in tasks started in it, in `usage`; None counts none."""
    token = _USAGE.set(usage)
    try:
        yield
    finally:
        _USAGE.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the calls of this block, and of the work that it hands to a `JudgeRunner`, as of the stage `name`."""
    token = STAGE.set(name)
    try:
        yield
    finally:
        STAGE.reset(token)


class UsageByJudge:
    """A `programs.lm.reply.ReplyStore` that counts each reply in the usage of the judge that asks for it.

    A reply that is not there yet is counted when it comes, for every judge that has asked for it and whichever task
    brings it: the replies of a batch job come together, and a call in flight serves all who wait for it.
    """

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._awaited: dict[str, list[JudgeUsage]] = {}

    def __getattr__(self, name: str) -> Any:
        """`run` and `run_sync` of a store that is a database."""
        return getattr(self._store, name)

    async def get(self, key: str) -> Reply | None:
        reply = await self._store.get(key)
        self._charge(key, reply)
        return reply

    async def get_or_claim(self, key: str) -> Reply | bool:
        outcome = await self._store.get_or_claim(key)
        if isinstance(outcome, Reply):
            # Another process has brought it since `get`.
            self._charge(key, outcome)
        return outcome

    def _charge(self, key: str, reply: Reply | None) -> None:
        usage = _USAGE.get()
        if usage is not None and reply is not None:
            usage.charge(key, reply)
        elif usage is not None:
            # Asked for twice, it is in the list twice; `charge` counts it once.
            self._awaited.setdefault(key, []).append(usage)

    async def release(self, key: str) -> None:
        await self._store.release(key)

    def close(self) -> None:
        self._store.close()

    async def put(self, key: str, role: str, reply: Reply) -> None:
        await self._store.put(key, role, reply)
        for usage in self._awaited.pop(key, ()):
            usage.charge(key, reply)
