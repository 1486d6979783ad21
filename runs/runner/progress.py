"""What a run says on stderr about how far it is: one bar on a terminal, a line now and then elsewhere.

Shares of work are planned before anything is known of replies, so that what is expected is said with "about".
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from debate_judge.programs.lm.client import JudgeLM
from debate_judge.runs.runner.billing import STAGE

FIRST = 2.0
"""Seconds before a bar is drawn: what is over by then needs none."""
LINE_EVERY = 30.0
"""Seconds between two lines where there is no terminal."""
SILENCE = 5.0
"""Seconds without a first reply after which it is said that one is waited for."""
_EXTRAPOLATED_FROM = 0.05
"""Share of the work that must be done before what is left is estimated from it."""
_UNITS = 1000


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
    done: int = 0

    def advance(self) -> None:
        self.done += 1

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


@dataclass
class RunProgress:
    """Shows how far a run is. The methods may be called from any thread.

    Args:
        lm: Its meter tells calls and money.
        shown: Whether to show anything.
        clock: Seconds.
    """

    lm: JudgeLM
    shown: bool
    clock: Callable[[], float] = time.monotonic
    phases: Sequence[RunPhase] = ()
    agreement: float | None = None
    """Best so far, on what is chosen by."""
    _passes: list[ItemPass] = field(default_factory=list)
    _step: int = 0
    _finished: int = 0
    """Passes of this step that are over."""
    _furthest: float = 0.0
    _asked_at: float | None = None
    _waiting_told: bool = False
    _told_at: float = 0.0
    _bar: Any = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _started: float = 0.0

    def start(self) -> None:
        """Begin to show, from a thread of its own."""
        self._started = self._told_at = self.clock()
        if self.shown and sys.stderr is not None:
            self._thread = threading.Thread(target=self._watch, name="run-progress", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Show nothing any more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    @contextmanager
    def over(self, what: str, total: int | None) -> Iterator[ItemPass]:
        """Show a pass over items.

        Args:
            what: A few words.
            total: Number of items; None if unknown.
        """
        one = ItemPass(what, total)
        self._enter(STAGE.get())
        self._passes.append(one)
        try:
            yield one
        finally:
            self._passes.remove(one)
            self._finished += 1

    def _enter(self, stage: str) -> None:
        """Take in which step the calls of a stage belong to, of several of one name the next: none is gone back to."""
        parts = [part.partition(",")[0] for part in stage.split(": ")]
        for number, phase in enumerate(self.phases[self._step :], start=self._step):
            if phase.name in parts:
                if number > self._step:
                    self._step, self._finished = number, 0
                return

    @property
    def share(self) -> float:
        """Of the work that is done, about; 0 where nothing is known of it."""
        current = self._passes[-1].share if self._passes else 0.0
        if not self.phases:
            return current
        phase = self.phases[self._step]
        inside = min(1.0, (self._finished + current) / max(1, phase.passes))
        done = sum(one.share for one in self.phases[: self._step]) + phase.share * inside
        self._furthest = max(self._furthest, done / sum(one.share for one in self.phases))
        return self._furthest

    def line(self) -> str:
        """How far the run is, in one line, what matters most first."""
        now, parts = self.clock(), []
        if self.phases:
            parts.append(f"step {self._step + 1} of {len(self.phases)}, {self.phases[self._step].name}")
        if self.agreement is not None:
            parts.append(f"agreement so far {self.agreement:.2f}")
        share = self.share
        known = share >= _EXTRAPOLATED_FROM
        parts.append(self._spent(share if known else None))
        if (silent := self._waiting(now)) is not None:
            parts.insert(0, f"waiting for the first reply of {self.lm.model} ({silent:.0f} s)")
        elif known and share < 1:
            parts.append(f"about {_time((now - self._started) * (1 - share) / share)} left")
        if self._passes:
            # Last, for a narrow terminal cuts it off.
            last = self._passes[-1]
            parts.append(f"{last.what}: {last.done:,}" + (f" of {last.total:,}" if last.total else ""))
        return " · ".join(parts)

    def _spent(self, share: float | None) -> str:
        """Calls and money, with what they may come to."""
        meter = self.lm.meter
        calls, price = meter.executed.total(), self.lm.price
        text = f"{calls:,} LM calls" + (f" of about {_rounded(calls / share):,}" if share and calls else "")
        usd = sum(meter.cost(price).values()) if price is not None else 0.0
        if usd:
            text += f", ${usd:.2f}" + (f" of about ${usd / share:.2f}" if share else "")
        return text

    def _waiting(self, now: float) -> float | None:
        """Seconds since the first call, where no reply has come yet and some patience is over."""
        meter = self.lm.meter
        if meter.executed.total() or meter.total.cache_hits or not meter.asked.total():
            self._asked_at = None
            return None
        if self._asked_at is None:
            self._asked_at = now
        silent = now - self._asked_at
        return silent if silent >= SILENCE else None

    def _watch(self) -> None:
        terminal = sys.stderr.isatty()
        while not self._ended.wait(0.25 if terminal else 1.0):
            try:
                self.tick(sys.stderr, terminal=terminal)
            except RuntimeError:
                # The meter gained a role meanwhile; the next turn counts it.
                continue

    def tick(self, stream: TextIO, *, terminal: bool) -> None:
        """Show what there is to show now."""
        now = self.clock()
        if terminal:
            if now - self._started >= FIRST and (self._passes or self._step or self.lm.meter.asked):
                self._draw(stream)
            return
        waiting = self._waiting(now) is not None
        if (waiting and not self._waiting_told) or now - self._told_at >= LINE_EVERY:
            self._waiting_told = self._waiting_told or waiting
            self._told_at = now
            print(time.strftime("%H:%M:%S"), self.line(), file=stream, flush=True)

    def _draw(self, stream: TextIO) -> None:
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(total=_UNITS, file=stream, bar_format="{desc}", dynamic_ncols=True, leave=False)
        if self.phases or any(one.total for one in self._passes):
            self._bar.bar_format = "{percentage:3.0f}%|{bar:12}| {desc}"
        self._bar.n = int(_UNITS * self.share)
        self._bar.set_description_str(self.line())


def _rounded(calls: float) -> int:
    """To two digits: more would claim to know."""
    return int(float(f"{calls:.2g}"))


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
