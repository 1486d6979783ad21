"""The page of a report: one HTML file that loads nothing from outside and runs no script but its own.

Texts under evaluation are hostile here, too. Everything in the template is escaped; the debates are embedded as JSON
without characters that HTML could interpret, and the page's script inserts them into the document as text. The page's
content security policy allows that one script, by its hash, and no address at all.

Charts are drawn as SVG in the colours of the page, which follow light and dark; their series differ by marker as well
as by colour, and their legends are HTML, so that they wrap on a phone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from debate_judge.data.errors import write_errors
from debate_judge.programs.judge import Judgement, Unscored
from debate_judge.runs.reports.tables import DataTable

if TYPE_CHECKING:
    from jinja2 import Template

    from debate_judge.runs.comparison.figures import Comparison

_ONE_NUMBER = r"[-−+<>~]?\s?\$?\d[\d.,]*\s?%?"
_NUMBER = re.compile(rf"{_ONE_NUMBER}(\s?/\s?{_ONE_NUMBER})*( \*)?( \[[^\]]*\])?")
"""A number, or several with slashes between them; it may have the star of a best value, and an interval."""

MAX_ITEMS = 10_000
"""Debates on a page; of more, those with the largest disagreement are kept."""


class Warned(str):
    """A paragraph that is set off as a warning."""

    look = "warning"


@dataclass(frozen=True, slots=True)
class Quotation:
    """A longer text quoted in full, e.g. a guide to the raters."""

    title: str
    text: str


Point = tuple[float, ...]
"""x and y, and for a value with an interval its ends."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as its numbers.

    `dots`: values with intervals (x) of each series in each row (y, from 0). `lines`: values with intervals (y) by the
    number of rounds (x).
    """

    title: str
    draw: Literal["dots", "lines"]
    caption: str
    series: Mapping[str, Sequence[Point]]
    """Name -> points in the order in which they are joined."""
    rows: Sequence[str] = ()
    ceiling: Sequence[float | None] = ()
    """Of `dots`: the human ceiling of each row; empty without individual ratings."""
    chosen: tuple[str, float] | None = None
    """Of `lines`: name of the series and number of rounds that were chosen."""


ReportBlock = str | DataTable | Quotation | Chart
"""A paragraph, or what its class says."""


@dataclass(frozen=True)
class Report:
    """The report of a compile or a comparison."""

    subject: str
    title: str
    verdict: Sequence[ReportBlock]
    """The first thing on the page; the debates follow."""
    sections: Mapping[str, Sequence[ReportBlock]]
    """Title -> blocks, folded; without blocks there is no section."""
    comparison: Comparison
    browsed: Mapping[str, str]
    """Judge -> its name on the page, of those whose debates can be browsed; the first is shown first."""
    stand_in: str
    """A notice for the figures where the LM was a stand-in, else empty."""


# --- the page ---


def write_pages(report: Report, file: Path, *, full: bool) -> str:
    """Write the page to `file`, with the texts of the data if it is `full`, and beside it one to share, without them.

    Returns:
        The page to share, which may be logged.

    Raises:
        InputError: A file cannot be written.
    """
    shareable = page(report)
    with write_errors(file, "report"):
        file.parent.mkdir(parents=True, exist_ok=True)
        for path, text in ((file, page(report, full=True) if full else shareable), (shared_page(file), shareable)):
            # No translation of newlines: the page's policy has a hash of its script.
            path.write_text(text, encoding="utf-8", newline="\n")
    return shareable


def shared_page(file: Path) -> Path:
    """The page to share beside one that quotes texts."""
    return file.with_stem(f"{file.stem}-share")


def page(report: Report, *, full: bool = False) -> str:
    """The page of a report; if it is `full`, with the texts of the data."""
    from markupsafe import Markup

    script = _read_file("report.js")
    debates, texts = debates_of(report.comparison, report.browsed)
    task = report.comparison.corpus.task
    labels = {"source": task.source_label, "candidate": task.candidate_label, "context": task.context_label}
    data = {"debates": debates, "texts": texts if full else None, "labels": labels}
    json_text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # The three occur in JSON only inside strings, where these escapes are valid, and HTML could interpret them.
    for character in "&<>":
        json_text = json_text.replace(character, f"\\u{ord(character):04x}")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{digest}'",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    )
    text = _template().render(
        report=report,
        debates=debates,
        sections={title: blocks for title, blocks in report.sections.items() if blocks},
        full=full,
        policy="; ".join(rules),
        style=Markup(_read_file("report.css")),
        script=Markup(script),
        data=Markup(json_text),
    )
    # Half of a surrogate pair is no character, and has no encoding.
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"svg": Markup, "with_interval": _with_interval, "groupby_kind": _by_kind}
    environment.globals |= {"column_classes": _column_classes, "draw": draw}
    return environment.from_string(_read_file("report.html.j2"))


@cache
def _read_file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _by_kind(blocks: Sequence[ReportBlock]) -> list[tuple[str, list[ReportBlock]]]:
    """Blocks of one class that follow one another; charts and quotations stand side by side."""
    return [(kind, list(same)) for kind, same in groupby(blocks, lambda block: type(block).__name__)]


def _column_classes(table: DataTable) -> list[str]:
    """The CSS class of each column: `number` for numbers and dashes, `long` for prose, else empty."""
    classes = []
    for column in range(len(table.header)):
        filled = [row[column] for row in table.rows if row[column] not in ("", "–")]
        long = "long" if any(len(cell) > 28 for cell in filled) else ""
        classes.append("number" if filled and all(map(_NUMBER.fullmatch, filled)) else long)
    return classes


def _with_interval(cell: str) -> tuple[str, str]:
    """The value and the interval of a cell."""
    value, bracket, rest = cell.partition(" [")
    return (value, "[" + rest) if bracket and cell.endswith("]") else (cell, "")


# --- debates ---


def debates_of(comparison: Comparison, browsed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The debates of the `browsed` judges and, apart from them, their texts, as JSON values for the page's script.

    The texts of the data and those that may quote them are kept apart, so that a page can be shared without.

    Returns:
        The debates: `judges`, `aspects`, `items` (a candidate in one aspect with its ratings and each judge's outcome)
        and `left_out`, the number of items that are not on the page. The texts: `sources` and `candidates` by group,
        and for each item the raters' `comments`, for each judge the `turns` of the debate and the `details` of a
        missing score.
    """
    corpus, judges = comparison.corpus, [comparison.judges[judge] for judge in browsed]
    items: list[tuple[float, dict[str, Any], dict[str, Any]]] = []
    """Disagreement with the raters, the item, its texts."""
    places = [(number, group, i) for number, group in enumerate(corpus.groups) for i in range(len(group.candidates))]
    for aspect in comparison.aspects:
        for position, (number, group, index) in enumerate(places):
            candidate, outcomes, turns, details = group.candidates[index], [], [], []
            for judge in judges:
                judgement = judge.judgements[aspect.name][position] if aspect.name in judge.judgements else None
                outcomes.append(_outcome(judge.scores[aspect.name][number].scores[index], judgement))
                turns.append([turn.text for turn in judgement.transcript.turns] if judgement else [])
                details.append(judgement.detail if isinstance(judgement, Unscored) else "")
            ratings = list(candidate.ratings.get(aspect.name, ()))
            score = outcomes[0]["score"] if outcomes else None
            span = aspect.scale.high - aspect.scale.low
            place = {"group": group.id, "candidate": candidate.id, "aspect": aspect.name}
            comments = list(candidate.comments.get(aspect.name, ()))
            items.append(
                (
                    -1.0 if score is None or not ratings else abs(score - fmean(ratings)) / span,
                    {**place, "ratings": ratings, "outcomes": outcomes},
                    {"comments": comments, "turns": turns, "details": details},
                )
            )
    kept = sorted(sorted(range(len(items)), key=lambda i: -items[i][0])[:MAX_ITEMS])
    debates = {
        "judges": [
            {"name": name, "on_scale": comparison.on_scale(judge)}
            for name, judge in zip(browsed.values(), judges, strict=True)
        ],
        "aspects": [{"name": a.name, "low": a.scale.low, "high": a.scale.high} for a in comparison.aspects],
        "items": [items[i][1] for i in kept],
        "left_out": len(items) - len(kept),
    }
    return debates, {
        "sources": {group.id: [group.source, group.context] for group in corpus.groups},
        "candidates": {group.id: {c.id: c.text for c in group.candidates} for group in corpus.groups},
        "items": [items[i][2] for i in kept],
    }


