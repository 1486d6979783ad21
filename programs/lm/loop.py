"""The one event loop of all LM traffic: a daemon thread of this process, started when it is first needed.

Synchronous code calls `run`. Context variables are copied, so DSPy's settings, traces, callbacks and usage hold on the
loop, too.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import dspy

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_INLINE = "dspy.clients.execution"
"""DSPy's module that hands two functions to a thread in every call, though of texts they take some 50 microseconds."""

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""Process id -> its loop: one that was forked cannot use its parent's, which has no thread there."""


class _Loop(asyncio.SelectorEventLoop):
    """Runs what is of `_INLINE` on the spot: the hops between threads cost 0.1 ms of CPU a call, twice the work."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        # `asyncio.to_thread` wraps the function so that it runs in a copy of the context.
        work = func.args[0] if isinstance(func, partial) and func.args else func
        if getattr(work, "__module__", "") != _INLINE:
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, running."""
    process = os.getpid()
    if process not in _loops:
        made = _Loop()
        # Of threads that come here at the same time, one sets it.
        if _loops.setdefault(process, made) is made:
            threading.Thread(target=made.run_forever, name="debate-loop", daemon=True).start()
        else:
            made.close()
    return _loops[process]


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `work` on the loop, in a copy of the caller's context; its result comes by the future."""
    # The callback that makes the task runs in a copy of this thread's context, and so does the task.
    return asyncio.run_coroutine_threadsafe(work, event_loop())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the loop and wait for its result; an interrupt here cancels it there.

    It may be called in any thread, also in one whose own loop is running (a notebook's), which it holds up meanwhile.

    Raises:
        RuntimeError: It is called on the loop itself, which would wait for itself.
    """
    if is_current():
        work.close()
        raise RuntimeError("synchronous call on the loop of all LM calls; await `acall` instead")
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` on the loop, from whatever loop it is called on; cancelling this cancels it there."""
    return await (work if is_current() else asyncio.wrap_future(submit(work)))


def is_current() -> bool:
    """Whether this code runs on the loop."""
    try:
        return asyncio.get_running_loop() is _loops.get(os.getpid())
    except RuntimeError:
        return False


async def gather(works: Iterable[Awaitable[T]]) -> list[T]:
    """`asyncio.gather`, with what DSPy traces in the order of the works: optimizers draw calls from a trace, and may
    not depend on which reply came first."""
    trace = dspy.settings.trace
    if trace is None:
        return list(await asyncio.gather(*works))

    async def traced(work: Awaitable[T]) -> tuple[T, list[Any]]:
        with dspy.context(trace=[]):
            return await work, dspy.settings.trace

    done = await asyncio.gather(*map(traced, works))
    trace.extend(call for _, calls in done for call in calls)
    return [result for result, _ in done]
