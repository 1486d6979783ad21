"""What a distributed run has done so far, and the line that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter, Tokens
from debate_judge.runs.distributed.job import ActorNews, MeterCopy, PartDone
from debate_judge.runs.runner.display import ProgressDisplay
from debate_judge.runs.scoring.output import RowTotals


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
    text: int = 0
    of: int | None = None
    failed: bool = False


@dataclass
class RunTotals:
    """What all actors have told.

    Args:
        sizes: Slice -> its bytes.
    """

    sizes: Mapping[str, int]
    rows: RowTotals = field(default_factory=RowTotals)
    meters: dict[str, MeterCopy] = field(default_factory=dict)
    """Actor -> its latest counts; those of a dead one are kept."""
    unread: int = 0
    """Places of the input that could not be read."""
    notes: set[str] = field(default_factory=set)
    """What a user has to know of the reading."""
    told: set[str] = field(default_factory=set)
    """Of it, what was said already."""
    failure: tuple[int, str] | None = None
    given_up: list[str] = field(default_factory=list)
    """Parts that have ended every process that began them."""
    _slices: dict[str, _SliceState] = field(default_factory=dict)
    _items: dict[str, int] = field(default_factory=dict)
    _text: int = 0
    """Bytes of text of the parts that are done."""
    _known: list[int] = field(default_factory=lambda: [0, 0])
    """Of the slices that are done: bytes of text, and bytes."""
    _new: list[int] = field(default_factory=lambda: [0, 0])
    """Rows that this run has made, and bytes of their texts."""
    _skipped: int = 0
    """Bytes of the slices that stood already."""

    def skip(self, name: str, rows: RowTotals) -> None:
        """Take in a slice that stood already."""
        add_rows(self.rows, rows)
        self._skipped += self.sizes[name]

    def add(self, done: PartDone) -> RowTotals | None:
        """Take in what an actor says; returns the rows of a slice that it completes."""
        state = self._slices.setdefault(done.slice, _SliceState())
        self.unread += done.unread
        if done.given_up:
            self.given_up.append(done.given_up)
        self.notes.update(done.notes)
        self.failure = self.failure or done.failure
        if done.meter is not None:
            self._count(done.actor, done.meter)
        if done.parts is not None:
            state.of, state.failed = done.parts, state.failed or done.unread > 0
        elif done.rows is None:
            state.failed = True
        else:
            add_rows(self.rows, done.rows)
            add_rows(state.rows, done.rows)
            state.parts += 1
            state.text += done.size
            self._text += done.size
            if not done.rows.kept:
                self._new[0] += done.rows.rows
                self._new[1] += done.size
        if state.of != state.parts or state.failed:
            return None
        self._known = [self._known[0] + state.text, self._known[1] + self.sizes[done.slice]]
        return state.rows

    def parts(self, name: str) -> int:
        """Parts of a slice that are done."""
        return self._slices[name].parts

    def hear(self, news: Iterable[ActorNews]) -> None:
        """Take in what the service knows of the actors."""
        for one in news:
            self._count(one.actor, one.meter)
            self._items[one.actor] = one.items

    def _count(self, actor: str, meter: MeterCopy) -> None:
        """Keep the later of two copies, which come by two ways."""
        known = self.meters.get(actor)
        if known is None or known.events <= meter.events:
            self.meters[actor] = meter

    @property
    def items(self) -> int:
        """Items that this run has scored, those of unfinished parts included."""
        return self.rows.rows - self.rows.kept + sum(self._items.values())

    @property
    def share(self) -> float:
        """Of what this run has to do, about; 0 where nothing is known of it.

        Items that are scored but in no part yet count by the mean text of one, and texts by the share that they have
        of files that are done; before one is, they are taken for all of it.
        """
        rows, text = self._new
        left = sum(self.sizes.values()) - self._skipped
        if not rows or left <= 0:
            return 0.0
        filled = self._known[0] / self._known[1] if self._known[1] and self._known[0] else 1.0
        return min(0.99, (self._text + (self.items - rows) * text / rows) / (left * filled))

    def meter(self) -> Meter:
        """The counts of all actors together."""
        asked, executed, accounts = Counter[str](), Counter[str](), dict[tuple[str, int], Tokens]()
        for one in self.meters.values():
            asked.update(one.asked)
            executed.update(one.executed)
            for key, tokens in one.accounts.items():
                accounts[key] = accounts.get(key, Tokens()) + tokens
        return Meter(asked, executed, accounts)


class DistributedProgress(ProgressDisplay):
    """Says how far a run on many machines is.

    Args:
        totals: What all actors have told.
        price: Of the LM, if it is known.
    """

    def __init__(self, totals: RunTotals, price: Price | None) -> None:
        super().__init__()
        self._totals, self._price = totals, price

    @property
    def share(self) -> float | None:
        return self._totals.share or None

    def summary(self) -> str:
        totals = self._totals
        rows, meter, share = totals.rows, totals.meter(), self.share
        speed = totals.items / max(1e-9, self.clock() - self.started)
        parts = [f"{totals.items:,} items scored, {speed:,.1f} a second"]
        if rows.kept:
            parts.append(f"{rows.kept:,} stood already")
        if rows.unscored:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in rows.unscored.most_common(3))
            parts.append(f"unscored: {reasons}")
        calls = f"{meter.executed.total():,} LM calls"
        if self._price is not None and (usd := sum(meter.cost(self._price).values())):
            calls += f", ${usd:.2f}"
        parts.append(calls)
        if share is not None and 0.02 <= share < 0.99:
            parts.append(f"about {100 * share:.0f} % done, {self.left(share)}")
        return " · ".join(parts)
