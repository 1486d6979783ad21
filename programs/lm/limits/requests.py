"""Requests that go on when the calls that sent them are cancelled: their answers are paid for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from debate_judge.programs.lm.reply import Reply


class RequestsInFlight:
    """All requests that are out. Each ends by itself, within its deadline, and takes in what comes of it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Reply]] = set()

    def start(self, request: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
        """Run `request` as a task; await it by `asyncio.shield`."""
        task = asyncio.create_task(request)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Reply]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # The failure of a request that no call waits for interests no one: without this asyncio would print it.
            task.exception()

    async def drain(self) -> None:
        """Wait until all have ended."""
        loop = asyncio.get_running_loop()
        while tasks := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)
