"""Of the calls about one source one goes ahead, so that the others find the source in the provider's prefix cache.

Sent all at once they would miss it together, for a prefix can be reused only when the request that brought it has
been answered. Waiting takes no place in the limiter: calls about other sources fill the places meanwhile.

A call that the store of replies answers neither leads nor waits, and a call without siblings never waits. Nothing
here changes a result, and the outcome of the leading call does not matter: after its first attempt all others go.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from debate_judge.programs.lm.reply import Messages

LIFE = 300.0
"""Seconds after its last use for which a prefix counts as cached: hosted providers promise five minutes or more."""

_ROOM = 100_000
"""Sources remembered; a judge that serves for months must not grow."""


@dataclass(frozen=True, slots=True, eq=False)
class WarmupTurn:
    """What one question is about: all its calls, those of simultaneous roles included, are one turn."""

    prefix_warmup: PrefixWarmup
    source: str
    context: str
    candidate: str

    @property
    def prefix(self) -> int:
        """What its prompts have in common with those of its siblings."""
        return hash((self.source, self.context))


_TURN: ContextVar[WarmupTurn | None] = ContextVar("turn", default=None)


class PrefixWarmup:
    """Knows which sources are being sent for the first time, and which are cached. Belongs to one event loop."""

    def __init__(self) -> None:
        self._flying: dict[int, tuple[WarmupTurn, asyncio.Future[None]]] = {}
        self._cached: OrderedDict[int, float] = OrderedDict()

    def begin(self, source: str, context: str, candidate: str) -> None:
        """Say what the running task, and whatever it starts, asks about from now on."""
        _TURN.set(WarmupTurn(self, source, context, candidate))

    async def wait(self, turn: WarmupTurn, crowded: bool) -> Callable[[], None]:
        """Wait for the leading call about the turn's source if there is one, else become it.

        Args:
            turn: The question that the call belongs to.
            crowded: Whether the call would have to wait in the limiter anyway.

        Returns:
            What to call when the first attempt is over, so that the calls that wait for it go on.
        """
        loop = asyncio.get_running_loop()
        prefix = turn.prefix
        mine: asyncio.Future[None] | None = None
        if self._cached.get(prefix, -math.inf) <= loop.time() - LIFE:
            if prefix not in self._flying:
                mine = loop.create_future()
                self._flying[prefix] = turn, mine
            else:
                leader, flight = self._flying[prefix]
                # Another aspect of the same candidate waits only where it costs no time.
                if leader is not turn and (crowded or leader.candidate != turn.candidate):
                    await asyncio.wait((flight,))

        def over() -> None:
            self._note(prefix, loop.time())
            if mine is not None and not mine.done():
                del self._flying[prefix]
                mine.set_result(None)

        return over

    def _note(self, prefix: int, now: float) -> None:
        self._cached[prefix] = now
        self._cached.move_to_end(prefix)
        if len(self._cached) > _ROOM:
            self._cached.popitem(last=False)


def _nothing() -> None:
    pass


@asynccontextmanager
async def turn(messages: Messages, crowded: bool) -> AsyncIterator[Callable[[], None]]:
    """Wait until it is a call's turn to be sent.

    Args:
        messages: The call's; without the source in the last of them there is nothing to wait for.
        crowded: Whether all places are taken anyway.

    Returns:
        What to call when the first attempt is over; leaving the context does it too, and once more does no harm.
    """
    mine = _TURN.get()
    if mine is None or not mine.source or mine.source not in messages[-1]["content"]:
        yield _nothing
        return
    over = await mine.prefix_warmup.wait(mine, crowded)
    try:
        yield over
    finally:
        over()
