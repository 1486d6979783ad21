"""What each of several judges would cost alone, though they share one store of replies.

Judges of one pass hold many calls in common, and whoever asks first pays. A table must not say that the others
cost less for it. So every reply is charged, with its tokens, to each judge that needed it: once, since its own
store would have answered a second time.
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

_PAYER: ContextVar[JudgeUsage | None] = ContextVar("payer", default=None)


@dataclass
class JudgeUsage:
    """Tokens of all replies that one judge needed, whoever had them executed, and whenever."""

    fresh: int = 0
    """Input at the full price."""
    cached: int = 0
    """Input that the provider served from its prefix cache when the call was made."""
    output: int = 0
    _keys: set[str] = field(default_factory=set, repr=False)

    def charge(self, key: str, reply: Reply) -> None:
        """Add a reply, unless it is on the bill already."""
        if key not in self._keys:
            self._keys.add(key)
            self.fresh += reply.input_tokens - reply.cached_tokens
            self.cached += reply.cached_tokens
            self.output += reply.output_tokens

    def usd(self, price: Price) -> float:
        """US dollars for all of it."""
        return price.of(self.fresh, self.cached, self.output)


@contextmanager
def charged_to(usage: JudgeUsage | None) -> Iterator[None]:
    """Charge the replies that are asked for in this block, and in tasks started in it, to `usage`; None to nobody."""
    token = _PAYER.set(usage)
    try:
        yield
    finally:
        _PAYER.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the calls of this block, and of the work that it hands to a `JudgeRunner`, as of the stage `name`."""
    token = STAGE.set(name)
    try:
        yield
    finally:
        STAGE.reset(token)


class UsageByJudge:
    """A `programs.lm.reply.ReplyStore` that charges whoever asks through it.

    Whoever looks for a reply in vain is charged when it comes, whichever task brings it: the replies of a batch job
    come together, and a call in flight serves all who wait for it.

    Args:
        store: Where the replies are kept.
    """

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._owing: dict[str, list[JudgeUsage]] = {}

    @property
    def jobs(self) -> Any:
        """The store's book of batch jobs, if it has one (`programs.lm.batch.jobs`)."""
        return getattr(self._store, "jobs")  # noqa: B009 - a store without one must look like one without

    def get(self, key: str) -> Reply | None:
        reply, payer = self._store.get(key), _PAYER.get()
        if payer is None:
            return reply
        if reply is not None:
            payer.charge(key, reply)
        elif not any(usage is payer for usage in self._owing.get(key, ())):
            self._owing.setdefault(key, []).append(payer)
        return reply

    def put(self, key: str, role: str, reply: Reply) -> None:
        self._store.put(key, role, reply)
        for usage in self._owing.pop(key, ()):
            usage.charge(key, reply)
