"""Three figures of a compile: agreement by rounds, held-out agreement by judge, agreement against cost.

How they look is said in `runs.reports.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from debate_judge.runs.reports.drawing import COLOURS, GREY, blank, entry, grid, intervals, legend, looks, ring
from debate_judge.runs.reports.text import basis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from debate_judge.data.agreement.tables import Agreement, AgreementTable, Level, Statistic

CostPoint = tuple[float, float, str]
"""LM calls per item, agreement, what it is."""


def agreement_by_rounds(
    series: Mapping[str, Sequence[Agreement]],
    *,
    title: str,
    chosen: tuple[str, int] | None = None,
    part: str = "dev",
    note: str | None = None,
) -> Figure:
    """Draw agreement against the number of rounds n, one line with 95 % intervals per series, e.g. per persona.

    Args:
        series: Persona -> agreement at n = 0, 1, …; undefined values are left out.
        title: Title of the figure.
        chosen: Persona and n of the choice, marked if it is on a line.
        part: Of the data.
        note: A line under the figure, e.g. that the LM was a stand-in.
    """
    figure, axes = blank(7.2, 4.2, title, note)
    for persona, shift in _lines(axes, series).items():
        for n, a in enumerate(series[persona]):
            if chosen == (persona, n) and a.value is not None:
                ring(axes, n + shift, a.value)
    if chosen is not None:
        entry(axes, "o", f"chosen: {chosen[0]}, n = {chosen[1]}", mfc="none", mec="black", mew=1.6, ms=9)
    one = next((a for agreements in series.values() for a in agreements), None)
    axes.set_xlabel("rounds n (0 is a single call of the Scorer)")
    axes.set_ylabel(f"{part} agreement" if one is None else f"{part} {_basis(one)}")
    axes.set_xticks(range(max((len(agreements) for agreements in series.values()), default=1)))
    grid(axes, "y")
    legend(axes)
    return figure


def agreement_by_sources(
    series: Mapping[str, Sequence[Agreement]], sources: Sequence[int], *, title: str, note: str | None = None
) -> Figure:
    """Draw held-out agreement against the number of train sources learnt from, one line with intervals per series.

    Args:
        series: Aspect -> agreement after each step; undefined values are left out.
        sources: Of the steps; they are drawn at equal distances, for each is about twice the one before.
        title: Title of the figure.
        note: A line under the figure.
    """
    figure, axes = blank(7.2, 4.2, title, note)
    _lines(axes, series)
    one = next((a for agreements in series.values() for a in agreements), None)
    axes.set_xlabel("train sources learnt from")
    axes.set_ylabel("held-out agreement" if one is None else f"held-out {_basis(one)}")
    axes.set_xticks(range(len(sources)), [str(size) for size in sources])
    grid(axes, "y")
    legend(axes)
    return figure


def held_out_agreement(
    tables: Mapping[str, AgreementTable],
    statistic: Statistic,
    *,
    level: Level = "summary",
    title: str = "Held-out agreement with the raters",
    note: str | None = None,
) -> Figure:
    """Draw agreement of several judges with 95 % intervals, aspect by aspect and on average.

    Args:
        tables: Judge -> its agreement, in the order of the legend.
        statistic: Which correlation.
        level: At which level.
        title: Title of the figure.
        note: A line under the figure.
    """
    aspects = list(dict.fromkeys(a for table in tables.values() for a in table.aspects))
    # One aspect is its own average.
    rows = [*aspects, *(["average"] if len(aspects) > 1 else [])]
    figure, axes = blank(7.2, 1.7 + 0.16 * len(rows) * (len(tables) + 1), title, note)
    styles = looks()
    for i, (judge, table) in enumerate(tables.items()):
        colour, marker = next(styles)
        shift = (i - (len(tables) - 1) / 2) * min(0.22, 0.7 / len(tables))
        cells = [table.aspects[a][level][statistic] if a in table.aspects else None for a in aspects]
        cells += [table.average[level][statistic] for _ in rows[len(aspects) :]]
        placed = [(y + shift, a) for y, a in enumerate(cells) if a is not None]
        known = [(a.value, y) for y, a in placed if a.value is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], marker, ls="none", color=colour, label=judge)
        intervals(axes, placed, colour, vertical=False)
    one = next(iter(tables.values())).aspects[aspects[0]][level][statistic]
    axes.set_xlabel(f"{_basis(one)}, 95 % intervals")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if len(rows) > 1:
        axes.axhline(len(rows) - 1.5, color=GREY, lw=0.8)
    grid(axes, "x")
    legend(axes)
    return figure


def pareto(
    points: Sequence[CostPoint],
    front: Sequence[CostPoint],
    chosen: CostPoint,
    *,
    title: str,
    measure: str = "dev agreement",
    note: str | None = None,
) -> Figure:
    """Draw what was tried: agreement against LM calls per item, with the Pareto front numbered and named.

    Args:
        points: Everything that was evaluated.
        front: The points that no other beats in both agreement and calls.
        chosen: The point that was taken; it need not lie on the front.
        title: Title of the figure.
        measure: What the agreement is.
        note: A line under the figure.
    """
    figure, axes = blank(8.6, max(4.4, 1.2 + 0.2 * len(front)), title, note)
    axes.plot(
        [p[0] for p in points], [p[1] for p in points], "o", ms=4, color=GREY, alpha=0.6, label="tried", ls="none"
    )
    ordered = sorted(front)
    axes.plot([p[0] for p in ordered], [p[1] for p in ordered], "o-", lw=1.0, ms=5, color=COLOURS[0], zorder=3)
    for number, (calls, agreement, label) in enumerate(ordered, start=1):
        # A front rises to the right: above left and below right are off the line, by turns for near neighbours.
        place = (-8, 5) if number % 2 else (8, -12)
        axes.annotate(
            str(number), (calls, agreement), place, textcoords="offset points", ha="center", color=COLOURS[0], zorder=4
        )
        entry(axes, f"${number}$", label, color=COLOURS[0], ms=7, mew=0.3)
    ring(axes, chosen[0], chosen[1])
    entry(axes, "o", f"chosen: {chosen[2]}", mfc="none", mec="black", mew=1.6, ms=9)
    axes.set_xlabel("LM calls per item")
    axes.set_ylabel(measure)
    axes.margins(0.1)
    grid(axes, "both")
    legend(axes)
    return figure


def _lines(axes: Axes, series: Mapping[str, Sequence[Agreement]]) -> dict[str, float]:
    """Draw a line with 95 % intervals for each series; returns by how much each is moved aside, or the intervals would
    hide one another."""
    shifts: dict[str, float] = {}
    styles = looks()
    for i, (name, agreements) in enumerate(series.items()):
        shift = shifts[name] = (i - (len(series) - 1) / 2) * min(0.12, 0.6 / len(series))
        colour, marker = next(styles)
        known = [(n + shift, a.value) for n, a in enumerate(agreements) if a.value is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], marker, ls="-", color=colour, ms=5, lw=1.2, label=name)
        intervals(axes, [(n + shift, a) for n, a in enumerate(agreements)], colour, vertical=True)
    return shifts


def _basis(agreement: Agreement) -> str:
    """Which correlation, where, over how many groups; those without one are in the number."""
    return f"{basis(agreement)}, {agreement.groups + agreement.undefined} groups"
