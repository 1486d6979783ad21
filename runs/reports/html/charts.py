"""Draws the charts of a report: for the page as SVG with the page's own colours and font, for MLflow as figures.

A legend is text of the page, so that it wraps on a phone. Built on `matplotlib.figure.Figure` without pyplot, so that
nothing global is touched and any thread may draw. Series differ by marker as well as by colour.
"""

from __future__ import annotations

import html
import io
import random
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    DistributionChart,
    JudgesChart,
    LineChart,
    ScatterChart,
    Span,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AnyChart = LineChart | CostChart | JudgesChart | ScatterChart | DistributionChart

_MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "|": "┃", "ring": "◯"}
"""matplotlib's name of a marker -> a character like it; the first seven are those of series, the last is ours."""

_RING = "ring"

_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000001")
"""Of Okabe and Ito, told apart with every kind of colour vision. The page has its own, in light and dark."""

_INK, _MUTED, _RULE, _GROUND = "#0a0b01", "#8a8a8a", "#e4e4e4", "#fffffe"
_CSS = {
    _INK: "currentColor",
    _MUTED: "var(--muted)",
    _RULE: "var(--rule)",
    _GROUND: "var(--ground)",
    **{colour.lower(): f"var(--series-{number})" for number, colour in enumerate(_SERIES)},
}
"""Colour in a figure -> colour of the page. What is drawn has no other, and none is a default of matplotlib."""

_WIDTH, _PAGE_WIDTH = 4.4, 11.0
"""Inches: at their natural size charts fit a phone, or the whole page; their texts are as large as the page's."""

_RC: Any = {"svg.fonttype": "none", "font.size": 10, "axes.linewidth": 0.8}

_MAX_NAMED = 10
"""Points of a chart that can all have a number."""

_MAX_INTERVALS = 6
"""Lines of a chart that can all have intervals."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """What a mark of the chart means."""

    mark: str
    """A marker of matplotlib, or a number that stands in the chart."""
    colour: str
    text: str

    @property
    def sign(self) -> str:
        """A character like the mark."""
        return _MARKERS.get(self.mark, self.mark)

    @property
    def css(self) -> str:
        return _CSS[self.colour.lower()]


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
    """Draw any chart for the page; `name` differs between the charts of a page."""
    axes, legend, caption = _drawn(chart, _WIDTH)
    label = f"{chart.title}: {_label(chart)}"
    wide = _inline(_drawn(chart, _PAGE_WIDTH)[0], f"{name}w", label) if isinstance(chart, JudgesChart) else ""
    return DrawnChart(chart.title, _inline(axes, name, label), tuple(legend), caption, wide)


def figure(chart: AnyChart, title: str, note: str | None = None) -> Figure:
    """Any chart as a figure of its own, with its legend beside it; to be saved with `bbox_inches="tight"`.

    `note` stands below the title, e.g. that the LM was a stand-in.
    """
    axes, legend, caption = _drawn(chart, 7.2)
    heading = "\n".join(filter(None, (title, caption, note)))
    axes.set_title(heading, fontsize=10, loc="left", color=_INK)
    for entry in legend:
        ring = entry.mark == _RING
        look: dict[str, Any] = {"mfc": "none", "ms": 9} if ring else {}
        marker = "o" if ring else entry.mark if entry.mark in _MARKERS else f"${entry.mark}$"
        axes.plot([], [], ls="none", marker=marker, color=entry.colour, label=_plain(entry.text, 100), **look)
    if legend:
        # Inside, it would cover intervals sooner or later.
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5, borderaxespad=0.0)
    drawn: Figure = axes.figure  # type: ignore[assignment]
    return drawn


Drawing = tuple["Axes", list[LegendEntry], str]
"""A chart's axes, its legend, and what its figures are."""


def _drawn(chart: AnyChart, width: float) -> Drawing:
    if isinstance(chart, LineChart):
        return _lines(chart, width)
    if isinstance(chart, CostChart):
        return _cost(chart, width)
    if isinstance(chart, JudgesChart):
        return _judges(chart, width)
    return _scatter(chart, width) if isinstance(chart, ScatterChart) else _shares(chart, width)


def _label(chart: AnyChart) -> str:
    """What the chart shows, for people who cannot see it."""
    if isinstance(chart, LineChart):
        return f"{chart.measure} by {chart.x}"
    if isinstance(chart, CostChart):
        return f"{chart.measure} against LM calls per item"
    if isinstance(chart, JudgesChart):
        return chart.measure
    if isinstance(chart, ScatterChart):
        return "score of the judge against mean human rating"
    return "spread of mean ratings and scores over the scale"


