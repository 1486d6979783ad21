"""The progress of a run on stderr: one bar on a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, TypeVar

from debate_judge.runs.runner.judge_usage import STAGE

if TYPE_CHECKING:
    from debate_judge.programs.lm.client import JudgeLM

T = TypeVar("T")

BAR_DELAY = 2.0
"""Seconds before a bar is drawn; shorter work needs none."""
FIRST_LINE, LINE_INTERVAL = 5.0, 30.0
"""Seconds before the first line and between two lines if stderr is no terminal."""
_MIN_SHARE_TO_EXTRAPOLATE = 0.05
"""Share of the work that must be done before the time left is extrapolated from it."""


class ProgressDisplay:
    """Shows progress from a thread of its own; a subclass provides the text. Its methods are thread-safe."""

    def __init__(self, visible: bool = True) -> None:
        self.visible = visible
        self.started = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def share(self) -> float | None:
        """Share of the work that is done; None if unknown."""
        raise NotImplementedError

    def parts(self) -> list[str]:
        """What is shown, the most important first."""
        raise NotImplementedError

    def text(self) -> str:
        """In one line, without control characters, which names from users' files may have."""
        return "".join(character if character.isprintable() else "?" for character in " · ".join(self.parts()))

    def time_left(self, share: float | None, since: float) -> list[str]:
        """The expected time left at the pace since a time, if enough is done to tell."""
        if share is None or not _MIN_SHARE_TO_EXTRAPOLATE <= share < 1:
            return []
        seconds = (time.monotonic() - since) * (1 - share) / share
        for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
            if seconds >= 1.5 * length:
                return [f"about {seconds / length:.0f} {unit} left"]
        return [f"about {seconds:.0f} s left"]

    def start(self) -> None:
        """Start showing progress, in a thread."""
        self.started = time.monotonic()
        if self.visible and sys.stderr is not None:
            terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
            show = self._show_bar if terminal else self._print_lines
            self._thread = threading.Thread(target=show, args=(sys.stderr,), name="run-progress", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop showing progress."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _show_bar(self, stream: TextIO) -> None:
        if not self._ended.wait(BAR_DELAY):
            from debate_judge.runs.runner.bar import progress_bar

            with progress_bar(stream, self.share, self.text):
                self._ended.wait()

    def _print_lines(self, stream: TextIO) -> None:
        delay = FIRST_LINE
        while not self._ended.wait(delay):
            print(time.strftime("%H:%M:%S"), self.text(), file=stream, flush=True)
            delay = LINE_INTERVAL


class StepProgress(ProgressDisplay):
    """Counts steps, of `total` if that is known; for a `with` statement."""

    def __init__(self, label: str, total: int | None) -> None:
        super().__init__()
        self.label, self.total, self.done = label, total, 0

    def advance(self, steps: int = 1) -> None:
        self.done += steps

    def track(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items and count each as a step."""
        for item in items:
            yield item
            self.advance()

    def share(self) -> float | None:
        return min(1.0, self.done / self.total) if self.total else None

    def parts(self) -> list[str]:
        counted = f"{self.label}: {self.done:,}" + (f" of {self.total:,}" if self.total else "")
        return [counted, *self.time_left(self.share(), self.started)]


@dataclass
class ItemPass:
    """A pass over items, in progress."""

    label: str
    phase: str
    """Its phase of the run, such as tuning or search; empty for runs of one phase."""
    total: int | None
    """Number of items, if it is known."""
    started: float
    done: int = 0

    def advance(self) -> None:
        self.done += 1

    def text(self) -> str:
        """What is done, and of how many items; the label alone where nothing is counted."""
        if self.total:
            return f"{self.label}: {self.done:,} of {self.total:,}"
        return f"{self.label}: {self.done:,}" if self.done else self.label


class RunProgress(ProgressDisplay):
    """Shows the progress of a run, with calls and money from the LM's meter. Its methods are thread-safe.

    How many passes a compile makes is not known before, so its bar shows the share of the phase's passes so far.
    """

    def __init__(self, lm: JudgeLM, visible: bool) -> None:
        super().__init__(visible)
        self.lm = lm
        self.best_value: float | None = None
        """Best value of the search so far, on train and dev."""
        self.objective = "agreement"
        """Name of that value."""
        self._passes: list[ItemPass] = []
        """Of the phase that began last, those that have ended included."""
        self._running: list[ItemPass] = []

    @contextmanager
    def track(self, label: str, total: int | None) -> Iterator[ItemPass]:
        """Show a pass over `total` items; None if the number is unknown."""
        stage = STAGE.get()
        # "ASPECT: PHASE, DETAIL" in a compile; other stages are names of judges.
        phase = stage.partition(": ")[2].partition(",")[0]
        item_pass = ItemPass(label, phase, total, time.monotonic())
        same_phase = phase and self._passes and self._passes[-1].phase == phase
        self._passes = [*(self._passes if same_phase else []), item_pass]
        self._running.append(item_pass)
        try:
            yield item_pass
        finally:
            self._running.remove(item_pass)

    def share(self) -> float | None:
        totals = [item_pass.total for item_pass in self._passes]
        known = sum(total for total in totals if total is not None)
        return min(1.0, self._done() / known) if known and None not in totals else None

    def _done(self) -> int:
        return sum(item_pass.done for item_pass in self._passes)

    def parts(self) -> list[str]:
        meter, passes = self.lm.meter, self._passes
        answered, cached = meter.executed.copy().total(), meter.total.cache_hits
        usd = sum(meter.cost(self.lm.price).values()) if self.lm.price is not None else 0.0
        phase = passes[-1].phase if passes else ""
        current = [p.text() for p in self._running[-1:]]
        time_left = [] if phase or not current else self.time_left(self.share(), self._running[-1].started)
        waiting = [f"waiting for the first reply of {self.lm.model}"]
        from_cache = f" ({cached:,} more from cache)" if cached else ""
        parts = [
            *(waiting if meter.requested and not (answered or cached) else []),
            *([phase] if phase else [*current, *time_left]),
            *([] if self.best_value is None else [f"{self.objective} so far {self.best_value:.2f}"]),
            f"{answered:,} LM calls{from_cache}" + (f", ${usd:.2f}" if usd else ""),
            *(current if phase else []),
        ]
        return parts if passes or meter.requested else ["loading the data"]
