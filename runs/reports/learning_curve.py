"""A learning curve as a table and in words. Only renders; computes no result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from debate_judge.data.agreement.tables import AgreementTable, Difference, Level, Statistic
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, power_text


class CurveStep(Protocol):
    """The judge's held-out agreement after learning from a number of sources."""

    @property
    def sources(self) -> int: ...
    @property
    def table(self) -> AgreementTable: ...
    @property
    def difference(self) -> Difference | None: ...


def table(steps: Sequence[CurveStep], level: Level, statistic: Statistic) -> DataTable:
    """A row for each step, from 0 sources to all of train; level and statistic are those of the agreement."""
    aspects, rows = list(steps[0].table.aspects), []
    for step in steps:
        cells = [agreement[level][statistic] for agreement in step.table.aspects.values()]
        cells += [step.table.average[level][statistic]] if len(cells) > 1 else []
        rows.append([str(step.sources), *map(interval, cells), interval(step.difference)])
    header = ["train sources", *aspects, *(["average"] if len(aspects) > 1 else []), "minus the step before"]
    title = "Learning curve: held-out agreement of the chosen judge after learning from so many train sources, all else"
    return DataTable(header, rows, f"{title} held fixed")


def other_judge_note(aspects: Sequence[str]) -> str:
    """A note on aspects in which the judge of the curve is not the chosen one."""
    return (
        f"The chosen judge of {', '.join(aspects)} uses nothing learnt about the raters; the judge of this curve does."
    )


def summary_text(steps: Sequence[CurveStep]) -> str:
    """Whether more ratings would pay, by the last step of the curve."""
    before, last = steps[-2:]
    change = last.difference
    if change is None or change.value is None or change.low is None or change.high is None:
        return "Would more ratings pay? Unknown: the last step has no interval."
    step = f"from {before.sources} to {last.sources} sources agreement changes by {interval(change)}"
    if change.low > 0:
        answer = f"It seems so: {step}."
    elif change.high < 0:
        answer = f"It does not seem so: {step}."
    else:
        power = power_text(change)
        answer = f"These sources cannot tell: {step}" + (f"; {power}." if power else ".")
    return f"Would more ratings pay? {answer}"