def _blank(width: float, height: float, *, left: float = 0.5, bottom: float = 0.5, grid: str = "y") -> Axes:
    """Empty axes; the sizes are inches, `left` and `bottom` the room for the labels of the axes."""
    # Importing matplotlib takes a second, which no command that draws nothing should pay.
    from matplotlib.figure import Figure

    place = (left / width, bottom / height, 1 - (left + 0.12) / width, 1 - (bottom + 0.12) / height)
    axes = Figure(figsize=(width, height)).add_axes(place)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_MUTED)
    axes.tick_params(color=_MUTED, labelcolor=_INK)
    axes.grid(axis=grid, color=_RULE, lw=0.8)  # type: ignore[arg-type]
    return axes


def _style(number: int) -> tuple[str, str]:
    """Colour and marker of a series; the first 49 differ."""
    return _SERIES[number % len(_SERIES)], list(_MARKERS)[(number + number // len(_SERIES)) % len(_SERIES)]


def _entries(names: Sequence[str]) -> list[LegendEntry]:
    return [LegendEntry(_style(i)[1], _style(i)[0], name) for i, name in enumerate(names)]


def _known(values: Sequence[Span]) -> list[tuple[int, float]]:
    return [(n, span.value) for n, span in enumerate(values) if span.value is not None]


def _intervals(values: Sequence[Span]) -> list[tuple[int, float, float]]:
    return [(n, s.low, s.high) for n, s in enumerate(values) if s.low is not None and s.high is not None]


def _lines(chart: LineChart, width: float) -> Drawing:
    axes, count = _blank(width, 3.0), len(chart.series)
    legend = _entries([series.name for series in chart.series])
    every = count <= _MAX_INTERVALS or chart.chosen is None
    for i, series in enumerate(chart.series):
        # Side by side, or the intervals would hide one another.
        shift = (i - (count - 1) / 2) * min(0.12, 0.6 / count)
        colour, marker = _style(i)
        known = _known(series.values)
        axes.plot([n + shift for n, _ in known], [v for _, v in known], marker, ls="-", color=colour, ms=5, lw=1.2)
        if every or (chart.chosen is not None and chart.chosen[0] == series.name):
            for n, low, high in _intervals(series.values):
                axes.vlines([n + shift], [low], [high], color=colour, lw=1)
        for n, value in known:
            if chart.chosen == (series.name, n):
                _ring(axes, n + shift, value)
    if chart.chosen is not None:
        legend.append(LegendEntry(_RING, _INK, f"chosen: {chart.chosen[0]}, n = {chart.chosen[1]}"))
    steps = range(max((len(series.values) for series in chart.series), default=1))
    axes.set_xticks(steps, chart.ticks or [str(step) for step in steps])
    axes.set_xlabel(chart.x, color=_INK)
    which = "" if every else " of the chosen line"
    return axes, legend, f"{chart.measure}; 95 % intervals{which}"


def _cost(chart: CostChart, width: float) -> Drawing:
    axes = _blank(width, 3.0, grid="both")
    x, y = [p.calls for p in chart.tried], [p.agreement for p in chart.tried]
    axes.plot(x, y, "o", ms=5, color=_MUTED, alpha=0.5, ls="none")
    front = sorted(chart.front, key=_place)
    axes.plot([p.calls for p in front], [p.agreement for p in front], "o-", lw=1.0, ms=5, color=_SERIES[0], zorder=3)
    others = [p for p in chart.tried if p not in front] if len(chart.tried) <= _MAX_NAMED else []
    legend = [] if others else [LegendEntry("o", _MUTED, f"tried: {len(chart.tried)}")]
    for number, point in enumerate([*front, *others], start=1):
        # A front rises to the right: above left and below right are off the line, by turns for near neighbours.
        offset = (-7, 4) if number % 2 else (7, -12)
        axes.annotate(
            str(number), _place(point), offset, textcoords="offset points", ha="center", zorder=4, fontsize=9,
            color=_SERIES[0] if point in front else _INK,
        )  # fmt: skip
        legend.append(LegendEntry(str(number), _SERIES[0] if point in front else _MUTED, point.name))
    if chart.chosen is not None:
        _ring(axes, *_place(chart.chosen))
        legend.append(LegendEntry(_RING, _INK, f"chosen: {chart.chosen.name}"))
    axes.margins(0.1)
    axes.set_xlabel("LM calls per item", color=_INK)
    return axes, legend, f"{chart.measure}; {'blue' if others else 'numbered'}: the Pareto front"


def _judges(chart: JudgesChart, width: float) -> Drawing:
    rows, count = [_plain(row, 24) for row in chart.rows], len(chart.series)
    left = 0.3 + 0.075 * max(map(len, rows))
    axes = _blank(width, 0.6 + 0.15 * len(rows) * (count + 1), left=left, bottom=0.3, grid="x")
    legend = _entries([series.name for series in chart.series])
    for y, value in enumerate(chart.ceiling):
        if value is not None:
            axes.vlines([value], [y - 0.46], [y + 0.46], color=_MUTED, lw=2)
    if any(value is not None for value in chart.ceiling):
        legend.append(LegendEntry("|", _MUTED, "the human ceiling: a rater with the mean of the others"))
    for i, series in enumerate(chart.series):
        shift = (i - (count - 1) / 2) * 0.8 / (count + 0.5)
        colour, marker = _style(i)
        known = _known(series.values)
        axes.plot([v for _, v in known], [y + shift for y, _ in known], marker, ls="none", color=colour, ms=5)
        for y, low, high in _intervals(series.values):
            axes.hlines([y + shift], [low], [high], color=colour, lw=1.2)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    for y in range(1, len(rows)):
        axes.axhline(y - 0.5, color=_RULE, lw=0.8)
    return axes, legend, f"{chart.measure}; 95 % intervals"


def _scatter(chart: ScatterChart, width: float) -> Drawing:
    axes = _blank(width, 3.4, grid="both")
    spread = (chart.high - chart.low) * 0.012
    # Equal points lie beside each other, in the same way each time the page is made.
    rng = random.Random(0)
    x = [rating + rng.uniform(-spread, spread) for rating, _ in chart.points]
    scores = [score for _, score in chart.points]
    extent = chart.high - chart.low if chart.on_scale else (max(scores, default=1.0) - min(scores, default=0.0))
    y = [score + rng.uniform(-1, 1) * extent * 0.012 for score in scores]
    if chart.on_scale:
        axes.plot([chart.low, chart.high], [chart.low, chart.high], color=_MUTED, lw=1, ls="--")
        pad = extent * 0.06
        axes.set_ylim(chart.low - pad, chart.high + pad)
        axes.set_xlim(chart.low - pad, chart.high + pad)
    axes.plot(x, y, "o", ms=4.5, ls="none", color=_SERIES[0], alpha=0.55, mec=_GROUND, mew=0.4)
    axes.set_xlabel("mean human rating", color=_INK)
    axes.set_ylabel("score of the judge", color=_INK, labelpad=2)
    shown = "" if chart.total == len(chart.points) else f", {len(chart.points)} of them drawn at random"
    line = "; dashed: score = rating" if chart.on_scale else "; the scores are not on the raters' scale"
    return axes, [], f"{chart.total:,} items{shown}, moved a little so that none hides{line}"


def _shares(chart: DistributionChart, width: float) -> Drawing:
    axes = _blank(width, 2.4, bottom=0.3)
    middles = [(a + b) / 2 for a, b in zip(chart.edges, chart.edges[1:], strict=False)]
    bar = (chart.edges[1] - chart.edges[0]) * 0.4
    axes.bar([m - bar / 2 for m in middles], [100 * s for s in chart.ratings], bar, color=_MUTED)
    axes.bar([m + bar / 2 for m in middles], [100 * s for s in chart.scores], bar, color=_SERIES[0])
    axes.set_ylabel("% of items", color=_INK)
    if len(middles) <= 11:
        axes.set_xticks(middles, [f"{m:g}" for m in middles])
    return axes, [LegendEntry("s", _MUTED, "mean human rating"), LegendEntry("s", _SERIES[0], "judge")], ""


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], "o", ms=12, mfc="none", mec=_INK, mew=1.6, ls="none", zorder=5)


