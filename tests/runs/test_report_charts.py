"""What the charts of a report show, read from their axes, and the numbers behind them, worked out by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from matplotlib.colors import to_hex

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Scale
from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    IntervalValue,
    JudgesChart,
    LineChart,
    LineSeries,
)
from debate_judge.runs.reports.html.charts import AnyChart, draw, figure
from debate_judge.runs.reports.html.items import JudgedScores, score_charts
from debate_judge.runs.reports.html.page import MAX_WORDS, changed_words

RATINGS = (1.0, 2.0, 2.4, 2.6, 5.0, None, 3.0)
SCORES = (1.0, 4.0, 2.0, 2.5, 4.6, 3.0, None)


def charts(
    scale: Scale, ratings: Sequence[float | None], scores: Sequence[float | None], *, on_scale: bool = True
) -> list[Any]:
    """The charts of one aspect with these candidates, the first of which is a group of its own."""
    ids = tuple(f"c{i}" for i in range(len(ratings)))
    parts = (slice(0, 1), slice(1, None))
    groups = [GroupScores(f"g{p.stop}", ids[p], tuple(ratings[p]), tuple(scores[p])) for p in parts]
    return list(score_charts((Aspect("wit", "?", scale),), JudgedScores({"wit": groups}, on_scale=on_scale)))


def test_items_with_both_a_rating_and_a_score_are_drawn_and_counted_in_whole_points() -> None:
    scatter, spread, counts = charts(Scale(1, 5), RATINGS, SCORES)
    assert scatter.points == ((1, 1), (2, 4), (2.4, 2), (2.6, 2.5), (5, 4.6))
    assert scatter.total == 5
    assert spread.edges == (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
    assert spread.ratings == (1 / 5, 2 / 5, 1 / 5, 0, 1 / 5)
    # 2.5 lies on an end, and belongs to the bin above it.
    assert spread.scores == (1 / 5, 1 / 5, 1 / 5, 1 / 5, 1 / 5)
    assert counts.labels == ("1", "2", "3", "4", "5")
    # Ratings by rows. Rated 2 and 2.4: one scored 4, one 2. Rated 2.6, scored 2.5: both are 3.
    assert counts.counts == ((1, 0, 0, 0, 0), (0, 1, 0, 1, 0), (0, 0, 1, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 1))


def test_scales_of_many_points_have_ten_bins_and_scores_off_the_scale_none() -> None:
    tenths = [i / 10 for i in range(11)]
    _, spread = charts(Scale(0, 1, 0.01), tenths, tenths)
    # Each bin begins at a tenth; the last holds both 0.9 and 1.
    assert spread.ratings == spread.scores == pytest.approx((1 / 11,) * 9 + (2 / 11,))
    (scatter,) = charts(Scale(1, 5), RATINGS, [90.0] * 7, on_scale=False)
    assert scatter.points == tuple((rating, 90.0) for rating in RATINGS if rating is not None)
    assert charts(Scale(1, 5), (None, 2.0), (3.0, None)) == [], "where no item has both"


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ("Rate the\ntext now.", "Rate the text\n  now.", [("same", "Rate the text\n  now.")]),
        ("Rate the text.", "Rate the whole text.", [("same", "Rate the "), ("added", "whole "), ("same", "text.")]),
        ("One two", "One three", [("same", "One "), ("removed", "two"), ("added", "three")]),
        ("Old.", "", [("removed", "Old.")]),
        # Too long to be compared.
        ("word " * MAX_WORDS, "word " * MAX_WORDS, [("removed", "word " * MAX_WORDS), ("added", "word " * MAX_WORDS)]),
    ],
    ids=["a line broken elsewhere", "added", "replaced", "removed", "too long"],
)
def test_words_are_kept_removed_or_added(before: str, after: str, runs: list[tuple[str, str]]) -> None:
    assert [tuple(run) for run in changed_words(before, after)] == runs


NOTE = "offline LM: text statistics, a stand-in, not an LLM"
PLAIN = LineSeries("plain", (IntervalValue(0.3, 0.2, 0.5), IntervalValue(0.4, 0.3, 0.6)))
STRICT = LineSeries("strict", (IntervalValue(0.3, 0.2, 0.5), IntervalValue(None)))
ROUNDS = LineChart("coherence", "summary-level Spearman, 9 groups", (PLAIN, STRICT), ("plain", 1))


def axes_of(chart: AnyChart, note: str | None = NOTE) -> Any:
    (axes,) = figure(chart, "The title", note).axes
    return axes


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def lines(axes: Any) -> list[list[tuple[float, float]]]:
    """The points of what is drawn, without what stands for it in the legend."""
    drawn = [list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True)) for line in axes.lines]
    return [points for points in drawn if points]


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
    assert [[y for _, y in points] for points in (plain, strict, ring)] == [[0.3, 0.4], [0.3], [0.4]]
    assert plain[0][0] < strict[0][0], "points of equal n must not hide one another"
    assert sorted(bars(axes)) == [(0.2, 0.5), (0.2, 0.5), (0.3, 0.6)]
    title = axes.get_title(loc="left").splitlines()
    assert title == ["The title", "summary-level Spearman, 9 groups; 95 % intervals", NOTE]
    assert NOTE not in axes_of(ROUNDS, None).get_title(loc="left")
    axes = axes_of(LineChart("curve", "agreement", (PLAIN,), x="train sources learnt from", ticks=("0", "14")))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "14"]
    assert axes.get_xlabel() == "train sources learnt from"


def test_judges_have_a_row_an_aspect_and_a_colour_each() -> None:
    judges = tuple(
        LineSeries(name, (IntervalValue(v, v - 0.1, v + 0.1), IntervalValue(v + 0.2)))
        for name, v in (("a", 0.1), ("b", 0.5))
    )
    axes = axes_of(JudgesChart("held-out", "Spearman", ("style", "average"), judges, (0.8, None)))
    assert [t.get_text() for t in axes.get_yticklabels()] == ["style", "average"]
    assert legend(axes)[:2] == ["a", "b"]
    assert "human ceiling" in legend(axes)[2]
    *of_judges, rule = lines(axes)
    assert [[x for x, _ in points] for points in of_judges] == [[0.1, pytest.approx(0.3)], [0.5, 0.7]]
    assert [round(y) for _, y in of_judges[0]] == [0, 1]
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
