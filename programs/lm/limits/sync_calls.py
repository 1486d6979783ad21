"""Takes the calls of synchronous code the way of all others: on an event loop, with every limit.

DSPy's own modules (instruction proposers, reflection) call an LM from worker threads. Their calls run on the loop of
the run, so that connections and pace are shared. Where no run is on, or its loop cannot take them, they run on a loop
of their own.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import dspy

T = TypeVar("T")
Work = Callable[[bool], Coroutine[Any, Any, T]]
"""Makes the coroutine of a call; told whether it runs on a loop of its own, where nothing may wait for the others."""

_BLOCKED = 5.0
"""Seconds after which a loop that has not begun a call counts as blocked, perhaps by what waits for this very call."""


class SyncCalls:
    """Runs coroutines for threads that have no event loop, or must not wait for the one that they hold up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = self._thread = 0

    def serve(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        """Take calls to `loop` from now on, which `thread` runs."""
        with self._lock:
            self._loop, self._process, self._thread = loop, os.getpid(), thread.ident or 0

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take no more calls to `loop`; what was taken there before is cancelled with the rest of the run."""
        with self._lock:
            if self._loop is loop:
                self._loop = None

    def run(self, work: Work[T]) -> T:
        """Run `work` and wait for its result; an interrupt cancels it.

        A call from the thread of the run's loop, or from a thread that this loop waits for, never waits for that loop.

        Raises:
            dspy.LMError: As `work` raises it, or the run has ended meanwhile.
        """
        claim, begun = threading.Lock(), threading.Event()

        async def shared() -> T:
            if not claim.acquire(blocking=False):
                raise asyncio.CancelledError
            begun.set()
            return await work(False)

        with self._submitted(shared) as future:
            if future is not None:
                future.add_done_callback(lambda _: begun.set())
                begun.wait(_BLOCKED)
                if future.done() or not claim.acquire(blocking=False):
                    try:
                        return future.result()
                    except CancelledError:
                        raise dspy.LMUnexpectedError("the run ended before the call was answered") from None
        return _run_apart(work)

    @contextmanager
    def _submitted(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Iterator[Future[T] | None]:
        """`work`, started on the loop of the run; None where this thread must not wait for one."""
        with self._lock:
            # A process that was forked has the loop without the thread that runs it.
            ours = self._loop is not None and self._process == os.getpid() and self._thread != threading.get_ident()
            # Under the lock, so that nothing comes behind the end of the run.
            future = asyncio.run_coroutine_threadsafe(work(), self._loop) if ours and self._loop else None
        try:
            yield future
        finally:
            if future is not None:
                future.cancel()


def _run_apart(work: Work[T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    # This thread's loop is the caller's, and stands still until the caller returns.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, _run, work).result()


def _run(work: Work[T]) -> T:
    # Unlike `asyncio.run` it leaves the thread's current loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work(True))