def _place(point: CostPoint) -> tuple[float, float]:
    return point.calls, point.agreement


def _plain(text: str, most: int) -> str:
    """`text` for a figure: on one line, shortened, without signs that no font has, and never read as mathematics."""
    short = "".join(sign if sign.isprintable() else "\ufffd" for sign in " ".join(text.split()))
    short = short if len(short) <= most else short[: most - 1] + "…"
    return short.replace("$", r"\$")


def _inline(axes: Axes, name: str, label: str) -> str:
    """The figure of axes as an `<svg>` element that takes its colours and its font from the page around it.

    `name` differs between all charts of a page, for their parts have names that must not be each other's; `label` says
    what the chart shows to people who cannot see it.
    """
    import matplotlib

    out = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({**_RC, "svg.hashsalt": name}):
        # The texts are drawn by the browser, whatever glyphs matplotlib's own font lacks.
        warnings.simplefilter("ignore", UserWarning)
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        axes.figure.savefig(out, format="svg", transparent=True, metadata=nothing)  # type: ignore[union-attr]
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # A style in an SVG would be one of the whole page.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    # A page must not have a name twice; only those that are referred to are needed.
    used = set(re.findall(r"#([\w-]+)", text))
    text = re.sub(r' id="([\w-]+)"', lambda match: match[0] if match[1] in used else "", text)
    text = re.sub("|".join(_CSS), lambda match: _CSS[match[0]], text)
    text = re.sub(r"font-family: [^;\"]+;? ?", "", text)
    view = re.search(r'viewBox="([^"]+)"', text)
    size = "" if view is None else f' viewBox="{view[1]}"'
    title = html.escape(label)
    return re.sub(
        r"<svg[^>]*>", lambda _: f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-label="{title}"{size}>', text, count=1
    )  # fmt: skip
