"""A server on loopback with an event loop in a thread of its own, as a context manager."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
Self = TypeVar("Self", bound="LoopbackServer")


class LoopbackServer:
    """Serves from `with` to its end; a subclass says how it listens and leaves."""

    def __init__(self) -> None:
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def listen(self) -> None:
        """Set the port and begin to answer."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Close the port and all connections."""
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of work in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def __enter__(self: Self) -> Self:
        self._thread.start()
        self.run(self.listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.leave())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
