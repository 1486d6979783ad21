"""Three figures of a compile: agreement by rounds, held-out agreement by judge, agreement against cost.

Built on `matplotlib.figure.Figure` without pyplot, so nothing global is touched and any thread may draw. Colours
are those of Okabe and Ito, told apart with every kind of colour vision; series differ by marker as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from runs.report import basis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from data.agreement import Agreement, AgreementTable, Level, Statistic

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_GREY = "#9A9A9A"
_DPI = 140

CostPoint = tuple[float, float, str]
"""LM calls per item, agreement, what it is."""


def agreement_by_rounds(
    series: Mapping[str, Sequence[Agreement]],
    *,
    title: str,
    chosen: tuple[str, int] | None = None,
    note: str | None = None,
) -> Figure:
    """Draw dev agreement against the number of rounds n, one line with 95 % intervals per persona.

    Args:
        series: Persona -> agreement at n = 0, 1, …; undefined values are left out.
        title: Title of the figure.
        chosen: Persona and n of the choice, marked if it is on a line.
        note: A line under the figure, e.g. that the LM was a stand-in.
    """
    figure, axes = _figure(7.2, 4.2, title, note)
    looks = cycle(zip(_COLOURS, _MARKERS, strict=True))
    for i, (persona, agreements) in enumerate(series.items()):
        # Side by side, or the intervals would hide one another.
        shift = (i - (len(series) - 1) / 2) * min(0.12, 0.6 / len(series))
        colour, marker = next(looks)
        known = [(n + shift, a.value) for n, a in enumerate(agreements) if a.value is not None]
        axes.plot(
            [x for x, _ in known], [y for _, y in known], marker, ls="-", color=colour, ms=5, lw=1.2, label=persona
        )
        _intervals(axes, [(n + shift, a) for n, a in enumerate(agreements)], colour, vertical=True)
        for n, a in enumerate(agreements):
            if chosen == (persona, n) and a.value is not None:
                _ring(axes, n + shift, a.value)
    if chosen is not None:
        _name(axes, "o", f"chosen: {chosen[0]}, n = {chosen[1]}", mfc="none", mec="black", mew=1.6, ms=9)
    one = next((a for agreements in series.values() for a in agreements), None)
    axes.set_xlabel("rounds n (0 is a single call of the Scorer)")
    axes.set_ylabel("dev agreement" if one is None else f"dev {_basis(one)}")
    axes.set_xticks(range(max((len(agreements) for agreements in series.values()), default=1)))
    axes.grid(axis="y", color="#E4E4E4", lw=0.8)
    _legend(axes)
    return figure


def held_out_agreement(
    tables: Mapping[str, AgreementTable],
    statistic: Statistic,
    *,
    level: Level = "summary",
    note: str | None = None,
) -> Figure:
    """Draw held-out agreement of several judges with 95 % intervals, aspect by aspect and on average.

    Args:
        tables: Judge -> its agreement, in the order of the legend.
        statistic: Which correlation.
        level: At which level.
        note: A line under the figure.
    """
    aspects = list(dict.fromkeys(a for table in tables.values() for a in table.aspects))
    rows = [*aspects, "average"]
    figure, axes = _figure(7.2, 1.7 + 0.16 * len(rows) * (len(tables) + 1), "Held-out agreement with the raters", note)
    looks = cycle(zip(_COLOURS, _MARKERS, strict=True))
    for i, (judge, table) in enumerate(tables.items()):
        colour, marker = next(looks)
        shift = (i - (len(tables) - 1) / 2) * min(0.22, 0.7 / len(tables))
        cells = [table.aspects[a][level][statistic] if a in table.aspects else None for a in aspects]
        cells.append(table.average[level][statistic])
        placed = [(y + shift, a) for y, a in enumerate(cells) if a is not None]
        known = [(a.value, y) for y, a in placed if a.value is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], marker, ls="none", color=colour, label=judge)
        _intervals(axes, placed, colour, vertical=False)
    one = next(iter(tables.values())).aspects[aspects[0]][level][statistic]
    axes.set_xlabel(f"{_basis(one)}, 95 % intervals")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axhline(len(rows) - 1.5, color=_GREY, lw=0.8)
    axes.grid(axis="x", color="#E4E4E4", lw=0.8)
    _legend(axes)
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
    figure, axes = _figure(8.6, max(4.4, 1.2 + 0.2 * len(front)), title, note)
    axes.plot(
        [p[0] for p in points], [p[1] for p in points], "o", ms=4, color=_GREY, alpha=0.6, label="tried", ls="none"
    )
    ordered = sorted(front)
    axes.plot([p[0] for p in ordered], [p[1] for p in ordered], "o-", lw=1.0, ms=5, color=_COLOURS[0], zorder=3)
    for number, (calls, agreement, label) in enumerate(ordered, start=1):
        # A front rises to the right: above left and below right are off the line, by turns for near neighbours.
        place = (-8, 5) if number % 2 else (8, -12)
        axes.annotate(
            str(number), (calls, agreement), place, textcoords="offset points", ha="center", color=_COLOURS[0], zorder=4
        )
        _name(axes, f"${number}$", label, color=_COLOURS[0], ms=7, mew=0.3)
    _ring(axes, chosen[0], chosen[1])
    _name(axes, "o", f"chosen: {chosen[2]}", mfc="none", mec="black", mew=1.6, ms=9)
    axes.set_xlabel("LM calls per item")
    axes.set_ylabel(measure)
    axes.margins(0.1)
    axes.grid(color="#E4E4E4", lw=0.8)
    _legend(axes)
    return figure


def _figure(width: float, height: float, title: str, note: str | None) -> tuple[Figure, Axes]:
    # Importing matplotlib takes a second, which no command that draws nothing should pay.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if note is not None:
        figure.supxlabel(note, fontsize=8.5, style="italic", color="#444444", x=0.01, ha="left")
    return figure, axes


def _basis(agreement: Agreement) -> str:
    """Which correlation, where, over how many groups; those without one are in the number."""
    return f"{basis(agreement)}, {agreement.groups + agreement.undefined} groups"


def _intervals(axes: Axes, placed: Sequence[tuple[float, Agreement]], colour: str, *, vertical: bool) -> None:
    known = [(x, a.low, a.high) for x, a in placed if a.low is not None and a.high is not None]
    draw = axes.vlines if vertical else axes.hlines
    draw([x for x, _, _ in known], [low for _, low, _ in known], [high for _, _, high in known], color=colour, lw=1.1)


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], "o", ms=13, mfc="none", mec="black", mew=1.6, ls="none", zorder=5)


def _name(axes: Axes, marker: str, label: str, **look: Any) -> None:
    """An entry of the legend for what is drawn in parts."""
    axes.plot([], [], marker=marker, label=label, ls="none", **look)


def _legend(axes: Axes) -> None:
    # Beside the axes: inside, it would cover intervals sooner or later.
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5, borderaxespad=0.0)
