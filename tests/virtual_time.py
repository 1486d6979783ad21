"""An event loop on which time passes only while nobody has anything to do, so that hours take milliseconds.

with virtual_time("debate_judge.programs.lm.limits.limiter") as run:
    run(main())

A loop that nothing can wake any more is a hang, and here an error instead.
"""

from __future__ import annotations

import asyncio
import importlib
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest


class HangError(AssertionError):
    """Tasks wait, and nothing is left that could wake them."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for code that only computes and sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.idle: list[Callable[[], None]] = []
        """Called whenever all that could be done at one time has been done."""
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            if asyncio.all_tasks(self._loop):
                raise HangError(f"{len(asyncio.all_tasks(self._loop))} tasks wait for ever")
        elif timeout > 0:
            for look in self._loop.idle:
                look()
            self._loop.now += timeout
        return super().select(0)


@contextmanager
def virtual_time(*modules: str) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A way to run coroutines; `time.monotonic` of the named modules is the loop's clock meanwhile."""
    loop = VirtualLoop()
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(importlib.import_module(module), "time", SimpleNamespace(monotonic=loop.time))
        try:
            yield loop.run_until_complete
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
