"""The progress of a run on stderr: one bar on a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from debate_judge.programs.lm.engine import JudgeLM

STAGE: ContextVar[str] = ContextVar("stage", default="")
"""The stage of the run that calls belong to, e.g. `fluency: tuning`; estimates count calls by stage."""

BAR_DELAY = 2.0
"""Seconds before a bar is drawn; shorter work needs none."""
FIRST_LINE, LINE_INTERVAL = 5.0, 30.0
"""Seconds before the first line and between two lines if stderr is no terminal."""


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the calls of this block, and of the work that it submits to a `JudgeRunner`, for the stage `name`."""
    token = STAGE.set(name)
    try:
        yield
    finally:
        STAGE.reset(token)


@dataclass(eq=False)
class ItemPass:
    """A pass over items, in progress."""

    label: str
    phase: str
    """Its phase of the run, such as tuning or search; empty for runs of one phase."""
    total: int | None
    """Number of items, if it is known."""
    started: float = field(default_factory=time.monotonic)
    done: int = 0

    def advance(self) -> None:
        self.done += 1


class RunProgress:
    """Shows the progress of a run from a thread of its own. Its methods are thread-safe.

    How many passes a compile makes is not known before, so its bar shows the share of the phase's passes so far.

    Args:
        lm: The LM whose calls and money are shown; None for work without calls.
        visible: Whether anything is shown.
    """

    def __init__(self, lm: JudgeLM | None = None, visible: bool = True) -> None:
        self.lm = lm
        self.best_value: float | None = None
        """Best value of the search so far, on train and dev."""
        self.objective = "agreement"
        """Name of that value."""
        self._visible = visible
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
        item_pass = ItemPass(label, phase, total)
        same_phase = phase and self._passes and self._passes[-1].phase == phase
        self._passes = [*(self._passes if same_phase else []), item_pass]
        self._running.append(item_pass)
        try:
            yield item_pass
        finally:
            self._running.remove(item_pass)

    def _share(self) -> float | None:
        """Share of the work that is done; None if unknown."""
        totals = [item_pass.total for item_pass in self._passes]
        known = sum(total or 0 for total in totals)
        return min(1.0, sum(item_pass.done for item_pass in self._passes) / known) if known and all(totals) else None

    def text(self) -> str:
        """In one line, the most important first, without control characters, which names from files may have."""
        passes, meter = self._passes, None if self.lm is None else self.lm.meter
        if meter is not None and not passes and not meter.requested:
            return "loading the data"
        phase = passes[-1].phase if passes else ""
        current = [self._current(item_pass, bool(phase)) for item_pass in self._running[-1:]]
        parts = [phase] if phase else current
        if self.best_value is not None:
            parts = [*parts, f"{self.objective} so far {self.best_value:.2f}"]
        if self.lm is not None and meter is not None:
            answered, cached = meter.executed.copy().total(), meter.total.cache_hits
            if meter.requested and not (answered or cached):
                parts = [f"waiting for the first reply of {self.lm.model}", *parts]
            usd = 0.0 if self.lm.price is None else sum(meter.cost(self.lm.price).values())
            from_cache, dollars = f" ({cached:,} more from cache)" if cached else "", f", ${usd:.2f}" if usd else ""
            parts = [*parts, f"{answered:,} LM calls{from_cache}{dollars}"]
        text = " · ".join([*parts, *(current if phase else [])])
        return "".join(character if character.isprintable() else "?" for character in text)

    def _current(self, item_pass: ItemPass, of_phase: bool) -> str:
        """What is done of a pass, and of how many items; where it is the whole work also the expected time left."""
        done, total, share = item_pass.done, item_pass.total, self._share()
        text = item_pass.label
        if done or total:
            text += f": {done:,}" + (f" of {total:,}" if total else "")
        # Of the first items the pace is not known yet.
        if of_phase or share is None or not 0.05 <= share < 1:
            return text
        left = timedelta(seconds=round((time.monotonic() - item_pass.started) * (1 - share) / share))
        return f"{text} · about {left} left"

    # --- the thread that shows it ---

    def __enter__(self) -> Self:
        if self._visible and sys.stderr is not None:
            terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
            show = self._show_bar if terminal else self._print_lines
            self._thread = threading.Thread(target=show, args=(sys.stderr,), name="run-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

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
                share = self._share()
                bar.update(shown, description=self.text(), completed=share or 0.0, total=None if share is None else 1.0)

    def _print_lines(self, stream: TextIO) -> None:
        delay = FIRST_LINE
        while not self._ended.wait(delay):
            print(time.strftime("%H:%M:%S"), self.text(), file=stream, flush=True)
            delay = LINE_INTERVAL
