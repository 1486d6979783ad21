"""The event loop of all LM calls, in a daemon thread of this process that is started on first use.

Synchronous code calls `run`. Context variables are copied, so DSPy's settings, traces, callbacks and usage apply on the
loop, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import dspy

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_INLINE_MODULE = "dspy.clients.execution"
"""DSPy's module that runs two functions in another thread in every call, though they take some 50 microseconds."""


class _Loop(asyncio.SelectorEventLoop):
    """Runs functions of `_INLINE_MODULE` directly: a thread switch costs 0.1 ms of CPU, twice their time."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        # `asyncio.to_thread` wraps the function so that it runs in a copy of the context.
        function = func.args[0] if isinstance(func, partial) and func.args else func
        if getattr(function, "__module__", "") != _INLINE_MODULE:
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


_started: list[asyncio.AbstractEventLoop] = []
_starting = threading.Lock()


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, running. A forked process has none: start processes by `spawn`."""
    with _starting:
        if not _started:
            _started.append(_Loop())
            threading.Thread(target=_started[0].run_forever, name="debate-loop", daemon=True).start()
    return _started[0]


def submit(coro: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `coro` on the loop, in a copy of the caller's context."""
    # The callback that makes the task runs in a copy of this thread's context, and so does the task.
    return asyncio.run_coroutine_threadsafe(coro, event_loop())


def run(coro: Coroutine[Any, Any, T]) -> T:
    """Run `coro` on the loop and wait for its result; an interrupt here cancels it there.

    May be called in any thread, also in one with a running loop of its own (a notebook's), which it blocks meanwhile.

    Raises:
        RuntimeError: It is called on the loop itself, which would wait for itself.
    """
    if is_current():
        coro.close()
        raise RuntimeError("synchronous call on the loop of all LM calls; await `acall` instead")
    future = submit(coro)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def on_loop(coro: Coroutine[Any, Any, T]) -> T:
    """Await `coro` on the loop, from any loop; cancelling this cancels it there."""
    return await (coro if is_current() else asyncio.wrap_future(submit(coro)))


def is_current() -> bool:
    """Whether the caller runs on the loop."""
    try:
        return asyncio.get_running_loop() in _started
    except RuntimeError:
        return False


async def gather(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """`asyncio.gather`, with DSPy's trace in the order of the arguments: optimizers sample calls from the trace, which
    must not depend on which reply came first."""
    trace = dspy.settings.trace
    if trace is None:
        return list(await asyncio.gather(*awaitables))

    async def traced(awaitable: Awaitable[T]) -> tuple[T, list[Any]]:
        with dspy.context(trace=[]):
            return await awaitable, dspy.settings.trace

    results = await asyncio.gather(*map(traced, awaitables))
    trace.extend(call for _, calls in results for call in calls)
    return [result for result, _ in results]