def _outcome(score: float | None, judgement: Judgement | None) -> dict[str, Any]:
    """A judge's result on one item: why it ended, LM calls (None for scores from a file), and the turns' scores."""
    if judgement is None:
        stop = "" if score is not None else "not in the file"
        return {"score": score, "stop": stop, "rounds": 0, "calls": None, "path": []}
    unscored = isinstance(judgement, Unscored)
    return {
        "score": None if unscored else score,
        "stop": judgement.reason if isinstance(judgement, Unscored) else judgement.stop_reason,
        "rounds": judgement.transcript.rounds,
        "calls": judgement.calls,
        "path": [
            {"role": t.role, "round": t.round, "score": t.score, "no_issue": t.no_issue}
            for t in judgement.transcript.turns
        ],
    }


# --- charts ---

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

Legend = list[tuple[str, str, str]]
"""Mark, colour and meaning."""


def draw(chart: Chart) -> tuple[str, Legend]:
    """The chart as SVG, and its legend."""
    plot = (_dots if chart.draw == "dots" else _lines)(chart)
    label = html.escape(f"{chart.title}: {chart.caption}")
    box = f'viewBox="0 0 {_WIDTH:g} {plot.height:g}" role="img" aria-label="{label}" font-size="11"'
    return f"<svg {box}>{''.join(plot.parts)}</svg>", plot.legend


