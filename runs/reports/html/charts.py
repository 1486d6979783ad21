"""Draws the charts of a report: for the page as SVG with the page's own colours and font, for MLflow as figures.

On the page, legends are HTML, so that they wrap on a phone. Built on `matplotlib.figure.Figure` without pyplot, so that
no global state is changed and any thread may draw. Series differ by marker as well as by colour.
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
    IntervalValue,
    JudgesChart,
    LineChart,
    ScatterChart,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AnyChart = LineChart | CostChart | JudgesChart | ScatterChart | DistributionChart

_MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "|": "┃", "ring": "◯"}
"""matplotlib's name of a marker -> a similar character; the first seven are for series, the last one is ours."""

_RING = "ring"

_ROUNDS = "rounds n (0 is a single call of the Scorer)"

_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000001")
"""The palette of Okabe and Ito for all kinds of colour vision. The page replaces it by its own, in light and dark."""

_INK, _MUTED, _RULE, _GROUND = "#0a0b01", "#8a8a8a", "#e4e4e4", "#fffffe"
_CSS = {
    _INK: "currentColor",
    _MUTED: "var(--muted)",
    _RULE: "var(--rule)",
    _GROUND: "var(--ground)",
    **{colour.lower(): f"var(--series-{number})" for number, colour in enumerate(_SERIES)},
}
"""Colour in a figure -> colour of the page. Figures have no other colours, and none is a default of matplotlib."""

_WIDTH, _PAGE_WIDTH = 4.4, 11.0
"""Widths of charts for a phone and for the page, in inches; their texts then have the size of the page's."""

_RC: Any = {"svg.fonttype": "none", "font.size": 10, "axes.linewidth": 0.8}

_MAX_NAMED = 10
"""Points of a chart up to which all are numbered."""

_MAX_INTERVALS = 6
"""Lines of a chart up to which all have intervals."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A mark of the chart and its meaning."""

    mark: str
    """A marker of matplotlib, or a number in the chart."""
    colour: str
    text: str

    @property
    def character(self) -> str:
        """A character similar to the mark."""
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
    """The SVG as wide as the page, for wide screens."""
    kind: str = "chart"


def draw(chart: AnyChart, name: str) -> DrawnChart:
    """Draw a chart for the page; `name` is unique on the page."""
    axes, legend, caption = _draw_chart(chart, _WIDTH)
    label = f"{chart.title}: {_aria_label(chart)}"
    wide = _inline_svg(_draw_chart(chart, _PAGE_WIDTH)[0], f"{name}w", label) if isinstance(chart, JudgesChart) else ""
    return DrawnChart(chart.title, _inline_svg(axes, name, label), tuple(legend), caption, wide)


def figure(chart: AnyChart, title: str, note: str | None = None) -> Figure:
    """A chart as a figure with title and legend, to be saved with `bbox_inches="tight"`.

    `note` is printed below the title, e.g. that the LM was a stand-in.
    """
    axes, legend, caption = _draw_chart(chart, 7.2)
    heading = "\n".join(filter(None, (title, caption, note)))
    axes.set_title(heading, fontsize=10, loc="left", color=_INK)
    for entry in legend:
        ring = entry.mark == _RING
        style: dict[str, Any] = {"mfc": "none", "ms": 9} if ring else {}
        marker = "o" if ring else entry.mark if entry.mark in _MARKERS else f"${entry.mark}$"
        axes.plot([], [], ls="none", marker=marker, color=entry.colour, label=_figure_text(entry.text, 100), **style)
    if legend:
        # Outside of the axes, where it covers no intervals.
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5, borderaxespad=0.0)
    drawn_figure: Figure = axes.figure  # type: ignore[assignment]
    return drawn_figure


Drawing = tuple["Axes", list[LegendEntry], str]
"""A chart's axes, legend and caption."""


def _draw_chart(chart: AnyChart, width: float) -> Drawing:
    if isinstance(chart, LineChart):
        return _line_chart(chart, width)
    if isinstance(chart, CostChart):
        return _cost_chart(chart, width)
    if isinstance(chart, JudgesChart):
        return _judges_chart(chart, width)
    return _scatter_chart(chart, width) if isinstance(chart, ScatterChart) else _distribution_chart(chart, width)


