"""Draws the two charts of a report as SVG in the colours of the page, which follow light and dark.

Series differ by marker as well as by colour. Legends are HTML, so that they wrap on a phone.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

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

_INK, _MUTED, _RULE = "currentColor", "var(--muted)", "var(--rule)"

_MAX_INTERVALS = 6
"""Lines of a chart up to which all have intervals."""

Point = tuple[float, ...]
"""x and y, and for a value with an interval its ends."""


@dataclass(frozen=True, slots=True)
class Series:
    """The points of a series, in the order in which they are joined."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as its numbers.

    `dots`: values with intervals (x) of each series in each row (y, from 0). `lines`: values with intervals (y) by the
    number of rounds (x).
    """

    title: str
    draw: Literal["dots", "lines"]
    caption: str
    series: tuple[Series, ...]
    rows: tuple[str, ...] = ()
    ceiling: tuple[float | None, ...] = ()
    """Of `dots`: the human ceiling of each row; empty without individual ratings."""
    chosen: tuple[str, float] | None = None
    """Of `lines`: name of the series and number of rounds that were chosen."""
    kind: Literal["chart"] = "chart"


class LegendEntry(NamedTuple):
    """A mark of a chart and its meaning."""

    mark: str
    colour: str
    text: str


class DrawnChart(NamedTuple):
    """What the page shows of a chart."""

    svg: str
    legend: list[LegendEntry]


def draw(chart: Chart) -> DrawnChart:
    """The chart as SVG, with its legend."""
    plot, legend = (_dots if chart.draw == "dots" else _lines)(chart)
    return DrawnChart(plot.svg(f"{chart.title}: {chart.caption}"), legend)


class _Plot:
    """Axes with a grid, and what is drawn on them in the coordinates of the data."""

    def __init__(
        self, x: Sequence[float], y: tuple[float, float], *, height: float, left: float, bottom: float
    ) -> None:
        """`x` are values that its axis must cover; `y` are the ends of the other axis."""
        self.x, self.y = _padded(x), y
        self.left, self.right, self.height, self.bottom = left, _WIDTH - _RIGHT, height, height - bottom
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point."""
        (x0, x1), (y0, y1) = self.x, self.y
        across = (x - x0) / (x1 - x0) * (self.right - self.left)
        return self.left + across, self.bottom - (y - y0) / (y1 - y0) * (self.bottom - _TOP)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.2) -> None:
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (self.at(*point) for point in points))
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def mark(self, x: float, y: float, mark: str, colour: str) -> None:
        px, py = self.at(x, y)
        self.parts.append(f'<path d="{_MARKS[mark]}" transform="translate({px:.1f},{py:.1f})" fill="{colour}"/>')

    def ring(self, x: float, y: float) -> None:
        px, py = self.at(x, y)
        self.parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="8" fill="none" stroke="{_INK}" stroke-width="1.6"/>')

    def text(self, px: float, py: float, text: str, anchor: str = "middle") -> None:
        place = f'x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} fill="{_INK}">{html.escape(text)}</text>')

    def x_axis(self, ticks: Sequence[float], label: str = "", *, grid: bool = True) -> None:
        for tick in ticks:
            if grid:
                self.line([(tick, self.y[0]), (tick, self.y[1])], _RULE, 0.8)
            self.text(self.at(tick, 0)[0], self.bottom + 15, f"{tick:g}")
        self.line([(self.x[0], self.y[0]), (self.x[1], self.y[0])], _MUTED, 0.8)
        self.text((self.left + self.right) / 2, self.height - 6, label)

    def y_axis(self, ticks: Sequence[float]) -> None:
        for tick in ticks:
            self.line([(self.x[0], tick), (self.x[1], tick)], _RULE, 0.8)
            self.text(self.left - 6, self.at(0, tick)[1] + 4, f"{tick:g}", "end")
        self.line([(self.x[0], self.y[0]), (self.x[0], self.y[1])], _MUTED, 0.8)

    def svg(self, label: str) -> str:
        """The element; `label` is for screen readers."""
        box = f'viewBox="0 0 {_WIDTH:g} {self.height:g}" role="img" aria-label="{html.escape(label)}" font-size="11"'
        return f"<svg {box}>{''.join(self.parts)}</svg>"


Drawing = tuple[_Plot, list[LegendEntry]]


def _dots(chart: Chart) -> Drawing:
    rows, count = [_short(row, 24) for row in chart.rows], len(chart.series)
    ceiling = {row: value for row, value in enumerate(chart.ceiling) if value is not None}
    values = [v for series in chart.series for x, _, *ends in series.points for v in (x, *ends)]
    plot = _Plot(
        [*values, *ceiling.values()],
        (len(rows) - 0.5, -0.5),
        height=30 + 11.0 * len(rows) * (count + 1.5),
        left=14 + _CHARACTER * max(map(len, rows)),
        bottom=24,
    )
    plot.x_axis(_ticks(*plot.x))
    legend = []
    for number, row in enumerate(rows):
        plot.text(plot.left - 8, plot.at(0, number)[1] + 4, row, "end")
        if number:
            plot.line([(plot.x[0], number - 0.5), (plot.x[1], number - 0.5)], _RULE, 0.8)
        if number in ceiling:
            plot.line([(ceiling[number], number - 0.42), (ceiling[number], number + 0.42)], _MUTED, 2)
    for number, series in enumerate(chart.series):
        mark, colour = _style(number)
        for value, place, *ends in series.points:
            y = place + (number - (count - 1) / 2) * 0.8 / (count + 0.5)
            if ends:
                plot.line([(ends[0], y), (ends[1], y)], colour)
            plot.mark(value, y, mark, colour)
        legend.append(LegendEntry(mark, colour, series.name))
    if ceiling:
        legend.append(LegendEntry("┃", _MUTED, "the human ceiling: a rater with the mean of the others"))
    return plot, legend


def _lines(chart: Chart) -> Drawing:
    points = [point for series in chart.series for point in series.points]
    last, count = int(max(point[0] for point in points)), len(chart.series)
    values = [value for _, y, *ends in points for value in (y, *ends)]
    plot = _Plot((-0.3, last + 0.3), _padded(values), height=290, left=44, bottom=40)
    plot.x_axis(range(last + 1), "rounds n (0 is a single call of the Scorer)", grid=False)
    plot.y_axis(_ticks(*plot.y))
    legend = []
    for number, series in enumerate(chart.series):
        mark, colour = _style(number)
        # Shifted, or the intervals would hide one another.
        shift = (number - (count - 1) / 2) * min(0.12, 0.6 / count)
        plot.line([(x + shift, y) for x, y, *_ in series.points], colour)
        for x, y, *ends in series.points:
            if ends and (count <= _MAX_INTERVALS or (chart.chosen and chart.chosen[0] == series.name)):
                plot.line([(x + shift, ends[0]), (x + shift, ends[1])], colour, 1)
            plot.mark(x + shift, y, mark, colour)
            if (series.name, x) == chart.chosen:
                plot.ring(x + shift, y)
        legend.append(LegendEntry(mark, colour, series.name))
    if chart.chosen:
        legend.append(LegendEntry("◯", _INK, f"chosen: {chart.chosen[0]}, n = {chart.chosen[1]:g}"))
    return plot, legend


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
