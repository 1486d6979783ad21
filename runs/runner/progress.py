"""How far a run is, and how that is shown on stderr: one bar on a terminal, a line now and then elsewhere.

Shares of work are planned before anything is known of replies, so that what is expected is said with "about".
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

from debate_judge.runs.runner.billing import STAGE

if TYPE_CHECKING:
    from debate_judge.programs.lm.client import JudgeLM
    from debate_judge.runs.runner.bar import TerminalBar

T = TypeVar("T")

BAR_DELAY = 2.0
"""Seconds before a bar is drawn: what is over by then needs none."""
LINE_INTERVAL = 30.0
"""Seconds between two lines where there is no terminal."""
_REDRAW_INTERVAL = 0.25
FIRST_REPLY_DELAY = 5.0
"""Seconds without a first reply after which it is said that one is waited for."""
_MIN_SHARE_TO_EXTRAPOLATE = 0.05
"""Share of the work that must be done before what is left is estimated from it."""


class ProgressDisplay:
    """Shows how far something is; what it shows is said by a subclass, whose methods any thread may call."""

    def __init__(self, visible: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self.visible = visible
        self.clock = clock
        self.started = self._last_line_at = 0.0
        self._bar: TerminalBar | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def share(self) -> float | None:
        """Of the work that is done, about; None where nothing is known of it."""
        raise NotImplementedError

    @property
    def has_content(self) -> bool:
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

    def needs_line_now(self) -> bool:
        """Whether there is something to say that the next line in turn would say too late; true once."""
        return False

    def start(self) -> None:
        """Begin to show, from a thread of its own."""
        self.started = self._last_line_at = self.clock()
        if self.visible and sys.stderr is not None:
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
            if now - self.started >= BAR_DELAY and self.has_content:
                self._draw(stream)
        elif self.needs_line_now() or now - self._last_line_at >= LINE_INTERVAL:
            self._last_line_at = now
            print(time.strftime("%H:%M:%S"), self.line(), file=stream, flush=True)

    def time_left(self, share: float, since: float | None = None) -> str:
        """How long the rest takes at the pace since the beginning, or since another time."""
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

    def track(self, things: Iterable[T]) -> Iterator[T]:
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
        return f"{text} · {self.time_left(share)}" if share else text


@dataclass(frozen=True)
class RunPhase:
    """A part of a run that is planned."""

    name: str
    """As it is shown; calls of a `billing.stage` whose name has it as its last part belong to it."""
    share: float
    """Of the work of the whole run."""
    passes: int
    """Over items, about."""


@dataclass
class ItemPass:
    """Items that are worked on."""

    what: str
    total: int | None
    started: float
    """Seconds of the display's clock."""
    calls_before: int
    """That the run had made before."""
    usd_before: float
    done: int = 0

    def advance(self) -> None:
        self.done += 1

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


