"""How many bytes of jobs may be at a batch service at once, learned from its refusals. Belongs to one event loop."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

_PARTS = 64
"""Most parts that a job is split into when it is refused although no other is at the service."""
_TRUST = 8
"""Jobs in a row that must succeed before the quota is doubled."""
_PATIENCE = 10
"""The longest wait, as a multiple of the first."""


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


class QueueQuota:
    """Bytes of the jobs that are at the service.

    The provider counts tokens, of all that the account has there. It says that they are too many only after a job
    was made, so the quota is halved by each refusal and doubled when some jobs in a row succeeded.

    Args:
        wait: Seconds to wait after a refusal that none of these jobs can have caused.
    """

    def __init__(self, wait: float) -> None:
        self._wait, self._next_wait = wait, wait
        self._most = math.inf
        self._least = 0.0
        self._held = 0
        self._well = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def parts(self, calls: Iterable[S], most_calls: int, most_bytes: int) -> Iterator[list[S]]:
        """Split calls so that each part fits into one job."""
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
        """Wait until a job of this size may be created. With no other job there it always may."""
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
        """Count a job of this size that is at the service already."""
        self._held += size

    def leave(self, size: int) -> None:
        """Take in that a job of this size is over."""
        self._held -= size
        while self._waiting and (self._waiting[0][0].done() or self._fits(self._waiting[0][1])):
            future, wanted = self._waiting.popleft()
            if not future.done():
                self._held += wanted
                future.set_result(None)

    def went_well(self) -> None:
        """Take in that a job was carried out."""
        self._next_wait = self._wait
        self._well += 1
        if self._well >= _TRUST:
            self._most, self._well = 2 * self._most, 0

    def refused(self, size: int, calls: int) -> float:
        """Take in that a job of this size, still counted, was refused; returns seconds to wait before the next try."""
        alone, self._well = self._held <= size, 0
        self._least = self._least or self._held / _PARTS
        before, self._most = min(self._most, self._held), max(self._held / 2, self._least)
        if not alone or (calls > 1 and self._most < before):
            return 0.0
        # No job of ours is left to blame: other jobs of the account fill its queue.
        wait, self._next_wait = self._next_wait, min(2 * self._next_wait, _PATIENCE * self._wait)
        return wait

    def _fits(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._most
