"""The progress of a run on stderr: a bar on a terminal, else a line every half minute.

The shares of phases are planned before the lengths of debates are known, so totals are printed with "about".
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, TypeVar

from debate_judge.runs.runner.judge_usage import STAGE

if TYPE_CHECKING:
    from debate_judge.programs.lm.client import JudgeLM
    from debate_judge.runs.runner.bar import TerminalBar

T = TypeVar("T")

BAR_DELAY = 2.0
"""Seconds before a bar is drawn; shorter work needs none."""
LINE_INTERVAL = 30.0
"""Seconds between two lines if stderr is no terminal."""
_REDRAW_INTERVAL = 0.25
FIRST_REPLY_DELAY = 5.0
"""Seconds after the first call after which a missing first reply is reported."""
_MIN_SHARE_TO_EXTRAPOLATE = 0.05
"""Share of the work that must be done before the rest is extrapolated from it."""


class ProgressDisplay:
    """Shows progress from a thread of its own; a subclass provides the texts. Its methods are thread-safe."""

    def __init__(self, visible: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self.visible = visible
        self.clock = clock
        self.started = self._last_line_at = 0.0
        self._bar: TerminalBar | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def share(self) -> float | None:
        """Share of the work that is done, approximately; None if unknown."""
        raise NotImplementedError

    @property
    def has_content(self) -> bool:
        """Whether there is anything to show."""
        return True

    def summary(self) -> str:
        """The first line, most important part first."""
        raise NotImplementedError

    def detail(self) -> str:
        """The second line: current work; may be empty."""
        return ""

    def line(self) -> str:
        """Both in one line, without control characters, which names from users' files may have."""
        return _printable(" · ".join(filter(None, (self.summary(), self.detail()))))

    def needs_line_now(self) -> bool:
        """Whether to print a line before `LINE_INTERVAL` is over; true once."""
        return False

    def start(self) -> None:
        """Start showing progress, in a thread."""
        self.started = self._last_line_at = self.clock()
        if self.visible and sys.stderr is not None:
            self._thread = threading.Thread(target=self._watch, args=(sys.stderr,), name="run-progress", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop showing progress."""
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
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def tick(self, stream: TextIO, *, terminal: bool) -> None:
        """Draw the bar or print a line, if it is time to."""
        now = self.clock()
        if terminal:
            if now - self.started >= BAR_DELAY and self.has_content:
                self._draw(stream)
        elif self.needs_line_now() or now - self._last_line_at >= LINE_INTERVAL:
            self._last_line_at = now
            print(time.strftime("%H:%M:%S"), self.line(), file=stream, flush=True)

    def time_left(self, share: float, since: float | None = None) -> str:
        """The expected time left at the pace since the start, or since another time."""
        seconds = (self.clock() - (self.started if since is None else since)) * (1 - share) / share
        if seconds < 90:
            return f"about {seconds:.0f} s left"
        if seconds < 5400:
            return f"about {seconds / 60:.0f} min left"
        return f"about {seconds / 3600:.1f} h left" if seconds < 172_800 else f"about {seconds / 86_400:.1f} days left"

    def _watch(self, stream: TextIO) -> None:
        terminal = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        while not self._ended.wait(_REDRAW_INTERVAL if terminal else 1.0):
            try:
                self.tick(stream, terminal=terminal)
            except RuntimeError:
                # A dictionary grew during the iteration; the next tick reads it again.
                continue

    def _draw(self, stream: TextIO) -> None:
        if self._bar is None:
            from debate_judge.runs.runner.bar import TerminalBar

            self._bar = TerminalBar(stream)
        self._bar.draw(_printable(self.summary()), _printable(self.detail()), self.share)


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

    @property
    def share(self) -> float | None:
        return min(1.0, self.done / self.total) if self.total else None

    def summary(self) -> str:
        share = self.share
        text = f"{self.label}: {self.done:,}" + (f" of {self.total:,}" if self.total else "")
        return f"{text} · {self.time_left(share)}" if share else text


@dataclass(frozen=True)
class RunPhase:
    """A phase of a run, with its planned share of the work."""

    name: str
    """As it is shown; every `judge_usage.stage` that has this name as a part belongs to the phase."""
    share: float
    """Share of the work of the run."""
    passes: int
    """Expected number of passes over items."""


@dataclass
class ItemPass:
    """A pass over items, in progress."""

    label: str
    total: int | None
    started: float
    """When the pass began, by the display's clock."""
    calls_before: int
    """LM calls of the run before the pass."""
    usd_before: float
    done: int = 0

    def advance(self) -> None:
        self.done += 1

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


class RunProgress(ProgressDisplay):
    """Shows the progress of a run, with calls and money from the LM's meter. Its methods are thread-safe."""

    def __init__(self, lm: JudgeLM, visible: bool, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(visible, clock)
        self.lm = lm
        self.phases: Sequence[RunPhase] = ()
        self.best_value: float | None = None
        """Best value of the search so far, on train and dev."""
        self.objective = "agreement"
        """Name of that value."""
        self._passes: list[ItemPass] = []
        self._phase_index = 0
        self._finished = 0
        """Finished passes of this phase."""
        self._max_share = 0.0
        self._first_call_at: float | None = None
        self._waiting_reported = False

    @contextmanager
    def track(self, label: str, total: int | None) -> Iterator[ItemPass]:
        """Show a pass over `total` items; None if the number is unknown."""
        item_pass = ItemPass(label, total, self.clock(), *self._spent())
        self._enter_phase(STAGE.get())
        self._passes.append(item_pass)
        try:
            yield item_pass
        finally:
            self._passes.remove(item_pass)
            self._finished += 1

    def _enter_phase(self, stage: str) -> None:
        """Advance to the phase that a stage belongs to: the next one of this name, never an earlier one."""
        parts = [part.partition(",")[0] for part in stage.split(": ")]
        for number, phase in enumerate(self.phases[self._phase_index :], start=self._phase_index):
            if phase.name in parts:
                if number > self._phase_index:
                    self._phase_index, self._finished = number, 0
                return

    @property
    def share(self) -> float | None:
        """Share of the work that is done, approximately; None if unknown."""
        current = self._passes[-1].share if self._passes else 0.0
        if not self.phases:
            return current if any(item_pass.total for item_pass in self._passes) else None
        phase = self.phases[self._phase_index]
        done_of_phase = min(1.0, (self._finished + current) / max(1, phase.passes))
        done = sum(earlier.share for earlier in self.phases[: self._phase_index]) + phase.share * done_of_phase
        self._max_share = max(self._max_share, done / sum(each.share for each in self.phases))
        return self._max_share

    @property
    def has_content(self) -> bool:
        return bool(self._passes or self._phase_index or self.lm.meter.requested)

    def summary(self) -> str:
        parts = []
        if self.phases:
            parts.append(f"step {self._phase_index + 1} of {len(self.phases)}, {self.phases[self._phase_index].name}")
        if self.best_value is not None:
            parts.append(f"{self.objective} so far {self.best_value:.2f}")
        share = self.share
        reliable_share = share if share is not None and share >= _MIN_SHARE_TO_EXTRAPOLATE else None
        # Without phases, only the share of the pass that began last is known.
        measured_pass = None if self.phases or not self._passes else self._passes[-1]
        before = (measured_pass.calls_before, measured_pass.usd_before) if measured_pass else (0, 0.0)
        parts.append(self._cost_text(reliable_share, before))
        if (waited := self._seconds_waiting()) is not None:
            parts.insert(0, f"waiting for the first reply of {self.lm.model} ({waited:.0f} s)")
        elif reliable_share is not None and reliable_share < 1:
            parts.append(self.time_left(reliable_share, measured_pass.started if measured_pass else None))
        return " · ".join(parts)

    def detail(self) -> str:
        """The pass that began last."""
        if not self._passes:
            return ""
        last = self._passes[-1]
        return f"{last.label}: {last.done:,}" + (f" of {last.total:,}" if last.total else "")

    def _spent(self) -> tuple[int, float]:
        """Calls and US dollars so far."""
        meter, price = self.lm.meter, self.lm.price
        while True:
            try:
                return meter.executed.total(), sum(meter.cost(price).values()) if price is not None else 0.0
            except RuntimeError:
                # The event loop's thread has added a role meanwhile; read again.
                continue

    def _cost_text(self, share: float | None, before: tuple[int, float]) -> str:
        """Calls and money so far, and extrapolated if what was spent since `before` is `share` of the work."""
        calls, usd = self._spent()
        more = 0.0 if share is None else (1 - share) / share
        extrapolated = share is not None and calls > before[0]
        text = f"{calls:,} LM calls"
        text += f" of about {_rounded(calls + (calls - before[0]) * more):,}" if extrapolated else ""
        if usd:
            text += f", ${usd:.2f}" + (f" of about ${usd + (usd - before[1]) * more:.2f}" if extrapolated else "")
        return text

    def _seconds_waiting(self) -> float | None:
        """Seconds since the first call, if no reply has come within `FIRST_REPLY_DELAY`; else None."""
        meter = self.lm.meter
        if meter.executed.total() or meter.total.cache_hits or not meter.requested.total():
            self._first_call_at = None
            return None
        if self._first_call_at is None:
            self._first_call_at = self.clock()
        waited = self.clock() - self._first_call_at
        return waited if waited >= FIRST_REPLY_DELAY else None

    def needs_line_now(self) -> bool:
        """Whether the wait for the first reply is to be reported now."""
        if self._waiting_reported or self._seconds_waiting() is None:
            return False
        self._waiting_reported = True
        return True


def _rounded(calls: float) -> int:
    """Rounded to two digits, which is all that is known."""
    return int(float(f"{calls:.2g}"))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
