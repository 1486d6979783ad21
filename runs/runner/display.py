"""How progress is shown on stderr: one bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, TypeVar

if TYPE_CHECKING:
    from debate_judge.runs.runner.bar import TerminalBar

T = TypeVar("T")

FIRST = 2.0
"""Seconds before a bar is drawn: what is over by then needs none."""
LINE_EVERY = 30.0
"""Seconds between two lines where there is no terminal."""
_REDRAWN_EVERY = 0.25


class ProgressDisplay:
    """Shows how far something is; what it shows is said by a subclass, whose methods any thread may call."""

    def __init__(self, shown: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self.shown = shown
        self.clock = clock
        self.started = self._told_at = 0.0
        self._bar: TerminalBar | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def share(self) -> float | None:
        """Of the work that is done, about; None where nothing is known of it."""
        raise NotImplementedError

    @property
    def begun(self) -> bool:
        """Whether there is anything to show."""
        return True

    def summary(self) -> str:
        """How far it is, what matters most first."""
        raise NotImplementedError

    def detail(self) -> str:
        """What is being done right now; it may be empty."""
        return ""

    def line(self) -> str:
        """Both, without characters that could steer a terminal: they name what users' files name."""
        return _printable(" · ".join(filter(None, (self.summary(), self.detail()))))

    def urgent(self) -> bool:
        """Whether there is something to say that the next line in turn would say too late; true once."""
        return False

    def start(self) -> None:
        """Begin to show, from a thread of its own."""
        self.started = self._told_at = self.clock()
        if self.shown and sys.stderr is not None:
            self._thread = threading.Thread(target=self._watch, args=(sys.stderr,), name="run-progress", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Show nothing any more."""
        self._ended.set()
        try:
            if self._thread is not None:
                self._thread.join()
        finally:
            if self._bar is not None:
                self._bar.close()
                self._bar = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def tick(self, stream: TextIO, *, terminal: bool) -> None:
        """Show what there is to show now."""
        now = self.clock()
        if terminal:
            if now - self.started >= FIRST and self.begun:
                self._draw(stream)
        elif self.urgent() or now - self._told_at >= LINE_EVERY:
            self._told_at = now
            print(time.strftime("%H:%M:%S"), self.line(), file=stream, flush=True)

    def left(self, share: float, since: float | None = None) -> str:
        """How long the rest takes at the pace since the beginning, or since another time."""
        seconds = (self.clock() - (self.started if since is None else since)) * (1 - share) / share
        if seconds < 90:
            return f"about {seconds:.0f} s left"
        if seconds < 5400:
            return f"about {seconds / 60:.0f} min left"
        return f"about {seconds / 3600:.1f} h left" if seconds < 172_800 else f"about {seconds / 86_400:.1f} days left"

    def _watch(self, stream: TextIO) -> None:
        terminal = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        while not self._ended.wait(_REDRAWN_EVERY if terminal else 1.0):
            try:
                self.tick(stream, terminal=terminal)
            except RuntimeError:
                # What is counted grew meanwhile; the next turn counts it.
                continue

    def _draw(self, stream: TextIO) -> None:
        if self._bar is None:
            from debate_judge.runs.runner.bar import TerminalBar

            self._bar = TerminalBar(stream)
        self._bar.draw(_printable(self.summary()), _printable(self.detail()), self.share)


class StepProgress(ProgressDisplay):
    """Counts the steps of something, of `total` if that is known; for a `with` statement."""

    def __init__(self, what: str, total: int | None) -> None:
        super().__init__()
        self.what, self.total, self.done = what, total, 0

    def advance(self, steps: int = 1) -> None:
        self.done += steps

    def over(self, things: Iterable[T]) -> Iterator[T]:
        """The things, each of which is a step."""
        for thing in things:
            yield thing
            self.advance()

    @property
    def share(self) -> float | None:
        return min(1.0, self.done / self.total) if self.total else None

    def summary(self) -> str:
        share = self.share
        text = f"{self.what}: {self.done:,}" + (f" of {self.total:,}" if self.total else "")
        return f"{text} · {self.left(share)}" if share else text


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)
