"""What the charts show, read from the axes of the figures that a run keeps."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from matplotlib.colors import to_hex

from debate_judge.runs.reports.html.blocks import CostChart, CostPoint, JudgesChart, LineChart, LineSeries, Span
from debate_judge.runs.reports.html.charts import AnyChart, draw, figure

NOTE = "offline LM: text statistics, a stand-in, not an LLM"
PLAIN = LineSeries("plain", (Span(0.3, 0.2, 0.5), Span(0.4, 0.3, 0.6)))
STRICT = LineSeries("strict", (Span(0.3, 0.2, 0.5), Span(None)))
ROUNDS = LineChart("coherence", "summary-level Spearman, 9 groups", (PLAIN, STRICT), ("plain", 1))


def axes_of(chart: AnyChart, note: str | None = NOTE) -> Any:
    (axes,) = figure(chart, "The title", note).axes
    return axes


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def lines(axes: Any) -> list[list[tuple[float, float]]]:
    """The points of what is drawn, without what stands for it in the legend."""
    found = [list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True)) for line in axes.lines]
    return [points for points in found if points]


def bars(axes: Any) -> list[tuple[float, ...]]:
    """The ends of the intervals, of x or of y, whichever differ."""
    segments = [segment for c in axes.collections for segment in c.get_segments()]
    return [
        tuple(round(float(end), 3) for (a, b) in zip(*s, strict=True) if a != b for end in (a, b)) for s in segments
    ]


def test_a_line_a_series_with_its_known_values_intervals_and_the_choice() -> None:
    axes = axes_of(ROUNDS)
    assert legend(axes) == ["plain", "strict", "chosen: plain, n = 1"]
    plain, ring, strict = lines(axes)
    assert [y for _, y in plain] == [0.3, 0.4]
    assert [y for _, y in strict] == [0.3]
    assert plain[0][0] < strict[0][0], "points of equal n must not hide one another"
    assert [y for _, y in ring] == [0.4]
    assert sorted(bars(axes)) == [(0.2, 0.5), (0.2, 0.5), (0.3, 0.6)]
    title = axes.get_title(loc="left").splitlines()
    assert title == ["The title", "summary-level Spearman, 9 groups; 95 % intervals", NOTE]
    assert NOTE not in axes_of(ROUNDS, None).get_title(loc="left")


def test_steps_may_have_names() -> None:
    axes = axes_of(LineChart("curve", "agreement", (PLAIN,), x="train sources learnt from", ticks=("0", "14")))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "14"]
    assert axes.get_xlabel() == "train sources learnt from"


def test_judges_have_a_row_an_aspect_and_a_colour_each() -> None:
    judges = tuple(LineSeries(name, (Span(v, v - 0.1, v + 0.1), Span(v + 0.2))) for name, v in (("a", 0.1), ("b", 0.5)))
    axes = axes_of(JudgesChart("held-out", "Spearman", ("style", "average"), judges, (0.8, None)))
    assert [t.get_text() for t in axes.get_yticklabels()] == ["style", "average"]
    assert legend(axes)[:2] == ["a", "b"]
    assert "human ceiling" in legend(axes)[2]
    *found, rule = lines(axes)
    assert [[x for x, _ in points] for points in found] == [[0.1, pytest.approx(0.3)], [0.5, 0.7]]
    assert [round(y) for _, y in found[0]] == [0, 1]
    assert len({to_hex(line.get_color()) for line in axes.lines[:2]}) == 2
    # Of the second row neither judge has an interval.
    assert sorted(bars(axes)) == [(-0.46, 0.46), (0.0, 0.2), (0.4, 0.6)]
    assert rule[0][1] == 0.5


def test_the_front_is_numbered_by_cost_and_named_beside() -> None:
    a, b, c = CostPoint(1.0, 0.3, "a"), CostPoint(3.0, 0.5, "b"), CostPoint(2.0, 0.2, "c")
    axes = axes_of(CostChart("coherence", "Spearman", (a, b, c), (b, a), a))
    assert legend(axes) == ["a", "b", "c", "chosen: a"]
    assert lines(axes)[:2] == [[(1.0, 0.3), (3.0, 0.5), (2.0, 0.2)], [(1.0, 0.3), (3.0, 0.5)]]
    assert [(t.get_text(), t.xy) for t in axes.texts] == [("1", (1.0, 0.3)), ("2", (3.0, 0.5)), ("3", (2.0, 0.2))]


def test_on_the_page_colours_are_the_pages_and_nothing_is_registered_with_pyplot() -> None:
    drawn = draw(ROUNDS, "c1")
    assert {entry.css for entry in drawn.legend} == {"var(--series-0)", "var(--series-1)", "currentColor"}
    assert "var(--series-1)" in drawn.svg
    assert "#0072b2" not in drawn.svg.lower()
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []
