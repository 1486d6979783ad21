"""Draws the four kinds of charts of a report as SVG in the colours of the page, which follow light and dark.

Series differ by marker as well as by colour. Legends are HTML, so that they wrap on a phone.
"""

from __future__ import annotations

import html
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

_WIDTH, _RIGHT, _TOP, _CHARACTER = 440.0, 12.0, 8.0, 6.4
"""Width of a chart, its margins, and the width of a character, in the units of the SVG."""

_SERIES = 7
"""Number of `--series-N` colours in the page's style."""

_MARKS = {
    "●": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
    "■": "M-3.6,-3.6h7.2v7.2h-7.2z",
    "▲": "M0,-4.6L4.6,3.6H-4.6z",
    "◆": "M0,-5L5,0L0,5L-5,0z",
    "▼": "M0,4.6L4.6,-3.6H-4.6z",
}
"""Character for the legend -> outline of the marker."""

_INK, _MUTED, _RULE, _BLUE = "currentColor", "var(--muted)", "var(--rule)", "var(--series-0)"

_MAX_NAMED = 10
"""Points of a chart up to which all are numbered."""

_MAX_INTERVALS = 6
"""Lines of a chart up to which all have intervals."""

Point = tuple[float, ...]
"""x and y, and for a value with an interval its ends."""


@dataclass(frozen=True, slots=True)
class Series:
    """The points of a series, in the order in which they are joined or numbered."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as its numbers.

    `dots`: values with intervals (x) of each series in each row (y, from 0). `lines`: values with intervals (y) by the
    number of rounds (x). `costs`: agreement (y) by LM calls per item (x); a series for each judge, those of the Pareto
    front first. `scatter`: score (y) by mean rating (x).
    """

    title: str
    draw: Literal["dots", "lines", "costs", "scatter"]
    caption: str
    series: tuple[Series, ...]
    rows: tuple[str, ...] = ()
    ceiling: tuple[float | None, ...] = ()
    """Of `dots`: the human ceiling of each row; empty without individual ratings."""
    chosen: tuple[str, float, float] | None = None
    """Name, x and y of the judge that was chosen."""
    front: int = 0
    """Of `costs`: the number of series on the Pareto front."""
    scale: tuple[float, float] | None = None
    """Of `scatter`: the ends of the scale, if the scores are on it."""
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A mark of a chart and its meaning."""

    mark: str
    """A character, or the number of a point."""
    colour: str
    text: str


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """What the page shows of a chart."""

    svg: str
    legend: tuple[LegendEntry, ...]


def draw(chart: Mapping[str, Any]) -> DrawnChart:
    """Draw a `Chart`, given as JSON values."""
    plot, legend = _DRAW[chart["draw"]](chart)
    return DrawnChart(plot.svg(f"{chart['title']}: {chart['caption']}"), tuple(legend))


class _Plot:
    """Axes with a grid, and what is drawn on them in the coordinates of the data."""

    def __init__(
        self, x: Sequence[float], y: Sequence[float], *, height: float = 290.0, left: float = 44.0, bottom: float = 40.0
    ) -> None:
        """`x` and `y` are values that the axes must cover."""
        self.x, self.y = _padded(x), _padded(y)
        self.left, self.right, self.height, self.bottom = left, _WIDTH - _RIGHT, height, height - bottom
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point."""
        (x0, x1), (y0, y1) = self.x, self.y
        across = (x - x0) / (x1 - x0) * (self.right - self.left)
        return self.left + across, self.bottom - (y - y0) / (y1 - y0) * (self.bottom - _TOP)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.2, dash: str = "") -> None:
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (self.at(*point) for point in points))
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def mark(self, x: float, y: float, mark: str, colour: str, opacity: float = 1.0) -> None:
        px, py = self.at(x, y)
        faint = f' opacity="{opacity}"' if opacity < 1 else ""
        self.parts.append(f'<path d="{_MARKS[mark]}" transform="translate({px:.1f},{py:.1f})" fill="{colour}"{faint}/>')

    def ring(self, x: float, y: float) -> None:
        px, py = self.at(x, y)
        self.parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="8" fill="none" stroke="{_INK}" stroke-width="1.6"/>')

    def text(self, px: float, py: float, text: str, anchor: str = "middle", colour: str = _INK) -> None:
        self.parts.append(
            f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'
        )

    def x_axis(self, ticks: Sequence[float], label: str = "", *, grid: bool = True) -> None:
        for tick in ticks:
            if grid:
                self.line([(tick, self.y[0]), (tick, self.y[1])], _RULE, 0.8)
            self.text(self.at(tick, 0)[0], self.bottom + 15, f"{tick:g}")
        self.line([(self.x[0], self.y[0]), (self.x[1], self.y[0])], _MUTED, 0.8)
        self.text((self.left + self.right) / 2, self.height - 6, label)

    def y_axis(self, ticks: Sequence[float], label: str = "") -> None:
        for tick in ticks:
            self.line([(self.x[0], tick), (self.x[1], tick)], _RULE, 0.8)
            self.text(self.left - 6, self.at(0, tick)[1] + 4, f"{tick:g}", "end")
        self.line([(self.x[0], self.y[0]), (self.x[0], self.y[1])], _MUTED, 0.8)
        middle = (_TOP + self.bottom) / 2
        if label:
            self.parts.append(f'<g transform="translate(12,{middle:.0f}) rotate(-90)">')
            self.text(0, 0, label)
            self.parts.append("</g>")

    def svg(self, label: str) -> str:
        """The element; `label` is for screen readers."""
        title = html.escape(label)
        return (
            f'<svg viewBox="0 0 {_WIDTH:g} {self.height:g}" role="img" aria-label="{title}" font-size="11">'
            f"{''.join(self.parts)}</svg>"
        )


