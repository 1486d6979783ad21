"""What a distributed run has done so far, and the line that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter, Tokens
from debate_judge.runs.distributed.actor import ActorReport, UnitDone
from debate_judge.runs.runner.display import ProgressDisplay
from debate_judge.runs.scoring.output import RowTotals


def add_rows(into: RowTotals, more: RowTotals) -> None:
    """Add what other units hold."""
    into.rows += more.rows
    into.kept += more.kept
    into.unscored.update(more.unscored)
    for reason, example in more.examples.items():
        into.examples[reason] = into.examples.get(reason) or example


@dataclass
class RunTotals:
    """What all actors have done.

    Args:
        sizes: Unit that is to be scored -> its bytes.
    """

    sizes: Mapping[str, int]
    rows: RowTotals = field(default_factory=RowTotals)
    """Of all units that are done, those of earlier runs included."""
    meters: dict[str, Meter] = field(default_factory=dict)
    """Actor -> its latest counts; those of a dead one are kept."""
    reported: set[str] = field(default_factory=set)
    """What the user was told of the reading."""
    unread: int = 0
    """Places of the input that could not be read."""
    failure: tuple[int, str] | None = None
    given_up: list[str] = field(default_factory=list)
    """Units that have ended every process that began them."""
    done: set[str] = field(default_factory=set)
    at: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Actor -> items of the units that it is at."""

    def add(self, one: UnitDone) -> list[str]:
        """Take in what has become of a unit; returns what the user has to be told of it."""
        self.failure = self.failure or one.failure
        if one.rows is not None:
            self.done.add(one.unit)
            add_rows(self.rows, one.rows)
        # All units of a table that lie behind its bad row report that row.
        again = self.reported.intersection(one.errors)
        self.unread += one.unread - len(again)
        new = [text for text in (*one.errors, one.notes) if text and text not in self.reported]
        self.reported.update(new)
        return [text if text == one.notes else f"error: {text}" for text in new]

    def report(self, actor: str, report: ActorReport) -> None:
        """Take in what an actor has done so far."""
        self.meters[actor], self.at[actor] = report.meter, report.items

    @property
    def items(self) -> int:
        """Items that this run has scored, those of unfinished units included."""
        at = [one for units in self.at.copy().values() for one in units.items()]
        return self.rows.rows - self.rows.kept + sum(items for name, items in at if name not in self.done)

    @property
    def share(self) -> float:
        """Of the bytes that this run has to score, those of finished units."""
        return sum(self.sizes[name] for name in self.done) / max(1, sum(self.sizes.values()))

    def meter(self) -> Meter:
        """The counts of all actors together."""
        asked, executed, accounts = Counter[str](), Counter[str](), dict[tuple[str, int], Tokens]()
        for one in self.meters.copy().values():
            asked.update(one.asked)
            executed.update(one.executed)
            for key, tokens in one.accounts.items():
                accounts[key] = accounts.get(key, Tokens()) + tokens
        return Meter(asked, executed, accounts)


class DistributedProgress(ProgressDisplay):
    """Says how far a run on many machines is.

    Args:
        totals: What all actors have done.
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
            parts.append(f"{rows.kept:,} were there already")
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
