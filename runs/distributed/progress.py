"""What a distributed run has done so far, and the line that says so."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter, Tokens
from debate_judge.runs.distributed.job import ActorNews, MeterCopy, PartDone
from debate_judge.runs.scoring.output import RowTotals

LINE_EVERY = 30.0
"""Seconds between two lines where there is no terminal."""
_WIDTH = 118


def add_rows(into: RowTotals, more: RowTotals) -> None:
    """Add what other parts hold."""
    into.rows += more.rows
    into.kept += more.kept
    into.unscored.update(more.unscored)
    for reason, example in more.examples.items():
        into.examples[reason] = into.examples.get(reason) or example


@dataclass
class _SliceState:
    rows: RowTotals = field(default_factory=RowTotals)
    parts: int = 0
    of: int | None = None
    failed: bool = False


@dataclass
class RunTotals:
    """What all actors have told.

    Args:
        size: Bytes of the input.
    """

    size: int
    rows: RowTotals = field(default_factory=RowTotals)
    meters: dict[str, MeterCopy] = field(default_factory=dict)
    """Lessee -> its latest counts; those of a dead one are kept."""
    memory: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)
    """What a user has to know of the reading."""
    told: set[str] = field(default_factory=set)
    """Of it, what was said already."""
    failure: tuple[int, str] | None = None
    refusals: int = 0
    _slices: dict[str, _SliceState] = field(default_factory=dict)
    _items: dict[str, int] = field(default_factory=dict)
    _read: float = 0.0
    """Bytes of text of the parts that are done."""

    def skip(self, rows: RowTotals, size: int) -> None:
        """Take in a slice that stood already."""
        add_rows(self.rows, rows)
        self._read += size

    def add(self, done: PartDone) -> RowTotals | None:
        """Take in what an actor says; returns the rows of a slice that it completes."""
        state = self._slices.setdefault(done.slice, _SliceState())
        self.errors += done.errors
        if done.notes:
            self.notes.add(done.notes)
        self.failure = self.failure or done.failure
        if done.meter is not None:
            self._count(done.lessee, done.meter)
        if done.parts is not None:
            state.of, state.failed = done.parts, state.failed or bool(done.errors)
        elif done.rows is None:
            state.failed = True
        else:
            add_rows(self.rows, done.rows)
            add_rows(state.rows, done.rows)
            state.parts += 1
            self._read += done.size
        return state.rows if state.of == state.parts and not state.failed else None

    def hear(self, news: Iterable[ActorNews]) -> None:
        """Take in what the ledger knows of the actors."""
        for one in news:
            self._count(one.lessee, one.meter)
            self._items[one.lessee] = one.items
            if one.memory:
                self.memory[one.lessee] = one.memory

    def _count(self, lessee: str, meter: MeterCopy) -> None:
        """Keep the later of two copies, which come by two ways."""
        known = self.meters.get(lessee)
        if known is None or known.asked.total() <= meter.asked.total():
            self.meters[lessee] = meter

    @property
    def items(self) -> int:
        """Items that this run has scored, those of unfinished parts included."""
        return max(sum(self._items.values()), self.rows.rows - self.rows.kept)

    @property
    def share(self) -> float:
        """Of the input, about: texts are smaller than the files that they are in."""
        return min(0.99, self._read / self.size) if self.size else 0.0

    def meter(self) -> Meter:
        """The counts of all actors together."""
        asked, executed, accounts = Counter[str](), Counter[str](), dict[tuple[str, int], Tokens]()
        for one in self.meters.values():
            asked.update(one.asked)
            executed.update(one.executed)
            for key, tokens in one.accounts.items():
                accounts[key] = accounts.get(key, Tokens()) + tokens
        return Meter(asked, executed, accounts)


class ProgressLine:
    """Says how far a run is: on a terminal in one line that changes, elsewhere in a line now and then.

    Args:
        price: Of the LM, if it is known.
        clock: Seconds.
    """

    def __init__(self, price: Price | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._price, self._clock = price, clock
        self._began = self._told = clock()
        self._terminal = sys.stderr.isatty()

    def show(self, totals: RunTotals) -> None:
        """Show it, if it is time."""
        now = self._clock()
        if self._terminal:
            print("\r" + self.text(totals)[:_WIDTH].ljust(_WIDTH), end="", file=sys.stderr, flush=True)
        elif now - self._told >= LINE_EVERY:
            self._told = now
            print(time.strftime("%H:%M:%S"), self.text(totals), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for other lines."""
        if self._terminal:
            print("\r" + " " * _WIDTH + "\r", end="", file=sys.stderr, flush=True)

    def text(self, totals: RunTotals) -> str:
        seconds = max(1e-9, self._clock() - self._began)
        rows, meter, share = totals.rows, totals.meter(), totals.share
        parts = [f"{totals.items:,} items scored, {totals.items / seconds:,.1f} a second"]
        if rows.kept:
            parts.append(f"{rows.kept:,} stood already")
        if rows.unscored:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in rows.unscored.most_common(3))
            parts.append(f"unscored: {reasons}")
        calls = f"{meter.executed.total():,} LM calls"
        if self._price is not None and (usd := sum(meter.cost(self._price).values())):
            calls += f", ${usd:.2f}"
        parts.append(calls)
        if totals.refusals:
            parts.append(f"{totals.refusals:,} refusals")
        if 0.02 <= share < 0.99 and not rows.kept:
            parts.append(f"about {share:.0%}, {_time(seconds * (1 - share) / share)} left")
        return " · ".join(parts)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
