"""Several raters: what they agree on, and how a judge stands beside them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from debate_judge.data.agreement.correlations import (
    compare_with_raters,
    error_and_bias,
    krippendorff_alpha,
)
from debate_judge.data.agreement.decisions import concordance
from debate_judge.data.agreement.figures import Figure, GroupScores, plain

IDS = tuple(f"s{i}" for i in range(8))


def rated(noise: float, *, groups: int = 40) -> list[GroupScores]:
    """A judge whose scores correlate .7 with the quality that each of three raters sees with some noise."""
    rng = np.random.default_rng(5)
    quality = rng.normal(size=(groups, 8))
    seen = quality[..., None] + noise * rng.normal(size=(groups, 8, 3))
    scores = 0.7 * quality + math.sqrt(1 - 0.7**2) * rng.normal(size=quality.shape)
    rows = enumerate(zip(seen.mean(axis=2).tolist(), scores.tolist(), seen.tolist(), strict=True))
    return [GroupScores(f"g{i}", IDS, tuple(r), tuple(s), tuple(map(tuple, ratings))) for i, (r, s, ratings) in rows]


def test_alpha_is_that_of_the_textbook_example() -> None:
    # Three coders and 15 units, some of them missing (Krippendorff): interval alpha .811.
    coders = [
        [0, 0, 0, 0, 0, 3, 4, 1, 2, 1, 1, 3, 3, 0, 3],
        [1, 0, 2, 1, 3, 3, 4, 3, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 2, 1, 3, 4, 4, 0, 2, 1, 1, 3, 3, 0, 4],
    ]
    units = [tuple(float(v) for v in unit if v) for unit in zip(*coders, strict=True)]
    assert krippendorff_alpha(units) == pytest.approx(0.811, abs=5e-4)


def test_alpha_is_1_for_agreement_about_0_for_chance_and_none_without_variance() -> None:
    rng = np.random.default_rng(0)
    assert krippendorff_alpha([(v, v) for v in (1.0, 2.0, 5.0)]) == 1
    assert krippendorff_alpha(rng.normal(size=(4000, 3)).tolist()) == pytest.approx(0, abs=0.03)
    assert krippendorff_alpha([(3.0, 3.0), (3.0, 3.0)]) is None
    assert krippendorff_alpha([(3.0,), (2.0,)]) is None
    # The mean of three times .7 is not exactly .7, so that the variance is not exactly 0.
    assert krippendorff_alpha([(0.7, 0.7, 0.7)] * 4) is None


def test_concordance_of_points_is_the_weighted_kappa_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(1, 6, size=200).astype(float)
    y = np.clip(x + rng.integers(-1, 2, size=x.shape), 1, 5)
    assert concordance(x, y) == pytest.approx(cohen_kappa_score(x, y, weights="quadratic"))
    # One value on both sides, whatever its rounding, and nothing at all.
    assert math.isnan(concordance(np.full(3, 0.1), np.full(3, 0.1)))
    assert math.isnan(concordance(np.empty(0), np.empty(0)))


def test_each_rater_is_compared_with_the_mean_of_the_others_and_so_is_the_judge() -> None:
    groups = rated(0.8, groups=10)
    comparison = compare_with_raters(groups)
    humans, judge = [], []
    for i in range(3):
        for g in groups:
            values = np.array(g.raters)
            others = np.delete(values, i, axis=1).mean(axis=1)
            humans.append(stats.spearmanr(values[:, i], others).statistic)
            judge.append(stats.spearmanr(g.scores, others).statistic)
    assert comparison.ceiling.value == pytest.approx(np.mean(humans))
    assert comparison.judge.value == pytest.approx(np.mean(judge))
    assert comparison.below_ceiling.value == pytest.approx(np.mean(judge) - np.mean(humans))
    # One value per group: the mean over raters.
    apart = (np.array(judge) - np.array(humans)).reshape(3, 10).mean(axis=0)
    expected = stats.ttest_1samp(apart, 0).confidence_interval(0.95)
    assert (comparison.below_ceiling.low, comparison.below_ceiling.high) == pytest.approx((expected.low, expected.high))


def test_error_and_bias_are_means_with_t_intervals_over_groups() -> None:
    groups = rated(0.5, groups=7)
    error, bias = error_and_bias(groups)
    apart = np.array([np.subtract(g.scores, g.ratings) for g in groups])  # type: ignore[arg-type]
    for estimate, values in ((error, np.abs(apart).mean(axis=1)), (bias, apart.mean(axis=1))):
        expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        assert estimate.value == pytest.approx(values.mean())
        assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high))


def test_single_ratings_unequal_lists_and_unscored_candidates_are_borne() -> None:
    single = compare_with_raters(
        [GroupScores("g", ("a", "b", "c"), (1.0, 2.0, None), (2.0, 2.0, 4.0), ((1.0,), (2.0,), ()))]
    )
    assert (single.raters, single.error, single.ceiling, single.alpha) == (1, Figure(0.5), Figure(), None)
    raters = ((1.0, 2.0), (2.0, 2.0, 2.0), (3.0,), (), (4.0, 5.0, 3.0))
    ratings, scores = (1.5, 2.0, 3.0, None, 4.0), (1.0, None, 3.0, 4.0, 5.0)
    several = compare_with_raters([GroupScores(name, tuple("abcde"), ratings, scores, raters) for name in "gh"])
    assert (several.raters, several.alpha is None) == (3, False)
    assert json.dumps([plain(single), plain(several)], allow_nan=False)
