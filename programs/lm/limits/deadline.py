"""A deadline that counts what has arrived as arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TURNS = 3
"""Turns of the event loop between the end of the time and the cancellation: bytes that the system has received are
read in the first, and the task that waits for them goes on in the next."""


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """`asyncio.timeout`, except that what has arrived by then is taken in before the time counts as over.

    A loop that was held up, by a long computation or a busy machine, finds an answer and the end of its time in the
    same turn. `asyncio.timeout` cancels the task then although its answer is there, and the answer is paid again.

    Raises:
        TimeoutError: The time is over.
    """
    loop = asyncio.get_running_loop()
    handles: list[asyncio.Handle] = []
    async with asyncio.timeout(None) as limit:

        def end(turns: int) -> None:
            if turns:
                handles[:] = [loop.call_soon(end, turns - 1)]
            else:
                limit.reschedule(loop.time())

        handles.append(loop.call_later(seconds, end, _TURNS))
        try:
            yield
        finally:
            handles[0].cancel()