class _Plot:
    """Axes, and what is drawn on them in the coordinates of the data."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], *, height: float, left: float, bottom: float
    ) -> None:
        self.x, self.y, self.left, self.height, self.bottom = x, y, left, height, height - bottom
        self.parts: list[str] = []
        self.legend: Legend = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point."""
        (x0, x1), (y0, y1) = self.x, self.y
        across = (x - x0) / (x1 - x0) * (_WIDTH - _RIGHT - self.left)
        return self.left + across, self.bottom - (y - y0) / (y1 - y0) * (self.bottom - _TOP)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.2) -> None:
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (self.at(*point) for point in points))
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def text(self, px: float, py: float, text: str, anchor: str = "middle") -> None:
        place = f'x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} fill="{_INK}">{html.escape(text)}</text>')

    def x_axis(self, ticks: Sequence[float]) -> None:
        for tick in ticks:
            self.text(self.at(tick, 0)[0], self.bottom + 15, f"{tick:g}")
        self.line([(self.x[0], self.y[0]), (self.x[1], self.y[0])], _MUTED, 0.8)

    def series(
        self, name: str, points: Sequence[tuple[float, float, Sequence[tuple[float, float]]]], *, joined: bool = False
    ) -> None:
        """Marks at x and y, each with a line between the ends of its interval; the first 35 series differ."""
        number = len(self.legend)
        mark, colour = list(_MARKS)[number % len(_MARKS)], f"var(--series-{number % _SERIES})"
        if joined:
            self.line([(x, y) for x, y, _ in points], colour)
        for x, y, ends in points:
            if ends:
                self.line(ends, colour)
            px, py = self.at(x, y)
            self.parts.append(f'<path d="{_MARKS[mark]}" transform="translate({px:.1f},{py:.1f})" fill="{colour}"/>')
        self.legend.append((mark, colour, name))


def _dots(chart: Chart) -> _Plot:
    rows = [" ".join(row.split()) for row in chart.rows]
    rows = [row if len(row) <= 24 else row[:23] + "…" for row in rows]
    ceiling = {row: value for row, value in enumerate(chart.ceiling) if value is not None}
    count = len(chart.series)
    values = [v for points in chart.series.values() for x, _, *ends in points for v in (x, *ends)]
    plot = _Plot(
        _padded([*values, *ceiling.values()]),
        (len(rows) - 0.5, -0.5),
        height=30 + 11.0 * len(rows) * (count + 1.5),
        left=14 + _CHARACTER * max(map(len, rows)),
        bottom=24,
    )
    for tick in _ticks(*plot.x):
        plot.line([(tick, plot.y[0]), (tick, plot.y[1])], _RULE, 0.8)
    plot.x_axis(_ticks(*plot.x))
    for number, row in enumerate(rows):
        plot.text(plot.left - 8, plot.at(0, number)[1] + 4, row, "end")
        if number:
            plot.line([(plot.x[0], number - 0.5), (plot.x[1], number - 0.5)], _RULE, 0.8)
        if number in ceiling:
            plot.line([(ceiling[number], number - 0.42), (ceiling[number], number + 0.42)], _MUTED, 2)
    for number, (name, points) in enumerate(chart.series.items()):
        # Series of a row stand below one another.
        shift = (number - (count - 1) / 2) * 0.8 / (count + 0.5)
        plot.series(name, [(x, row + shift, [(end, row + shift) for end in ends]) for x, row, *ends in points])
    if ceiling:
        plot.legend.append(("┃", _MUTED, "the human ceiling: a rater with the mean of the others"))
    return plot


def _lines(chart: Chart) -> _Plot:
    everywhere = [point for points in chart.series.values() for point in points]
    last, count = int(max(point[0] for point in everywhere)), len(chart.series)
    y_range = _padded([value for _, y, *ends in everywhere for value in (y, *ends)])
    plot = _Plot((-0.3, last + 0.3), y_range, height=290, left=44, bottom=40)
    plot.x_axis(range(last + 1))
    plot.text((plot.left + _WIDTH - _RIGHT) / 2, plot.height - 6, "rounds n (0 is a single call of the Scorer)")
    for tick in _ticks(*plot.y):
        plot.line([(plot.x[0], tick), (plot.x[1], tick)], _RULE, 0.8)
        plot.text(plot.left - 6, plot.at(0, tick)[1] + 4, f"{tick:g}", "end")
    plot.line([(plot.x[0], plot.y[0]), (plot.x[0], plot.y[1])], _MUTED, 0.8)
    chosen, n = chart.chosen or ("", -1)
    for number, (name, points) in enumerate(chart.series.items()):
        # Shifted, or the intervals would hide one another.
        shift = (number - (count - 1) / 2) * min(0.12, 0.6 / count)
        shown = count <= _MAX_INTERVALS or name == chosen
        moved = [(x + shift, y, [(x + shift, end) for end in ends if shown]) for x, y, *ends in points]
        plot.series(name, moved, joined=True)
        for px, py in (plot.at(x + shift, y) for x, y, *_ in points if (name, x) == (chosen, n)):
            ring = f'cx="{px:.1f}" cy="{py:.1f}" r="8" fill="none" stroke="{_INK}" stroke-width="1.6"'
            plot.parts.append(f"<circle {ring}/>")
    if chart.chosen:
        plot.legend.append(("◯", _INK, f"chosen: {chosen}, n = {n:g}"))
    return plot


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