class RunProgress(ProgressDisplay):
    """Shows how far a run is, calls and money by the LM's meter. The methods may be called from any thread."""

    def __init__(self, lm: JudgeLM, visible: bool, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(visible, clock)
        self.lm = lm
        self.phases: Sequence[RunPhase] = ()
        self.agreement: float | None = None
        """Best so far, on what is chosen by."""
        self.objective = "agreement"
        """What that is."""
        self._passes: list[ItemPass] = []
        self._step = 0
        self._finished = 0
        """Passes of this step that are over."""
        self._max_share = 0.0
        self._first_call_at: float | None = None
        self._waiting_reported = False

    @contextmanager
    def track(self, what: str, total: int | None) -> Iterator[ItemPass]:
        """Show a pass over so many items, if their number is known."""
        item_pass = ItemPass(what, total, self.clock(), *self._spent())
        self._enter_phase(STAGE.get())
        self._passes.append(item_pass)
        try:
            yield item_pass
        finally:
            self._passes.remove(item_pass)
            self._finished += 1

    def _enter_phase(self, stage: str) -> None:
        """Take in which step the calls of a stage belong to, of several of one name the next: none is gone back to."""
        parts = [part.partition(",")[0] for part in stage.split(": ")]
        for number, phase in enumerate(self.phases[self._step :], start=self._step):
            if phase.name in parts:
                if number > self._step:
                    self._step, self._finished = number, 0
                return

    @property
    def share(self) -> float | None:
        """Of the work that is done, about; None where nothing is known of it."""
        current = self._passes[-1].share if self._passes else 0.0
        if not self.phases:
            return current if any(part.total for part in self._passes) else None
        phase = self.phases[self._step]
        inside = min(1.0, (self._finished + current) / max(1, phase.passes))
        done = sum(part.share for part in self.phases[: self._step]) + phase.share * inside
        self._max_share = max(self._max_share, done / sum(part.share for part in self.phases))
        return self._max_share

    @property
    def has_content(self) -> bool:
        return bool(self._passes or self._step or self.lm.meter.requested)

    def summary(self) -> str:
        parts = []
        if self.phases:
            parts.append(f"step {self._step + 1} of {len(self.phases)}, {self.phases[self._step].name}")
        if self.agreement is not None:
            parts.append(f"{self.objective} so far {self.agreement:.2f}")
        share = self.share
        reliable_share = share if share is not None and share >= _MIN_SHARE_TO_EXTRAPOLATE else None
        # Phases are shares of the whole run; without them nothing is known but of the pass that began last.
        only_pass = None if self.phases or not self._passes else self._passes[-1]
        parts.append(self._cost_text(reliable_share, (only_pass.calls_before, only_pass.usd_before) if only_pass else (0, 0.0)))
        if (waited := self._seconds_waiting()) is not None:
            parts.insert(0, f"waiting for the first reply of {self.lm.model} ({waited:.0f} s)")
        elif reliable_share is not None and reliable_share < 1:
            parts.append(self.time_left(reliable_share, only_pass.started if only_pass else None))
        return " · ".join(parts)

    def detail(self) -> str:
        """The pass that began last."""
        if not self._passes:
            return ""
        last = self._passes[-1]
        return f"{last.what}: {last.done:,}" + (f" of {last.total:,}" if last.total else "")

    def _spent(self) -> tuple[int, float]:
        """Calls and US dollars so far."""
        meter, price = self.lm.meter, self.lm.price
        while True:
            try:
                return meter.executed.total(), sum(meter.cost(price).values()) if price is not None else 0.0
            except RuntimeError:
                # The loop's thread has added a role meanwhile; a pass must begin all the same.
                continue

    def _cost_text(self, share: float | None, before: tuple[int, float]) -> str:
        """Calls and money, with what they may come to if what was spent since `before` is `share` of what will be."""
        calls, usd = self._spent()
        more = 0.0 if share is None else (1 - share) / share
        extrapolated = share is not None and calls > before[0]
        text = f"{calls:,} LM calls"
        text += f" of about {_rounded(calls + (calls - before[0]) * more):,}" if extrapolated else ""
        if usd:
            text += f", ${usd:.2f}" + (f" of about ${usd + (usd - before[1]) * more:.2f}" if extrapolated else "")
        return text

    def _seconds_waiting(self) -> float | None:
        """Seconds since the first call, where no reply has come yet and some patience is over."""
        meter = self.lm.meter
        if meter.executed.total() or meter.total.cache_hits or not meter.requested.total():
            self._first_call_at = None
            return None
        if self._first_call_at is None:
            self._first_call_at = self.clock()
        waited = self.clock() - self._first_call_at
        return waited if waited >= FIRST_REPLY_DELAY else None

    def needs_line_now(self) -> bool:
        """Whether the first reply has just begun to be waited for."""
        if self._waiting_reported or self._seconds_waiting() is None:
            return False
        self._waiting_reported = True
        return True


def _rounded(calls: float) -> int:
    """To two digits: more would claim to know."""
    return int(float(f"{calls:.2g}"))


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)