Drawing = tuple[_Plot, list[LegendEntry]]


def _dots(chart: Mapping[str, Any]) -> Drawing:
    rows, count = [_short(row, 24) for row in chart["rows"]], len(chart["series"])
    ceiling = chart["ceiling"]
    values = [v for series in chart["series"] for x, _, *ends in series["points"] for v in (x, *ends)]
    values += [value for value in ceiling if value is not None]
    height = 30 + 11.0 * len(rows) * (count + 1.5)
    left = 14 + _CHARACTER * max(map(len, rows))
    plot = _Plot(values, (), height=height, left=left, bottom=24)
    plot.y = (len(rows) - 0.5, -0.5)
    plot.x_axis(_ticks(*plot.x))
    legend = []
    for number, row in enumerate(rows):
        plot.text(left - 8, plot.at(0, number)[1] + 4, row, "end")
        if number:
            plot.line([(plot.x[0], number - 0.5), (plot.x[1], number - 0.5)], _RULE, 0.8)
        if ceiling and ceiling[number] is not None:
            plot.line([(ceiling[number], number - 0.42), (ceiling[number], number + 0.42)], _MUTED, 2)
    for number, series in enumerate(chart["series"]):
        mark, colour = _style(number)
        for value, row, *ends in series["points"]:
            y = row + (number - (count - 1) / 2) * 0.8 / (count + 0.5)
            if ends:
                plot.line([(ends[0], y), (ends[1], y)], colour)
            plot.mark(value, y, mark, colour)
        legend.append(LegendEntry(mark, colour, series["name"]))
    if any(value is not None for value in ceiling):
        legend.append(LegendEntry("┃", _MUTED, "the human ceiling: a rater with the mean of the others"))
    return plot, legend


