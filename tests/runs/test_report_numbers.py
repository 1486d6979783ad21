"""The numbers behind a report's pictures of judge against raters, worked out by hand, and its differences of texts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Scale
from debate_judge.runs.reports.html.blocks import Confusion, ScatterChart, SharesChart
from debate_judge.runs.reports.html.items import JudgedScores, beside_ratings
from debate_judge.runs.reports.html.page import MOST_WORDS, changed_words


def beside(
    scale: Scale, ratings: Sequence[float | None], scores: Sequence[float | None], *, on_scale: bool = True
) -> list[ScatterChart | SharesChart | Confusion]:
    """The charts of one aspect with these candidates, the first of which is a group of its own."""
    groups = [
        GroupScores(
            f"g{i}", tuple(f"c{j}" for j in range(len(ratings[part]))), tuple(ratings[part]), tuple(scores[part])
        )
        for i, part in enumerate((slice(0, 1), slice(1, None)))
    ]
    return beside_ratings((Aspect("wit", "Is it funny?", scale),), JudgedScores({"wit": groups}, on_scale=on_scale))


RATINGS = (1.0, 2.0, 2.4, 2.6, 5.0, None, 3.0)
SCORES = (1.0, 4.0, 2.0, 2.5, 4.6, 3.0, None)


def test_ratings_are_counted_by_rows_and_scores_by_columns_in_whole_points() -> None:
    *_, counts = beside(Scale(1, 5), RATINGS, SCORES)
    assert isinstance(counts, Confusion)
    assert counts.labels == ("1", "2", "3", "4", "5")
    # Rated 2 and 2.4: one scored 4, one 2. Rated 2.6, scored 2.5: both are 3. What lacks either is left out.
    assert counts.counts == ((1, 0, 0, 0, 0), (0, 1, 0, 1, 0), (0, 0, 1, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 1))


def test_shares_are_those_of_items_with_both_a_rating_and_a_score() -> None:
    drawn, spread, _ = beside(Scale(1, 5), RATINGS, SCORES)
    assert isinstance(spread, SharesChart)
    assert spread.edges == (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
    assert spread.ratings == (1 / 5, 2 / 5, 1 / 5, 0, 1 / 5)
    # 2.5 lies on an end, and belongs to the bin above it.
    assert spread.scores == (1 / 5, 1 / 5, 1 / 5, 1 / 5, 1 / 5)
    assert isinstance(drawn, ScatterChart)
    assert drawn.points == ((1, 1), (2, 4), (2.4, 2), (2.6, 2.5), (5, 4.6))
    assert drawn.total == 5


def test_a_scale_of_many_points_has_ten_equal_bins() -> None:
    tenths = [i / 10 for i in range(11)]
    _, spread = beside(Scale(0, 1, 0.01), tenths, tenths)
    assert isinstance(spread, SharesChart)
    # Each bin begins at a tenth; the last holds both 0.9 and 1.
    assert spread.ratings == spread.scores == pytest.approx((1 / 11,) * 9 + (2 / 11,))


def test_scores_off_the_scale_are_drawn_and_not_counted() -> None:
    (drawn,) = beside(Scale(1, 5), RATINGS, [90.0] * 7, on_scale=False)
    assert isinstance(drawn, ScatterChart)
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
    words = "word " * MOST_WORDS
    assert [run.kind for run in changed_words(words, words)] == ["removed", "added"]