def _aria_label(chart: AnyChart) -> str:
    """A description of the chart for screen readers."""
    if isinstance(chart, LineChart):
        return f"{chart.measure} by {_ROUNDS}"
    if isinstance(chart, CostChart):
        return f"{chart.measure} against LM calls per item"
    if isinstance(chart, JudgesChart):
        return chart.measure
    if isinstance(chart, ScatterChart):
        return "score of the judge against mean human rating"
    return "spread of mean ratings and scores over the scale"


def _empty_axes(width: float, height: float, *, left: float = 0.5, bottom: float = 0.5, grid: str = "y") -> Axes:
    """Empty axes; sizes are in inches, `left` and `bottom` are the margins for axis labels."""
    # Importing matplotlib takes a second, which commands without charts should not pay.
    from matplotlib.figure import Figure

    rectangle = (left / width, bottom / height, 1 - (left + 0.12) / width, 1 - (bottom + 0.12) / height)
    axes = Figure(figsize=(width, height)).add_axes(rectangle)
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


def _points(values: Sequence[IntervalValue]) -> list[tuple[int, float]]:
    return [(n, v.value) for n, v in enumerate(values) if v.value is not None]


def _intervals(values: Sequence[IntervalValue]) -> list[tuple[int, float, float]]:
    return [(n, v.low, v.high) for n, v in enumerate(values) if v.low is not None and v.high is not None]


def _line_chart(chart: LineChart, width: float) -> Drawing:
    axes, count = _empty_axes(width, 3.0), len(chart.series)
    legend = _entries([series.name for series in chart.series])
    all_intervals = count <= _MAX_INTERVALS or chart.chosen is None
    for i, series in enumerate(chart.series):
        # Shifted, or the intervals would hide one another.
        shift = (i - (count - 1) / 2) * min(0.12, 0.6 / count)
        colour, marker = _style(i)
        points = _points(series.values)
        axes.plot([n + shift for n, _ in points], [v for _, v in points], marker, ls="-", color=colour, ms=5, lw=1.2)
        if all_intervals or (chart.chosen is not None and chart.chosen[0] == series.name):
            for n, low, high in _intervals(series.values):
                axes.vlines([n + shift], [low], [high], color=colour, lw=1)
        for n, value in points:
            if chart.chosen == (series.name, n):
                _ring(axes, n + shift, value)
    if chart.chosen is not None:
        legend.append(LegendEntry(_RING, _INK, f"chosen: {chart.chosen[0]}, n = {chart.chosen[1]}"))
    steps = range(max((len(series.values) for series in chart.series), default=1))
    axes.set_xticks(steps)
    axes.set_xlabel(_ROUNDS, color=_INK)
    scope = "" if all_intervals else " of the chosen line"
    return axes, legend, f"{chart.measure}; 95 % intervals{scope}"


def _cost_chart(chart: CostChart, width: float) -> Drawing:
    axes = _empty_axes(width, 3.0, grid="both")
    x, y = [p.calls for p in chart.tried], [p.agreement for p in chart.tried]
    axes.plot(x, y, "o", ms=5, color=_MUTED, alpha=0.5, ls="none")
    front = sorted(chart.front, key=_xy)
    axes.plot([p.calls for p in front], [p.agreement for p in front], "o-", lw=1.0, ms=5, color=_SERIES[0], zorder=3)
    off_front = [p for p in chart.tried if p not in front] if len(chart.tried) <= _MAX_NAMED else []
    legend = [] if off_front else [LegendEntry("o", _MUTED, f"tried: {len(chart.tried)}")]
    for number, point in enumerate([*front, *off_front], start=1):
        # A front rises to the right, so that labels above left and below right are off the line; near points alternate.
        offset = (-7, 4) if number % 2 else (7, -12)
        axes.annotate(
            str(number), _xy(point), offset, textcoords="offset points", ha="center", zorder=4, fontsize=9,
            color=_SERIES[0] if point in front else _INK,
        )  # fmt: skip
        legend.append(LegendEntry(str(number), _SERIES[0] if point in front else _MUTED, point.name))
    if chart.chosen is not None:
        _ring(axes, *_xy(chart.chosen))
        legend.append(LegendEntry(_RING, _INK, f"chosen: {chart.chosen.name}"))
    axes.margins(0.1)
    axes.set_xlabel("LM calls per item", color=_INK)
    return axes, legend, f"{chart.measure}; {'blue' if off_front else 'numbered'}: the Pareto front"


