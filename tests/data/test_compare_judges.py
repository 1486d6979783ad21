"""Two judges on the same groups: what is compared, what counts 0, intervals, p-values and their correction."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from debate_judge.data.agreement.correlations import compare
from debate_judge.data.agreement.figures import (
    LEVELS,
    Figure,
    GroupScores,
    detectable_difference,
    groups_to_detect,
    holm_adjusted,
    sign_flip_p_value,
)
from debate_judge.data.schema import Level
from tests.data.scored_groups import group, random_groups


@pytest.mark.parametrize("level", LEVELS)
def test_a_clearly_better_judge_its_mirror_and_itself(level: Level) -> None:
    good, bad = {"x": random_groups(701, noise=0.2)}, {"x": random_groups(702, noise=3.0)}
    better, worse = (compare(*pair, level=level) for pair in ((good, bad), (bad, good)))
    same = compare(good, good, level=level)
    assert worse.value == pytest.approx(-better.value)
    if level == "system":
        assert better.value > 0
        assert (better.low, better.p_value, same.value, same.groups) == (None, None, 0, 30)
        return
    assert better.low > 0
    # None of the random flips reaches the difference found: it would have to flip nearly all 30 groups.
    assert better.p_value == worse.p_value == pytest.approx(2 / 100_001)
    assert worse.high == pytest.approx(-better.low)
    assert (same.value, same.low, same.high, same.p_value, same.groups) == (0, 0, 0, 1, 30)


def test_compared_are_the_same_candidates_and_groups() -> None:
    ids = ["1", "2", "3", "4"]
    a = [
        group("both", [1, 2, 3, 4], [1, 2, 3, 4], ids),  # 1 - 0.8
        group("judge constant", [1, 2, 3, 4], [5, 5, 5, 5], ids),  # 0 - 1
        group("humans constant", [3, 3, 3, 3], [1, 2, 3, 4], ids),  # left out for both
        group("unscored by one", [1, 2, 3, 4], [None, 2, 3, 1], ids),  # over 2, 3, 4: -0.5 - 1
    ]
    b = [
        group("unscored by one", [4, 3, 2, 1], [4, 3, 2, 9], ids[::-1]),
        group("humans constant", [3, 3, 3, 3], [1, 2, 3, 4], ids),
        group("judge constant", [1, 2, 3, 4], [1, 2, 3, 4], ids),
        group("both", [1, 2, 3, 4], [1, 3, 2, 4], ids),
    ]
    difference = compare({"x": a}, {"x": b})
    assert difference.value == pytest.approx((0.2 - 1 - 1.5) / 3)
    assert (difference.groups, difference.p_value) == (3, None)


def test_differences_are_averaged_over_aspects_that_humans_ranked() -> None:
    ids = ["1", "2", "3"]
    up, down, flat = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.0]
    a = {name: [group("g", rated, up, ids)] for name, rated in (("x", up), ("y", down), ("z", flat))}
    b = {**a, "x": [group("g", up, flat, ids)]}
    # x: 1 - 0, y: -1 - (-1), z: humans ranked nothing, which alone is no difference.
    assert compare(a, b).value == pytest.approx(0.5)
    assert compare({"z": a["z"]}, {"z": b["z"]}) == Figure(groups=0)


def test_holm_step_down() -> None:
    # Ascending 0.01 * 3, 0.03 * 2, 0.04 * 1; none may be below the one before.
    assert holm_adjusted({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm_adjusted({"a": 0.9, "b": 0.6}) == {"a": 1.0, "b": 1.0}
    assert holm_adjusted({}) == {}
    # What has no p-value is no comparison.
    assert holm_adjusted({"a": 0.02, "b": None, "c": 0.5}) == {"a": pytest.approx(0.04), "b": None, "c": 0.5}


def test_the_interval_is_that_of_a_paired_t_test_and_the_p_value_that_of_all_sign_flips() -> None:
    a, b = random_groups(701, noise=0.5, groups=9), random_groups(702, noise=1.0, groups=9)
    difference = compare({"x": a}, {"x": b})
    apart = [
        stats.spearmanr(x.ratings, x.scores).statistic - stats.spearmanr(y.ratings, y.scores).statistic
        for x, y in zip(a, b, strict=True)
    ]
    expected = stats.ttest_1samp(apart, 0).confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high))
    assert difference.deviation == pytest.approx(np.std(apart, ddof=1))
    flipped = stats.permutation_test((apart, np.zeros(9)), lambda x, y: np.mean(x - y), permutation_type="samples")
    assert difference.p_value == pytest.approx(flipped.pvalue)
    # Of five groups no p-value could be below .05.
    defined = [compare({"x": a[:n]}, {"x": b[:n]}).p_value is not None for n in (5, 6)]
    assert defined == [False, True]


def test_many_groups_are_flipped_at_random_near_the_exact_p_value() -> None:
    apart = np.random.default_rng(3).normal(0.3, 1.0, size=20)
    sums = np.zeros(1)
    for value in apart:
        sums = np.concatenate([sums + value, sums - value])
    exact = float(np.mean(np.abs(sums) >= abs(apart.sum()) - 1e-12))
    first, same_seed, other_seed = (sign_flip_p_value(apart, seed=seed) for seed in (0, 0, 1))
    assert first == pytest.approx(exact, abs=4 * math.sqrt(exact / 100_000))
    assert first == same_seed != other_seed
    many = np.random.default_rng(4).normal(0.1, 1.0, size=100)
    # With so many groups the sum of flips is as good as normal.
    assert sign_flip_p_value(many, seed=0) == pytest.approx(stats.ttest_1samp(many, 0).pvalue, abs=0.02)


def test_pooled_scores_are_compared_by_the_pseudo_values_of_groups() -> None:
    a, b = random_groups(701, noise=0.4, groups=7), random_groups(702, noise=1.2, groups=7)
    difference = compare({"x": a}, {"x": b}, level="sample")

    def pooled(side: Sequence[GroupScores]) -> float:
        pairs = [pair for g in side for pair in zip(g.ratings, g.scores, strict=True)]
        return float(stats.spearmanr(np.array(pairs, dtype=float)).statistic)

    whole = pooled(a) - pooled(b)
    apart = [7 * whole - 6 * (pooled(a[:i] + a[i + 1 :]) - pooled(b[:i] + b[i + 1 :])) for i in range(7)]
    shifted = np.array(apart) - np.mean(apart) + whole
    expected = stats.ttest_1samp(shifted, 0).confidence_interval(0.95)
    assert (difference.value, difference.low, difference.high) == pytest.approx((whole, expected.low, expected.high))
    flipped = stats.permutation_test((shifted, np.zeros(7)), lambda x, y: np.mean(x - y), permutation_type="samples")
    assert difference.p_value == pytest.approx(flipped.pvalue)


def test_power_is_that_of_the_noncentral_t_distribution() -> None:
    # Deviations and figures of the project's own measurements: compiled against untuned, debate against single call.
    assert groups_to_detect(0.02, 0.042) == 37
    for difference, deviation in ((0.02, 0.042), (0.1, 0.14), (0.05, 0.26)):
        groups = groups_to_detect(difference, deviation)
        powers = []
        for n in (groups - 1, groups):
            limit, shift = stats.t.ppf(0.975, n - 1), difference * math.sqrt(n) / deviation
            powers.append(stats.nct.sf(limit, n - 1, shift) + stats.nct.cdf(-limit, n - 1, shift))
        assert powers[0] < 0.8 <= powers[1]
    detectable = detectable_difference(0.14, 20)
    limit, shift = stats.t.ppf(0.975, 19), detectable * math.sqrt(20) / 0.14
    assert stats.nct.sf(limit, 19, shift) + stats.nct.cdf(-limit, 19, shift) == pytest.approx(0.8, abs=1e-6)
