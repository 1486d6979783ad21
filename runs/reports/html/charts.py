"""Draws the charts of a report; their legends are text of the page, so that they wrap on a phone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    JudgesChart,
    RoundsChart,
    ScatterChart,
    SharesChart,
    Span,
)
from debate_judge.runs.reports.html.svg import GROUND, INK, MUTED, RULE, SERIES, inline, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AnyChart = RoundsChart | CostChart | JudgesChart | ScatterChart | SharesChart

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Of series, which then differ by more than their colours."""

_SYMBOLS = dict(zip(MARKERS, "●■▲◆▼✚✖", strict=True))

_WIDTH, _PAGE_WIDTH = 4.4, 11.0
"""Inches: at their natural size charts fit a phone, or the whole page; their texts are as large as the page's."""

_MOST_NAMED = 10
"""Points of a chart that can all have a number."""

_MOST_INTERVALS = 6
"""Lines of a chart that can all have intervals."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """What a mark of the chart means."""

    mark: str
    """A character like the marker, or a number that stands in the chart."""
    colour: str
    """A CSS colour."""
    text: str


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A chart as the page shows it."""

    title: str
    svg: str
    legend: tuple[LegendEntry, ...]
    caption: str
    wide: str = ""
    """The same as wide as the page, for screens that have the room."""
    kind: str = "chart"


def draw(chart: AnyChart, name: str) -> DrawnChart:
    """Draw any chart; `name` differs between the charts of a page."""
    if isinstance(chart, RoundsChart):
        return _rounds(chart, name)
    if isinstance(chart, CostChart):
        return _cost(chart, name)
    if isinstance(chart, JudgesChart):
        return _judges(chart, name)
    if isinstance(chart, ScatterChart):
        return _scatter(chart, name)
    return _shares(chart, name)


def _blank(
    height: float, *, width: float = _WIDTH, left: float = 0.5, bottom: float = 0.5, grid: str = "y"
) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; the sizes are inches, `left` and `bottom` the room for the labels of the axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, bottom / height, 1 - (left + 0.12) / width, 1 - (bottom + 0.12) / height))
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(MUTED)
    axes.tick_params(color=MUTED, labelcolor=INK)
    axes.grid(axis=grid, color=RULE, lw=0.8)  # type: ignore[arg-type]
    return figure, axes


