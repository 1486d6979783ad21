"""Agreement: correlations as scipy has them, levels, averages, intervals, and conventions for what is undefined."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from debate_judge.data.agreement.correlations import agreement, agreement_table, correlation
from debate_judge.data.agreement.figures import LEVELS, STATISTICS, GroupScores, Statistic, plain
from debate_judge.data.schema import Level
from tests.data.scored_groups import group, random_groups

Array = NDArray[np.float64]
FUNCTIONS: dict[str, Any] = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}

# --- correlations ---


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0.1 * i for i in range(12)])), max_size=40),
    st.sampled_from([1, 20]),
    st.sampled_from(STATISTICS),
)
def test_correlation_equals_scipy_with_ties_and_is_none_where_undefined(
    pairs: list[tuple[int, float]], times: int, statistic: Statistic
) -> None:
    ratings, scores = [float(r) for r, _ in pairs] * times, [s for _, s in pairs] * times
    if len(set(ratings)) < 2 or len(set(scores)) < 2:
        assert correlation(ratings, scores, statistic) is None
    else:
        expected = float(FUNCTIONS[statistic](ratings, scores).statistic)
        assert correlation(ratings, scores, statistic) == pytest.approx(expected, abs=1e-9)


# --- levels ---


def test_summary_level_counts_constant_scores_as_0() -> None:
    groups = [
        group("a", [1, 2, 3, 4], [1, 3, 2, 4]),  # 0.8
        group("b", [1, 2], [2, 1]),  # -1
        group("humans constant", [3, 3], [1, 2]),
        group("judge constant", [1, 2], [5, 5]),
        group("one pair left", [1, 2, None], [5, None, 4]),
        group("not rated", [None, None], [1, 2]),
    ]
    cell = agreement({"x": groups}, "spearman", "summary")
    assert cell.value == pytest.approx((0.8 - 1 + 0) / 3)
    assert (cell.groups, cell.constant, cell.undefined, cell.unscored) == (3, 1, 2, 1)


@pytest.mark.parametrize("level", LEVELS)
def test_a_judge_that_never_ranks_earns_0_at_every_level(level: Level) -> None:
    groups = [group(g.group, g.ratings, [3.0] * len(g.ratings), g.candidates) for g in random_groups(7, noise=1)]
    cell = agreement({"x": groups}, "spearman", level)
    assert (cell.value, cell.low, cell.high, cell.groups, cell.constant) == (0, None, None, 30, 30)


def test_sample_level_pools_all_scored_candidates() -> None:
    groups = [group("a", [1, 2, 3], [1, None, 3]), group("b", [4, None], [2, 9]), group("c", [2], [None])]
    cell = agreement({"x": groups}, "spearman", "sample")
    # Ratings 1, 3, 4 with scores 1, 3, 2.
    assert (cell.value, cell.groups, cell.undefined, cell.unscored) == (pytest.approx(0.5), 2, 1, 2)


def test_system_level_correlates_the_means_of_three_or_more_candidate_ids_that_recur() -> None:
    ids = ["s1", "s2", "s3"]
    groups = [
        group("a", [1, 2, 3], [1, 2, 9], ids),
        group("b", [3, 2, 5], [3, 2, None], ids),
        group("c", [5, 5], [0, 0], ["s3", "seen once"]),
    ]
    cell = agreement({"x": groups}, "pearson", "system")
    # Mean ratings 2, 2, (3 + 5) / 2 = 4; mean scores 2, 2, (9 + 0) / 2 = 4.5.
    assert (cell.value, cell.groups, cell.undefined, cell.unscored) == (pytest.approx(1.0), 3, 0, 1)
    # 0.1 + 0.2 and 0.3 + 0.0 are different floats; both systems have the mean 0.15.
    tied = [group("a", [1, 2, 3], [0.1, 0.3, 0.9], ids), group("b", [1, 2, 3], [0.2, 0.0, 0.9], ids)]
    assert agreement({"x": tied}, "kendall", "system").value == pytest.approx(2 / math.sqrt(6))
    for few in (ids[:2], None):
        cell = agreement({"x": [group(name, [1, 2], [1, 2], few) for name in "abc"]}, "pearson", "system")
        assert (cell.value, cell.low, cell.groups, cell.undefined) == (None, None, 0, 3)


# --- averages, intervals, JSON ---


def test_average_is_over_the_same_groups_for_all_aspects() -> None:
    groups = random_groups(7, noise=0.7)
    opposite = [group(g.group, g.ratings, [-s for s in g.scores if s is not None], g.candidates) for g in groups]
    table = agreement_table({"a": groups, "b": opposite[::-1]})
    for level in LEVELS:
        for statistic in STATISTICS:
            assert table.aspects["a"][level][statistic].value != 0
            average = table.average[level][statistic]
            # Each group of an aspect is undone by the other's, if and only if both see the same groups. Nothing varies
            # between them, so nothing is known of the error.
            assert (average.value, average.groups) == (pytest.approx(0, abs=1e-9), 30)
            assert (average.low, average.high) == (None, None)
    alone = agreement_table({"a": groups})
    assert alone.average == alone.aspects["a"]


def test_average_is_undefined_where_an_aspect_is() -> None:
    groups = random_groups(7, noise=0.7)
    constant = [group(g.group, [1.0] * len(g.ratings), g.scores, g.candidates) for g in groups]
    average = agreement({"a": groups, "b": constant}, "kendall", "summary")
    assert (average.value, average.low, average.high, average.groups, average.undefined) == (None, None, None, 30, 30)


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
    table = plain(agreement_table({"x": groups}))
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    for levels in (table["aspects"]["x"], table["average"]):
        assert {level: set(row) for level, row in levels.items()} == {level: set(STATISTICS) for level in LEVELS}


# --- intervals, from scipy's values on the same groups ---


def scores_of(ratings: Array, scores: Array) -> list[GroupScores]:
    ids = [f"s{i}" for i in range(ratings.shape[1])]
    rows = enumerate(zip(ratings.tolist(), scores.tolist(), strict=True))
    return [group(f"g{i}", r, s, ids) for i, (r, s) in rows]


def random_values(groups: int, size: int, *, points: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng(groups)
    quality = rng.normal(3, 1, size=(groups, size)) + rng.normal(size=(groups, 1))
    ratings, scores = (quality + rng.normal(size=quality.shape) for _ in range(2))
    return (np.round(ratings), np.round(scores)) if points else (ratings, scores)


def on_fishers_z(mean: float, error: float, groups: int) -> Any:
    """t(groups - 1) standard errors to each side, where z changes by error / (1 - mean^2)."""
    half = stats.t.ppf(0.975, groups - 1) * error / (1 - mean**2)
    return np.tanh([np.arctanh(mean) - half, np.arctanh(mean) + half])


@pytest.mark.parametrize("name", STATISTICS)
def test_summary_intervals_are_t_on_the_group_values_laid_off_on_fishers_z(name: Statistic) -> None:
    ratings, scores = random_values(8, 12, points=False)
    cell = agreement({"x": scores_of(ratings, scores)}, name, "summary")
    values = [FUNCTIONS[name](r, s).statistic for r, s in zip(ratings, scores, strict=True)]
    assert (cell.low, cell.high) == pytest.approx(on_fishers_z(np.mean(values), stats.sem(values), 8))


@pytest.mark.parametrize("name", STATISTICS)
def test_sample_intervals_are_t_with_the_jackknife_over_groups(name: Statistic) -> None:
    ratings, scores = random_values(20, 5, points=True)
    cell = agreement({"x": scores_of(ratings, scores)}, name, "sample")
    without = [
        FUNCTIONS[name](np.delete(ratings, i, axis=0).ravel(), np.delete(scores, i, axis=0).ravel()).statistic
        for i in range(20)
    ]
    error = math.sqrt(19 / 20 * np.sum((without - np.mean(without)) ** 2))
    assert cell.value is not None
    assert (cell.low, cell.high) == pytest.approx(on_fishers_z(cell.value, error, 20))


def test_aspects_without_a_common_group_have_the_variances_of_their_means_added() -> None:
    ratings, scores = random_values(30, 12, points=False)
    groups = scores_of(ratings, scores)
    cell = agreement({"a": groups[:10], "b": groups[10:]}, "pearson", "summary")
    values = np.array([stats.pearsonr(r, s).statistic for r, s in zip(ratings, scores, strict=True)])
    # Leaving out one of n groups moves their mean by 1 / (n - 1) of its deviation; there are 30 groups in all.
    variance = (values[:10].var() * 10 / 9**2 + values[10:].var() * 20 / 19**2) / 4 * 29 / 30
    middle = (values[:10].mean() + values[10:].mean()) / 2
    assert (cell.low, cell.high) == pytest.approx(on_fishers_z(middle, np.sqrt(variance), 30))


def test_bundles_give_the_interval_that_single_groups_would() -> None:
    rng = np.random.default_rng(2)
    ratings = rng.normal(size=(1500, 3))
    scores = ratings + rng.normal(size=ratings.shape)
    cell = agreement({"x": scores_of(ratings, scores)}, "pearson", "sample")
    # 4,500 independent pairs: the standard error of Fisher's z is the normal one, and t is as good as normal.
    expected = stats.pearsonr(ratings.ravel(), scores.ravel()).confidence_interval(0.95)
    width = expected.high - expected.low
    assert (cell.low, cell.high) == pytest.approx((expected.low, expected.high), abs=0.06 * width)


def test_agreement_at_its_end_in_every_group_has_the_exact_bound_of_clopper_and_pearson() -> None:
    groups = [group(f"d{i}", [1, 2, 3], [1, 2, 3]) for i in range(7)]
    groups += [group(f"c{i}", [1, 1, 1], [1, 2, 3]) for i in range(4)]
    cell = agreement({"x": groups}, "pearson", "summary")
    share = stats.binomtest(7, 7).proportion_ci(0.95, "exact").low
    # Where that share of groups has a correlation of 1, the others have -1 at worst.
    assert (cell.low, cell.high) == (pytest.approx(share - (1 - share)), 1)