def _lines(chart: Mapping[str, Any]) -> Drawing:
    series_of, chosen = chart["series"], chart["chosen"]
    points = [point for series in series_of for point in series["points"]]
    last = int(max(point[0] for point in points))
    plot = _Plot((-0.3, last + 0.3), [value for _, y, *ends in points for value in (y, *ends)])
    plot.x_axis(range(last + 1), "rounds n (0 is a single call of the Scorer)", grid=False)
    plot.y_axis(_ticks(*plot.y))
    legend, count = [], len(series_of)
    for number, series in enumerate(series_of):
        mark, colour = _style(number)
        # Shifted, or the intervals would hide one another.
        shift = (number - (count - 1) / 2) * min(0.12, 0.6 / count)
        plot.line([(x + shift, y) for x, y, *_ in series["points"]], colour)
        for x, y, *ends in series["points"]:
            if ends and (count <= _MAX_INTERVALS or (chosen and chosen[0] == series["name"])):
                plot.line([(x + shift, ends[0]), (x + shift, ends[1])], colour, 1)
            plot.mark(x + shift, y, mark, colour)
            if chosen and (series["name"], x) == (chosen[0], chosen[1]):
                plot.ring(x + shift, y)
        legend.append(LegendEntry(mark, colour, series["name"]))
    if chosen:
        legend.append(LegendEntry("◯", _INK, f"chosen: {chosen[0]}, n = {chosen[1]:g}"))
    return plot, legend


def _costs(chart: Mapping[str, Any]) -> Drawing:
    judges = [(series["name"], *series["points"][0]) for series in chart["series"]]
    front = chart["front"]
    plot = _Plot([x for _, x, _ in judges], [y for _, _, y in judges])
    plot.x_axis(_ticks(*plot.x), "LM calls per item")
    plot.y_axis(_ticks(*plot.y))
    plot.line([(x, y) for _, x, y in judges[:front]], _BLUE)
    named = judges if len(judges) <= _MAX_NAMED else judges[:front]
    legend = []
    for number, (name, x, y) in enumerate(judges):
        colour = _BLUE if number < front else _MUTED
        plot.mark(x, y, "●", colour, 1.0 if number < front else 0.5)
        if number < len(named):
            # A front rises to the right: labels above left and below right are off its line. Near ones alternate.
            px, py = plot.at(x, y)
            plot.text(px + (8 if number % 2 else -8), py + (14 if number % 2 else -5), str(number + 1), colour=colour)
            legend.append(LegendEntry(str(number + 1), colour, name))
    if len(named) < len(judges):
        legend.append(LegendEntry("●", _MUTED, f"{len(judges) - len(named)} others"))
    if chart["chosen"]:
        name, x, y = chart["chosen"]
        plot.ring(x, y)
        legend.append(LegendEntry("◯", _INK, f"chosen: {name}"))
    return plot, legend


def _scatter(chart: Mapping[str, Any]) -> Drawing:
    ((_, points),) = ((series["name"], series["points"]) for series in chart["series"])
    scale = chart["scale"]
    plot = _Plot(scale or [x for x, _ in points], scale or [y for _, y in points])
    plot.x_axis(_ticks(*plot.x), "mean human rating")
    plot.y_axis(_ticks(*plot.y), "score of the judge")
    if scale:
        plot.line([(scale[0], scale[0]), (scale[1], scale[1])], _MUTED, 1, "4 3")
    # Jitter, so that equal points are visible; seeded, so that a page made again is the same.
    rng = random.Random(0)
    spread_x, spread_y = ((end - start) * 0.012 for start, end in (plot.x, plot.y))
    for x, y in points:
        jittered = (x + rng.uniform(-spread_x, spread_x), y + rng.uniform(-spread_y, spread_y))
        plot.mark(*jittered, "●", _BLUE, 0.5)
    return plot, []


_DRAW = {"dots": _dots, "lines": _lines, "costs": _costs, "scatter": _scatter}


def _style(number: int) -> tuple[str, str]:
    """Marker and colour of a series; the first 35 differ."""
    return list(_MARKS)[number % len(_MARKS)], f"var(--series-{number % _SERIES})"


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """The range of the values with a margin; never empty."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _ticks(start: float, end: float) -> list[float]:
    """Round numbers within a range, four to nine of them."""
    rough = (end - start) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.7)
    return [round(number * step, 10) for number in range(math.ceil(start / step), math.floor(end / step) + 1)]


def _short(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"