def _judges_chart(chart: JudgesChart, width: float) -> Drawing:
    rows, count = [_figure_text(row, 24) for row in chart.rows], len(chart.series)
    left = 0.3 + 0.075 * max(map(len, rows))
    axes = _empty_axes(width, 0.6 + 0.15 * len(rows) * (count + 1), left=left, bottom=0.3, grid="x")
    legend = _entries([series.name for series in chart.series])
    for y, value in enumerate(chart.ceiling):
        if value is not None:
            axes.vlines([value], [y - 0.46], [y + 0.46], color=_MUTED, lw=2)
    if any(value is not None for value in chart.ceiling):
        legend.append(LegendEntry("|", _MUTED, "the human ceiling: a rater with the mean of the others"))
    for i, series in enumerate(chart.series):
        shift = (i - (count - 1) / 2) * 0.8 / (count + 0.5)
        colour, marker = _style(i)
        points = _points(series.values)
        axes.plot([v for _, v in points], [y + shift for y, _ in points], marker, ls="none", color=colour, ms=5)
        for y, low, high in _intervals(series.values):
            axes.hlines([y + shift], [low], [high], color=colour, lw=1.2)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    for y in range(1, len(rows)):
        axes.axhline(y - 0.5, color=_RULE, lw=0.8)
    return axes, legend, f"{chart.measure}; 95 % intervals"


def _scatter_chart(chart: ScatterChart, width: float) -> Drawing:
    axes = _empty_axes(width, 3.4, grid="both")
    spread = (chart.high - chart.low) * 0.012
    # Jitter, so that equal points are visible; seeded, so that a page made again is the same.
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
    sample_note = "" if chart.total == len(chart.points) else f", {len(chart.points)} of them drawn at random"
    line_note = "; dashed: score = rating" if chart.on_scale else "; the scores are not on the raters' scale"
    return axes, [], f"{chart.total:,} items{sample_note}, jittered{line_note}"


def _distribution_chart(chart: DistributionChart, width: float) -> Drawing:
    axes = _empty_axes(width, 2.4, bottom=0.3)
    centers = [(a + b) / 2 for a, b in zip(chart.edges, chart.edges[1:], strict=False)]
    bar = (chart.edges[1] - chart.edges[0]) * 0.4
    axes.bar([m - bar / 2 for m in centers], [100 * s for s in chart.ratings], bar, color=_MUTED)
    axes.bar([m + bar / 2 for m in centers], [100 * s for s in chart.scores], bar, color=_SERIES[0])
    axes.set_ylabel("% of items", color=_INK)
    if len(centers) <= 11:
        axes.set_xticks(centers, [f"{m:g}" for m in centers])
    return axes, [LegendEntry("s", _MUTED, "mean human rating"), LegendEntry("s", _SERIES[0], "judge")], ""


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], "o", ms=12, mfc="none", mec=_INK, mew=1.6, ls="none", zorder=5)


def _xy(point: CostPoint) -> tuple[float, float]:
    return point.calls, point.agreement


def _figure_text(text: str, max_length: int) -> str:
    """`text` for a figure: one line, shortened, without unprintable characters, and with `$` escaped (no mathtext)."""
    shortened = "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))
    shortened = shortened if len(shortened) <= max_length else shortened[: max_length - 1] + "…"
    return shortened.replace("$", r"\$")


def _inline_svg(axes: Axes, name: str, label: str) -> str:
    """The figure of axes as an `<svg>` element with the colours and the font of the page.

    `name` is unique on the page, so that the ids in its charts are; `label` is for screen readers.
    """
    import matplotlib

    out = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({**_RC, "svg.hashsalt": name}):
        # The browser draws the texts, so that warnings about glyphs that matplotlib's font lacks do not matter.
        warnings.simplefilter("ignore", UserWarning)
        no_metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        axes.figure.savefig(out, format="svg", transparent=True, metadata=no_metadata)  # type: ignore[union-attr]
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # A style element in an inline SVG would apply to the whole page.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    # Ids must be unique on the page; only those that are referred to are needed.
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
