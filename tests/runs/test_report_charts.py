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
    Confusion,
    CostChart,
    CostPoint,
    DistributionChart,
    IntervalValue,
    JudgesChart,
    LineChart,
    LineSeries,
    ScatterChart,
)
from debate_judge.runs.reports.html.charts import AnyChart, draw, figure
from debate_judge.runs.reports.html.items import JudgedScores, score_charts
from debate_judge.runs.reports.html.page import MAX_WORDS, changed_words


def beside(
    scale: Scale, ratings: Sequence[float | None], scores: Sequence[float | None], *, on_scale: bool = True
) -> list[ScatterChart | DistributionChart | Confusion]:
    """The charts of one aspect with these candidates, the first of which is a group of its own."""
    groups = [
        GroupScores(
            f"g{i}", tuple(f"c{j}" for j in range(len(ratings[part]))), tuple(ratings[part]), tuple(scores[part])
        )
        for i, part in enumerate((slice(0, 1), slice(1, None)))
    ]
    return score_charts((Aspect("wit", "Is it funny?", scale),), JudgedScores({"wit": groups}, on_scale=on_scale))


RATINGS = (1.0, 2.0, 2.4, 2.6, 5.0, None, 3.0)
SCORES = (1.0, 4.0, 2.0, 2.5, 4.6, 3.0, None)


def test_ratings_are_counted_by_rows_and_scores_by_columns_in_whole_points() -> None:
    *_, counts = beside(Scale(1, 5), RATINGS, SCORES)
    assert counts.labels == ("1", "2", "3", "4", "5")
    # Rated 2 and 2.4: one scored 4, one 2. Rated 2.6, scored 2.5: both are 3. What lacks either is left out.
    assert counts.counts == ((1, 0, 0, 0, 0), (0, 1, 0, 1, 0), (0, 0, 1, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 1))


def test_shares_are_those_of_items_with_both_a_rating_and_a_score() -> None:
    drawn, spread, _ = beside(Scale(1, 5), RATINGS, SCORES)
    assert spread.edges == (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
    assert spread.ratings == (1 / 5, 2 / 5, 1 / 5, 0, 1 / 5)
    # 2.5 lies on an end, and belongs to the bin above it.
    assert spread.scores == (1 / 5, 1 / 5, 1 / 5, 1 / 5, 1 / 5)
    assert drawn.points == ((1, 1), (2, 4), (2.4, 2), (2.6, 2.5), (5, 4.6))
    assert drawn.total == 5


def test_a_scale_of_many_points_has_ten_equal_bins() -> None:
    tenths = [i / 10 for i in range(11)]
    _, spread = beside(Scale(0, 1, 0.01), tenths, tenths)
    # Each bin begins at a tenth; the last holds both 0.9 and 1.
    assert spread.ratings == spread.scores == pytest.approx((1 / 11,) * 9 + (2 / 11,))


def test_scores_off_the_scale_are_drawn_and_not_counted() -> None:
    (drawn,) = beside(Scale(1, 5), RATINGS, [90.0] * 7, on_scale=False)
    assert drawn.points == tuple((rating, 90.0) for rating in RATINGS if rating is not None)
    assert beside(Scale(1, 5), (None, 2.0), (3.0, None)) == [], "where no item has both"


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ("Rate the text.", "Rate the text.", [("same", "Rate the text.")]),
        ("Rate the text.", "Rate the whole text.", [("same", "Rate the "), ("added", "whole "), ("same", "text.")]),
        ("One two", "One three", [("same", "One "), ("removed", "two"), ("added", "three")]),
        ("Old.", "", [("removed", "Old.")]),
    ],
)
def test_words_are_kept_removed_or_added(before: str, after: str, runs: list[tuple[str, str]]) -> None:
    assert [tuple(run) for run in changed_words(before, after)] == runs


def test_a_line_broken_elsewhere_is_no_change_and_texts_too_long_to_compare_are_shown_both() -> None:
    assert {run.kind for run in changed_words("Rate the\ntext now.", "Rate the text\n  now.")} == {"same"}
    words = "word " * MAX_WORDS
    assert [run.kind for run in changed_words(words, words)] == ["removed", "added"]


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
    judges = tuple(
        LineSeries(name, (IntervalValue(v, v - 0.1, v + 0.1), IntervalValue(v + 0.2)))
        for name, v in (("a", 0.1), ("b", 0.5))
    )
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
