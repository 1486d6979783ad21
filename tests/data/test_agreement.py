"""Agreement: correlations as scipy has them, the levels, the averages, and the conventions for what is undefined."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from debate_judge.data.agreement.tables import (
    LEVELS,
    STATISTICS,
    Agreement,
    GroupScores,
    Level,
    Statistic,
    agreement_table,
    correlation,
)  # fmt: skip
from tests.data.scored_groups import group, random_groups

# --- correlations ---


def reference(ratings: Sequence[float], scores: Sequence[float], statistic: Statistic) -> float | None:
    """scipy's value."""
    if len(ratings) < 2 or len(set(ratings)) < 2 or len(set(scores)) < 2:
        return None
    functions: dict[str, Any] = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    return float(functions[statistic](ratings, scores).statistic)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0.1 * i for i in range(12)])), max_size=40),
    st.sampled_from(STATISTICS),
)
def test_correlation_equals_scipy_with_ties_and_is_none_where_undefined(
    pairs: list[tuple[int, float]], statistic: Statistic
) -> None:
    ratings, scores = [float(r) for r, _ in pairs], [s for _, s in pairs]
    expected = reference(ratings, scores, statistic)
    assert correlation(ratings, scores, statistic) == (None if expected is None else pytest.approx(expected, abs=1e-9))


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("values", [7, 10**9])
def test_correlation_of_long_sequences_equals_scipy(values: int, statistic: Statistic) -> None:
    rng = np.random.default_rng(4)
    ratings = rng.integers(values, size=3000).astype(float)
    scores = np.round(ratings / values * 50 + rng.normal(0, 20, size=3000), 0 if values == 7 else 9)
    expected = reference(ratings.tolist(), scores.tolist(), statistic)
    assert correlation(ratings.tolist(), scores.tolist(), statistic) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("scores", "words"), [([1, 2, 3], "2 ratings and 3 scores"), ([1, math.nan], "finite")])
