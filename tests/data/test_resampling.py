"""Intervals against the textbook formulas, from scipy's values on the same resampled groups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from debate_judge.data.agreement.tables import STATISTICS, GroupScores, Statistic, agreement_table
from tests.data.scored_groups import group

Array = NDArray[np.float64]
FUNCTIONS: dict[str, Any] = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


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
    cell = agreement_table({"x": scores_of(ratings, scores)}).aspects["x"]["summary"][name]
    values = [FUNCTIONS[name](r, s).statistic for r, s in zip(ratings, scores, strict=True)]
    assert (cell.low, cell.high) == pytest.approx(on_fishers_z(np.mean(values), stats.sem(values), 8))
    assert cell.method == "logit"


@pytest.mark.parametrize("name", STATISTICS)
def test_sample_intervals_are_t_with_the_jackknife_over_groups(name: Statistic) -> None:
    ratings, scores = random_values(20, 5, points=True)
    cell = agreement_table({"x": scores_of(ratings, scores)}).aspects["x"]["sample"][name]
    without = [
        FUNCTIONS[name](np.delete(ratings, i, axis=0).ravel(), np.delete(scores, i, axis=0).ravel()).statistic
        for i in range(20)
    ]
    error = math.sqrt(19 / 20 * np.sum((without - np.mean(without)) ** 2))
    assert cell.value is not None
    assert (cell.low, cell.high) == pytest.approx(on_fishers_z(cell.value, error, 20))
    assert cell.method == "logit"


def test_aspects_without_a_common_group_have_the_variances_of_their_means_added() -> None:
    ratings, scores = random_values(30, 12, points=False)
    groups = scores_of(ratings, scores)
    cell = agreement_table({"a": groups[:10], "b": groups[10:]}).average["summary"]["pearson"]
    values = np.array([stats.pearsonr(r, s).statistic for r, s in zip(ratings, scores, strict=True)])
    # Each mean has the variance s^2 (n - 1) / n of its own groups; 30 groups in all give the degrees of freedom.
    variance = (values[:10].var() / 10 + values[10:].var() / 20) / 4 * 30 / 29
    middle = (values[:10].mean() + values[10:].mean()) / 2
    assert (cell.low, cell.high) == pytest.approx(on_fishers_z(middle, np.sqrt(variance), 30))


def test_bundles_give_the_interval_that_single_groups_would() -> None:
    rng = np.random.default_rng(2)
    ratings = rng.normal(size=(6000, 3))
    scores = ratings + rng.normal(size=ratings.shape)
    agreement = agreement_table({"x": scores_of(ratings, scores)}, levels=("sample",))
    # 18,000 independent pairs: the standard error of Fisher's z is the normal one, and t is as good as normal.
    cell = agreement.aspects["x"]["sample"]["pearson"]
    expected = stats.pearsonr(ratings.ravel(), scores.ravel()).confidence_interval(0.95)
    width = expected.high - expected.low
    assert (cell.low, cell.high) == pytest.approx((expected.low, expected.high), abs=0.06 * width)


def test_agreement_at_its_end_in_every_group_has_the_exact_bound_of_clopper_and_pearson() -> None:
    groups = [group(f"d{i}", [1, 2, 3], [1, 2, 3]) for i in range(7)]
    groups += [group(f"c{i}", [1, 1, 1], [1, 2, 3]) for i in range(4)]
    cell = agreement_table({"x": groups}).aspects["x"]["summary"]["pearson"]
    share = stats.binomtest(7, 7).proportion_ci(0.95, "exact").low
    # Where that share of groups has a correlation of 1, the others have -1 at worst.
    assert (cell.low, cell.high, cell.method) == (pytest.approx(share - (1 - share)), 1, "exact")
