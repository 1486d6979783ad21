"""How much may wait at a batch service at once, learned from what it refuses. Belongs to one event loop."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

_PARTS = 64
"""A job that is refused by itself is parted into no more than so many; then only waiting is left."""
_TRUST = 8
"""Jobs in a row that must go well before more is tried again."""
_PATIENCE = 10
"""The longest wait, in waits of the first length."""


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


class QueueQuota:
    """Bytes of the jobs that are at the service.

    The provider counts tokens, of all that the account has there. It says that they are too many only after a job
    was made, so the room is halved by each refusal and doubled when some jobs in a row went well.

    Args:
        wait: Seconds to wait after a refusal that nothing of ours is to blame for.
    """

    def __init__(self, wait: float) -> None:
        self._wait, self._next_wait = wait, wait
        self._most = math.inf
        self._least = 0.0
        self._held = 0
        self._well = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def parts(self, calls: Iterable[S], most_calls: int, most_bytes: int) -> Iterator[list[S]]:
        """Part calls so that each part can be a job."""
        part: list[S] = []
        size, most = 0, min(self._most, most_bytes)
        for call in calls:
            if part and (len(part) >= most_calls or size + call.size > most):
                yield part
                part, size = [], 0
            part.append(call)
            size += call.size
        if part:
            yield part

    async def enter(self, size: int) -> None:
        """Wait until a job of this size may be made. A job that is alone always may."""
        if not self._waiting and self._fits(size):
            self._held += size
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, size))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(size)
            raise

    def take(self, size: int) -> None:
        """A job of this size is there already."""
        self._held += size

    def leave(self, size: int) -> None:
        """A job is over."""
        self._held -= size
        while self._waiting and (self._waiting[0][0].done() or self._fits(self._waiting[0][1])):
            future, wanted = self._waiting.popleft()
            if not future.done():
                self._held += wanted
                future.set_result(None)

    def went_well(self) -> None:
        """A job was carried out."""
        self._next_wait = self._wait
        self._well += 1
        if self._well >= _TRUST:
            self._most, self._well = 2 * self._most, 0

    def refused(self, size: int, calls: int) -> float:
        """A job of this size, which has not left yet, was one too many; returns seconds to wait before another try."""
        alone, self._well = self._held <= size, 0
        self._least = self._least or self._held / _PARTS
        before, self._most = min(self._most, self._held), max(self._held / 2, self._least)
        if not alone or (calls > 1 and self._most < before):
            return 0.0
        # Something else of the account fills the queue.
        wait, self._next_wait = self._next_wait, min(2 * self._next_wait, _PATIENCE * self._wait)
        return wait

    def _fits(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._most