def _look(number: int) -> tuple[str, str]:
    """Colour and marker of a series; the first 49 differ."""
    return SERIES[number % len(SERIES)], MARKERS[(number + number // len(SERIES)) % len(MARKERS)]


def _entry(number: int, text: str) -> LegendEntry:
    return LegendEntry(_SYMBOLS[_look(number)[1]], f"var(--series-{number % len(SERIES)})", text)


def _known(values: Sequence[Span]) -> list[tuple[int, float]]:
    return [(n, span.value) for n, span in enumerate(values) if span.value is not None]


def _intervals(values: Sequence[Span]) -> list[tuple[int, float, float]]:
    return [(n, s.low, s.high) for n, s in enumerate(values) if s.low is not None and s.high is not None]


def _rounds(chart: RoundsChart, name: str) -> DrawnChart:
    figure, axes = _blank(3.0)
    count = len(chart.series)
    legend = [_entry(i, series.name) for i, series in enumerate(chart.series)]
    for i, series in enumerate(chart.series):
        # Side by side, or the intervals would hide one another.
        shift = (i - (count - 1) / 2) * min(0.12, 0.6 / count)
        colour, marker = _look(i)
        known = _known(series.values)
        axes.plot([n + shift for n, _ in known], [v for _, v in known], marker, ls="-", color=colour, ms=5, lw=1.2)
        if count <= _MOST_INTERVALS or (chart.chosen is not None and chart.chosen[0] == series.name):
            spans = [
                (n + shift, s.low, s.high)
                for n, s in enumerate(series.values)
                if s.low is not None and s.high is not None
            ]
            axes.vlines(
                [x for x, _, _ in spans], [a for _, a, _ in spans], [b for _, _, b in spans], color=colour, lw=1
            )
        for n, value in known:
            if chart.chosen == (series.name, n):
                _ring(axes, n + shift, value)
    if chart.chosen is not None:
        legend.append(LegendEntry("◯", "currentColor", f"chosen: {chart.chosen[0]}, n = {chart.chosen[1]}"))
    axes.set_xticks(range(max((len(series.values) for series in chart.series), default=1)))
    axes.set_xlabel("rounds n (0 is a single call of the Scorer)", color=INK)
    svg = inline(figure, name, f"{chart.title}: {chart.measure} by number of rounds")
    which = "" if count <= _MOST_INTERVALS else " of the chosen line"
    return DrawnChart(chart.title, svg, tuple(legend), f"{chart.measure}; 95 % intervals{which}")


def _cost(chart: CostChart, name: str) -> DrawnChart:
    figure, axes = _blank(3.0, grid="both")
    x, y = [p.calls for p in chart.tried], [p.agreement for p in chart.tried]
    axes.plot(x, y, "o", ms=5, color=MUTED, alpha=0.5, ls="none")
    front = sorted(chart.front, key=_place)
    axes.plot([p.calls for p in front], [p.agreement for p in front], "o-", lw=1.0, ms=5, color=SERIES[0], zorder=3)
    others = [p for p in chart.tried if p not in front] if len(chart.tried) <= _MOST_NAMED else []
    legend = [] if others else [LegendEntry("●", "var(--muted)", f"tried: {len(chart.tried)}")]
    for number, point in enumerate([*front, *others], start=1):
        colours = (SERIES[0], "var(--series-0)") if point in front else (INK, "var(--muted)")
        # A front rises to the right: above left and below right are off the line, by turns for near neighbours.
        offset = (-7, 4) if number % 2 else (7, -12)
        axes.annotate(
            str(number), _place(point), offset, textcoords="offset points", ha="center", color=colours[0], zorder=4,
            fontsize=9,
        )  # fmt: skip
        legend.append(LegendEntry(str(number), colours[1], point.name))
    if chart.chosen is not None:
        _ring(axes, *_place(chart.chosen))
        legend.append(LegendEntry("◯", "currentColor", f"chosen: {chart.chosen.name}"))
    axes.margins(0.1)
    axes.set_xlabel("LM calls per item", color=INK)
    svg = inline(figure, name, f"{chart.title}: {chart.measure} against LM calls per item")
    which = "blue" if others else "numbered"
    return DrawnChart(chart.title, svg, tuple(legend), f"{chart.measure}; {which}: the Pareto front")


def _judges(chart: JudgesChart, name: str) -> DrawnChart:
    legend = [_entry(i, series.name) for i, series in enumerate(chart.series)]
    caption = f"{chart.measure}; 95 % intervals"
    if any(value is not None for value in chart.ceiling):
        legend.append(LegendEntry("┃", "var(--muted)", "the human ceiling: a rater with the mean of the others"))
    wide = _judges_svg(chart, f"{name}w", _PAGE_WIDTH)
    return DrawnChart(chart.title, _judges_svg(chart, name, _WIDTH), tuple(legend), caption, wide)


def _judges_svg(chart: JudgesChart, name: str, width: float) -> str:
    rows = [plain(row, 24) for row in chart.rows]
    count = len(chart.series)
    figure, axes = _blank(
        0.6 + 0.15 * len(rows) * (count + 1),
        width=width,
        left=0.3 + 0.075 * max(map(len, rows)),
        bottom=0.3,
        grid="x",
    )
    for y, value in enumerate(chart.ceiling):
        if value is not None:
            axes.vlines([value], [y - 0.46], [y + 0.46], color=MUTED, lw=2)
    for i, series in enumerate(chart.series):
        shift = (i - (count - 1) / 2) * 0.8 / (count + 0.5)
        colour, marker = _look(i)
        known = _known(series.values)
        axes.plot([v for _, v in known], [y + shift for y, _ in known], marker, ls="none", color=colour, ms=5)
        for y, low, high in _intervals(series.values):
            axes.hlines([y + shift], [low], [high], color=colour, lw=1.2)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    for y in range(1, len(rows)):
        axes.axhline(y - 0.5, color=RULE, lw=0.8)
    return inline(figure, name, f"{chart.title}: {chart.measure}")


def _scatter(chart: ScatterChart, name: str) -> DrawnChart:
    figure, axes = _blank(3.4, grid="both")
    spread = (chart.high - chart.low) * 0.012
    # Equal points lie beside each other, in the same way each time the page is made.
    dice = random.Random(0)
    x = [rating + dice.uniform(-spread, spread) for rating, _ in chart.points]
    scores = [score for _, score in chart.points]
    extent = chart.high - chart.low if chart.on_scale else (max(scores, default=1.0) - min(scores, default=0.0))
    y = [score + dice.uniform(-1, 1) * extent * 0.012 for score in scores]
    if chart.on_scale:
        axes.plot([chart.low, chart.high], [chart.low, chart.high], color=MUTED, lw=1, ls="--")
        pad = extent * 0.06
        axes.set_ylim(chart.low - pad, chart.high + pad)
        axes.set_xlim(chart.low - pad, chart.high + pad)
    axes.plot(x, y, "o", ms=4.5, ls="none", color=SERIES[0], alpha=0.55, mec=GROUND, mew=0.4)
    axes.set_xlabel("mean human rating", color=INK)
    axes.set_ylabel("score of the judge", color=INK, labelpad=2)
    shown = "" if chart.total == len(chart.points) else f", {len(chart.points)} of them drawn at random"
    line = "; dashed: score = rating" if chart.on_scale else "; the scores are not on the raters' scale"
    svg = inline(figure, name, f"{chart.title}: score of the judge against mean human rating")
    return DrawnChart(chart.title, svg, (), f"{chart.total:,} items{shown}, moved a little so that none hides{line}")


def _shares(chart: SharesChart, name: str) -> DrawnChart:
    figure, axes = _blank(2.4, bottom=0.3)
    middles = [(a + b) / 2 for a, b in zip(chart.edges, chart.edges[1:], strict=False)]
    width = (chart.edges[1] - chart.edges[0]) * 0.4
    axes.bar([m - width / 2 for m in middles], [100 * s for s in chart.ratings], width, color=MUTED)
    axes.bar([m + width / 2 for m in middles], [100 * s for s in chart.scores], width, color=SERIES[0])
    axes.set_ylabel("% of items", color=INK)
    if len(middles) <= 11:
        axes.set_xticks(middles, [f"{m:g}" for m in middles])
    legend = (LegendEntry("■", "var(--muted)", "mean human rating"), LegendEntry("■", "var(--series-0)", "judge"))
    svg = inline(figure, name, f"{chart.title}: spread of mean ratings and scores over the scale")
    return DrawnChart(chart.title, svg, legend, "")


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], "o", ms=12, mfc="none", mec=INK, mew=1.6, ls="none", zorder=5)


def _place(point: CostPoint) -> tuple[float, float]:
    return point.calls, point.agreement
