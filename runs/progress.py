"""The progress of a run on stderr: one bar on a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from debate_judge.programs.lm.engine import JudgeLM


BAR_DELAY = 2.0
"""Seconds before a bar is drawn; shorter work needs none."""
FIRST_LINE, LINE_INTERVAL = 5.0, 30.0
"""Seconds before the first line and between two lines if stderr is no terminal."""
_MIN_SHARE_TO_EXTRAPOLATE = 0.05
"""Share of the work that must be done before the time left is extrapolated from it."""


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


class RunProgress:
    """Shows the progress of a run from a thread of its own. Its methods are thread-safe.

    How many passes a compile makes is not known before, so its bar shows the share of the phase's passes so far.

    Args:
        lm: The LM whose calls and money are shown; None for work without calls.
        visible: Whether anything is shown.
    """

    def __init__(self, lm: JudgeLM | None = None, visible: bool = True) -> None:
        self.lm, self.visible = lm, visible
        self.best_value: float | None = None
        """Best value of the search so far, on train and dev."""
        self.objective = "agreement"
        """Name of that value."""
        self._passes: list[ItemPass] = []
        """Of the phase that began last, those that have ended included."""
        self._running: list[ItemPass] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def track(self, label: str, total: int | None) -> Iterator[ItemPass]:
        """Show a pass over `total` items; None if the number is unknown."""
        # "ASPECT: PHASE, DETAIL" in a compile; other stages are names of judges.
        phase = STAGE.get().partition(": ")[2].partition(",")[0]
        item_pass = ItemPass(label, phase, total, time.monotonic())
        same_phase = phase and self._passes and self._passes[-1].phase == phase
        self._passes = [*(self._passes if same_phase else []), item_pass]
        self._running.append(item_pass)
        try:
            yield item_pass
        finally:
            self._running.remove(item_pass)

    # --- what is shown ---

    def share(self) -> float | None:
        """Share of the work that is done; None if unknown."""
        totals = [item_pass.total for item_pass in self._passes]
        known = sum(total for total in totals if total is not None)
        done = sum(item_pass.done for item_pass in self._passes)
        return min(1.0, done / known) if known and None not in totals else None

    def text(self) -> str:
        """In one line, the most important first, without control characters, which names from files may have."""
        text = " · ".join(self._parts())
        return "".join(character if character.isprintable() else "?" for character in text)

    def _parts(self) -> list[str]:
        passes, current = self._passes, [p.text() for p in self._running[-1:]]
        phase = passes[-1].phase if passes else ""
        parts = [phase] if phase else [*current, *self._time_left()]
        if self.best_value is not None:
            parts.append(f"{self.objective} so far {self.best_value:.2f}")
        if self.lm is not None:
            meter, price = self.lm.meter, self.lm.price
            answered, cached = meter.executed.copy().total(), meter.total.cache_hits
            if not passes and not meter.requested:
                return ["loading the data"]
            if meter.requested and not (answered or cached):
                parts.insert(0, f"waiting for the first reply of {self.lm.model}")
            usd = 0.0 if price is None else sum(meter.cost(price).values())
            from_cache = f" ({cached:,} more from cache)" if cached else ""
            parts.append(f"{answered:,} LM calls{from_cache}" + (f", ${usd:.2f}" if usd else ""))
        return [*parts, *(current if phase else [])]

    def _time_left(self) -> list[str]:
        """The expected time left at the pace so far, if enough is done to tell."""
        share = self.share()
        if share is None or not self._running or not _MIN_SHARE_TO_EXTRAPOLATE <= share < 1:
            return []
        seconds = (time.monotonic() - self._running[-1].started) * (1 - share) / share
        for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
            if seconds >= 1.5 * length:
                return [f"about {seconds / length:.0f} {unit} left"]
        return [f"about {seconds:.0f} s left"]

    # --- the thread that shows it ---

    def start(self) -> None:
        """Start showing progress, in a thread."""
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
        """One line at the foot of the terminal; other output appears above it."""
        if self._ended.wait(BAR_DELAY):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        class BarConsole(Console):
            def show_cursor(self, show: bool = True) -> bool:
                # Never hidden: a run that is killed could not show it again.
                return False

        text = TextColumn("{task.description}", markup=False, table_column=Column(overflow="ellipsis", no_wrap=True))
        console = BarConsole(file=stream, force_terminal=True, markup=False, highlight=False, emoji=False)
        redirected = sys.stdout is not None and sys.stdout.isatty()
        with Progress(BarColumn(12), text, console=console, transient=True, redirect_stdout=redirected) as bar:
            shown = bar.add_task(self.text(), total=None)
            while not self._ended.wait(0.25):
                share = self.share()
                total = None if share is None else 1.0
                bar.update(shown, description=self.text(), completed=share or 0.0, total=total)

    def _print_lines(self, stream: TextIO) -> None:
        delay = FIRST_LINE
        while not self._ended.wait(delay):
            print(time.strftime("%H:%M:%S"), self.text(), file=stream, flush=True)
            delay = LINE_INTERVAL


STAGE: ContextVar[str] = ContextVar("stage", default="")
"""The stage of the run that calls belong to, e.g. `fluency: tuning`; estimates count calls by stage."""


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the calls of this block, and of the work that it submits to a `JudgeRunner`, for the stage `name`."""
    token = STAGE.set(name)
    try:
        yield
    finally:
        STAGE.reset(token)
