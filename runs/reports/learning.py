"""A learning curve as a table and in words. Only renders; every number comes in finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from debate_judge.data.agreement.tables import AgreementTable, Difference, Level, Statistic
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import Printed
from debate_judge.runs.reports.text import interval, power_text

TITLE = (
    "Learning curve: held-out agreement of the chosen judge after learning from so many train sources, all else held "
    "fixed"
)


class CurveStep(Protocol):
    """What a judge does after learning from so many sources."""

    @property
    def sources(self) -> int: ...
    @property
    def table(self) -> AgreementTable: ...
    @property
    def difference(self) -> Difference | None: ...


def render(steps: Sequence[CurveStep], level: Level, statistic: Statistic, added: Sequence[str]) -> list[Printed]:
    """The table under its title, and what the last step says.

    Args:
        steps: From nothing learnt to everything learnt.
        level: Of the agreement.
        statistic: Its correlation.
        added: Aspects whose chosen judge knows nothing of the raters.
    """
    shown = DataTable(header(steps), rows(steps, level, statistic))
    return [TITLE, "", shown, in_words(steps), *([unlearnt(added)] if added else [])]


def header(steps: Sequence[CurveStep]) -> tuple[str, ...]:
    """Of the table."""
    aspects = list(steps[0].table.aspects)
    return ("train sources", *aspects, *(["average"] if len(aspects) > 1 else []), "minus the step before")


def rows(steps: Sequence[CurveStep], level: Level, statistic: Statistic) -> list[tuple[str, ...]]:
    """One per step, under `header`."""
    found = []
    for step in steps:
        cells = [table[level][statistic] for table in step.table.aspects.values()]
        if len(cells) > 1:
            cells.append(step.table.average[level][statistic])
        minus = "–" if step.difference is None else interval(step.difference)
        found.append((str(step.sources), *map(interval, cells), minus))
    return found


def unlearnt(aspects: Sequence[str]) -> str:
    """Where the judge of the curve is not the chosen one."""
    return f"As chosen, the judge of {', '.join(aspects)} knows nothing of the raters; here it does."


def in_words(steps: Sequence[CurveStep]) -> str:
    """Whether more ratings would pay, as far as the last step tells."""
    before, last = steps[-2:]
    found = last.difference
    if found is None or found.value is None or found.low is None or found.high is None:
        return "Would more ratings pay? Nothing can be said."
    step = f"from {before.sources} to {last.sources} sources agreement changes by {interval(found)}"
    if found.low > 0:
        answer = f"It seems so: {step}."
    elif found.high < 0:
        answer = f"It does not seem so: {step}."
    else:
        power = power_text(found)
        answer = f"These sources cannot tell: {step}" + (f"; {power}." if power else ".")
    return f"Would more ratings pay? {answer}"