def test_correlation_refuses_what_is_no_pair_of_finite_sequences(scores: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        correlation([1, 2], scores, "pearson")


# --- levels ---


def test_summary_level_counts_constant_scores_as_0_and_names_the_other_conventions() -> None:
    groups = [
        group("a", [1, 2, 3, 4], [1, 3, 2, 4]),  # 0.8
        group("b", [1, 2], [2, 1]),  # -1
        group("humans constant", [3, 3], [1, 2]),
        group("judge constant", [1, 2], [5, 5]),
        group("one pair left", [1, 2, None], [5, None, 4]),
        group("not rated", [None, None], [1, 2]),
    ]
    cell = agreement_table({"x": groups}, intervals=False).aspects["x"]["summary"]["spearman"]
    assert cell.value == pytest.approx((0.8 - 1 + 0) / 3)
    assert cell.value_without_constant == pytest.approx((0.8 - 1) / 2)
    assert cell.value_undefined_as_zero == pytest.approx((0.8 - 1) / 5)
    assert (cell.groups, cell.constant, cell.undefined, cell.unscored) == (3, 1, 2, 1)
    assert (cell.low, cell.high, cell.method) == (None, None, None)


@pytest.mark.parametrize("level", LEVELS)
def test_a_judge_that_never_ranks_earns_0_at_every_level(level: Level) -> None:
    groups = [group(g.group, g.ratings, [3.0] * len(g.ratings), g.candidates) for g in random_groups(7, noise=1)]
    cell = agreement_table({"x": groups}).aspects["x"][level]["spearman"]
    assert (cell.value, cell.low, cell.high) == ((0, None, None) if level == "system" else (0, 0, 0))
    assert (cell.groups, cell.constant, cell.value_without_constant) == (30, 30, None)


def test_sample_level_pools_all_scored_candidates() -> None:
    groups = [group("a", [1, 2, 3], [1, None, 3]), group("b", [4, None], [2, 9]), group("c", [2], [None])]
    cell = agreement_table({"x": groups}, intervals=False).aspects["x"]["sample"]["spearman"]
    # Ratings 1, 3, 4 with scores 1, 3, 2.
    assert cell.value == pytest.approx(0.5) == cell.value_undefined_as_zero
    assert (cell.groups, cell.undefined, cell.unscored) == (2, 1, 2)


def test_system_level_correlates_the_means_of_candidate_ids() -> None:
    ids = ["s1", "s2", "s3"]
    groups = [
        group("a", [1, 2, 3], [1, 2, 9], ids),
        group("b", [3, 2, 5], [3, 2, None], ids),
        group("c", [5, 5], [0, 0], ["s3", "seen once"]),
    ]
    cell = agreement_table({"x": groups}, intervals=False).aspects["x"]["system"]["pearson"]
    # Mean ratings 2, 2, (3 + 5) / 2 = 4; mean scores 2, 2, (9 + 0) / 2 = 4.5.
    assert (cell.value, cell.groups, cell.undefined, cell.unscored) == (pytest.approx(1.0), 3, 0, 1)
    # 0.1 + 0.2 and 0.3 + 0.0 are different floats; both systems have the mean 0.15.
    tied = [group("a", [1, 2, 3], [0.1, 0.3, 0.9], ids), group("b", [1, 2, 3], [0.2, 0.0, 0.9], ids)]
    cell = agreement_table({"x": tied}, intervals=False).aspects["x"]["system"]["kendall"]
    assert cell.value == pytest.approx(2 / math.sqrt(6))


@pytest.mark.parametrize("ids", [["s1", "s2"], None])
def test_system_level_needs_three_recurring_ids(ids: list[str] | None) -> None:
    groups = [group(name, [1, 2], [1, 2], ids) for name in "abc"]
    cell = agreement_table({"x": groups}).aspects["x"]["system"]["pearson"]
    assert (cell.value, cell.low, cell.groups, cell.undefined) == (None, None, 0, 3)


def test_dialogues_pooled_and_per_dialogue_are_different_figures() -> None:
    rng = np.random.default_rng(0)
    ratings = np.round(rng.uniform(1, 3, size=(60, 6)) * 3) / 3
    ratings[:6] = 2.0
    scores = rng.random((60, 6)) + 0.3 * ratings + rng.normal(0, 0.5, size=(60, 1))
    groups = [group(f"d{i}", r.tolist(), s.tolist()) for i, (r, s) in enumerate(zip(ratings, scores, strict=True))]
    table = agreement_table({"x": groups}, intervals=False).aspects["x"]
    for statistic in STATISTICS:
        each = [reference(r.tolist(), s.tolist(), statistic) for r, s in zip(ratings, scores, strict=True)]
        defined = [v for v in each if v is not None]
        summary = table["summary"][statistic]
        assert (summary.value, summary.groups, summary.undefined) == (pytest.approx(np.mean(defined)), 54, 6)
        assert summary.value_undefined_as_zero == pytest.approx(sum(defined) / 60)
        pooled = reference(ratings.ravel().tolist(), scores.ravel().tolist(), statistic)
        assert table["sample"][statistic].value == pytest.approx(pooled, abs=1e-9)


# --- averages, intervals, JSON ---


def test_average_is_over_the_same_groups_for_all_aspects() -> None:
    groups = random_groups(7, noise=0.7)
    opposite = [group(g.group, g.ratings, [-s for s in g.scores if s is not None], g.candidates) for g in groups]
    table = agreement_table({"a": groups, "b": opposite[::-1]})
    for level in LEVELS:
        for statistic in STATISTICS:
            assert table.aspects["a"][level][statistic].value != 0
            average = table.average[level][statistic]
            # Each group of an aspect is undone by the other's, if and only if both see the same groups.
            assert average.value == pytest.approx(0, abs=1e-9)
            if level != "system":
                assert (average.low, average.high) == pytest.approx((0, 0), abs=1e-9)
            assert average.groups == 30
    alone = agreement_table({"a": groups})
    assert alone.average == alone.aspects["a"]


def test_average_is_undefined_where_an_aspect_is() -> None:
    groups = random_groups(7, noise=0.7)
    constant = [group(g.group, [1.0] * len(g.ratings), g.scores, g.candidates) for g in groups]
    table = agreement_table({"a": groups, "b": constant})
    average, alone = table.average["summary"]["kendall"], table.aspects["a"]["summary"]["kendall"]
    assert (average.value, average.low, average.high) == (None, None, None)
    assert average.value_undefined_as_zero == pytest.approx(alone.value_undefined_as_zero / 2)
    assert (average.groups, average.undefined) == (30, 30)


def test_intervals_hold_their_values_and_correlations_over_systems_have_none() -> None:
    groups = random_groups(7, noise=0.7, points=False)
    table = agreement_table({"x": groups}, seed=1).aspects["x"]
    assert agreement_table({"x": groups}, seed=2).aspects["x"] == table, "with so few groups nothing is random"
    for statistic in STATISTICS:
        for level in ("summary", "sample"):
            cell = table[level][statistic]
            assert -1 <= cell.low < cell.value < cell.high <= 1
        assert (table["system"][statistic].low, table["system"][statistic].method) == (None, None)
    single = agreement_table({"x": [group("a", [1, 2, 3], [1, 3, 2])]}).aspects["x"]["summary"]["pearson"]
    assert (single.value, single.low, single.high) == (pytest.approx(0.5), None, None)


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [group("a", [None], [1])],
        [group("a", [1, 2], [None, None])],
        [group("a", [3, 3], [1, 2]), group("b", [3, 3], [1, 2])],
        [group("a", [1, 2], [2, 2]), group("b", [1, 2], [2, 2])],
        [group("a", [1, 2], [1, 2]), group("b", [3, 3], [3, 3])],
        random_groups(7, noise=0.7),
    ],
)
def test_json_has_null_and_never_nan(groups: list[GroupScores]) -> None:
    table: Any = agreement_table({"x": groups}).to_json()
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    names = ["value", "low", "high", "method", "groups", "constant", "undefined", "unscored"]
    for levels in (table["aspects"]["x"], table["average"]):
        cells = {(level, statistic): list(cell) for level, row in levels.items() for statistic, cell in row.items()}
        assert set(cells) == {(level, statistic) for level in LEVELS for statistic in STATISTICS}
        assert all(cell == [*names, "value_without_constant", "value_undefined_as_zero"] for cell in cells.values())


def test_agreement_prints_what_it_rests_on() -> None:
    counts = {"level": "summary", "unscored": 0}
    whole = Agreement(0.431, 0.357, 0.493, statistic="spearman", groups=48, undefined=2, **counts)
    assert re.findall(r"[\d.]*\d", str(whole)) == ["0.43", "0.36", "0.49", "48", "2", "0"]
    nothing = Agreement(None, statistic="kendall", groups=0, undefined=3, **counts)
    assert str(nothing).startswith("undefined summary-level Kendall")
