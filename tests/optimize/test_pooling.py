"""The choice by partial pooling: against the formulas written out, and in simulated searches."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.decisions import AbsoluteScale, Objective
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.optimize.pooling import (
    MANY_GROUPS,
    choose_points,
    group_values,
    posterior_means,
)

RNG = np.random.default_rng


def test_posterior_means_are_those_of_the_formulas() -> None:
    aspects, points, groups = 4, 20, 12
    rng = RNG(0)
    common = rng.normal(0, 0.1, points)
    values = [
        0.5 + common[:, None] + rng.normal(0, 0.1, points)[:, None]
        + rng.normal(0, 0.2, groups) + rng.normal(0, 0.3, (points, groups))
        for _ in range(aspects)
    ]  # fmt: skip
    means = np.array([v.mean(axis=1) for v in values])
    y = means - means.mean(axis=1, keepdims=True)
    noise = np.array([np.mean(np.var(v - v.mean(axis=0), axis=1, ddof=1)) / groups for v in values])
    products = y @ y.T / points
    shared = products[~np.eye(aspects, dtype=bool)].mean()
    own_variance = np.mean(np.diag(products) - noise) - shared
    assert shared > 0 < own_variance
    prior = np.full((aspects, aspects), shared) + own_variance * np.eye(aspects)
    expected = means - y + prior @ np.linalg.inv(prior + np.diag(noise)) @ y
    assert posterior_means(values) == pytest.approx(expected)


# --- what a group contributes ---


def group(name: str, ratings: tuple[float | None, ...], scores: tuple[float | None, ...]) -> GroupScores:
    return GroupScores(name, tuple(str(i) for i in range(len(ratings))), ratings, scores)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("spearman", {"good": 1, "reversed": -1, "constant": 0, "silent": 0, "partly": 1}),
        # A missing score is wrong by the whole scale.
        (
            "mae",
            {"good": 3 / 4, "reversed": 7 / 12, "constant": 3 / 4, "silent": 0, "partly": 1 / 2, "unranked": 5 / 6},
        ),
    ],
)
def test_within_groups_each_contributes_its_agreement(objective: Objective, expected: dict[str, float]) -> None:
    groups = [
        group("good", (1, 2, 3), (2, 3, 4)),
        group("reversed", (1, 2, 3), (4, 3, 2)),
        group("constant", (1, 2, 3), (3, 3, 3)),
        group("silent", (1, 2, 3), (None, None, None)),
        group("unranked", (2, 2, 2), (1, 2, 3)),
        group("partly", (1, None, 3, 2), (2, 9, 4, None)),
        group("unrated", (None, None), (1, 2)),
    ]
    assert group_values(groups, objective, "summary", AbsoluteScale(4.0, 4.0)) == pytest.approx(expected)


@pytest.mark.parametrize("groups", [8, 60])
def test_pooled_values_have_the_correlation_for_mean_and_its_jackknife_error(groups: int) -> None:
    rng = RNG(groups)
    ratings = rng.normal(size=(groups, 3))
    scores = ratings + rng.normal(size=(groups, 3))
    made_of = [group(str(i), tuple(ratings[i]), tuple(scores[i])) for i in range(groups)]
    values = np.array(list(group_values(made_of, "spearman", "sample").values()))
    assert values.mean() == pytest.approx(stats.spearmanr(ratings.ravel(), scores.ravel()).statistic)
    assert len(values) == min(groups, 25)
    blocks = [np.arange(groups) % len(values) == b for b in range(len(values))]
    without = [stats.spearmanr(ratings[~b].ravel(), scores[~b].ravel()).statistic for b in blocks]
    error = np.sqrt((len(values) - 1) / len(values) * np.sum((np.array(without) - np.mean(without)) ** 2))
    assert values.std(ddof=1) / np.sqrt(len(values)) == pytest.approx(error)


# --- the choice ---


def evaluated(means: list[list[float]], calls: list[float], groups: int) -> tuple[list[Floats], Floats]:
    """Points with these means on each aspect, the same in all groups."""
    return [np.tile(np.array(row)[:, None], groups) for row in means], np.array([calls] * len(means))


def test_with_many_groups_a_cheaper_point_near_the_best_is_chosen() -> None:
    means = [[0.400, 0.600, 0.603], [0.300, 0.500, 0.503]]
    many = evaluated(means, [1, 2, 7], MANY_GROUPS)
    assert choose_points(*many) == [1, 1]
    few = evaluated(means, [1, 2, 7], MANY_GROUPS - 2)
    assert choose_points(*few) == [2, 2]
    # What differs by more is not near.
    assert choose_points(*evaluated([[0.4, 0.6, 0.61]], [1, 2, 7], MANY_GROUPS)) == [2]


def test_at_nearly_equal_cost_the_simpler_is_chosen() -> None:
    assert choose_points(*evaluated([[0.2, 0.600, 0.602]], [1, 3.1, 3.0], MANY_GROUPS)) == [1]
    # The points stand in the order of plainness.
    assert choose_points(*evaluated([[0.5, 0.5, 0.5]], [1, 1, 1], 10)) == [0]


def test_an_uncertain_aspect_borrows_strength_from_the_others() -> None:
    """Where an aspect cannot tell two points apart by itself, the others decide; what it can tell stays its own."""
    rng = RNG(0)
    noise = rng.normal(0, 1, (4, 4, 10))
    noise -= noise.mean(axis=2, keepdims=True)
    means = np.array([[0.0, 0.20, 0.10, 0.05]] * 3 + [[0.0, 0.19, 0.20, 0.05]])
    unsure = list(means[:, :, None] + 0.3 * noise)
    assert [int(values.mean(axis=1).argmax()) for values in unsure] == [1, 1, 1, 2]
    assert choose_points(unsure, np.ones((4, 4))) == [1, 1, 1, 1]
    means[3] = [0.0, 0.05, 0.20, 0.05]
    sure = list(means[:, :, None] + 0.03 * noise)
    assert choose_points(sure, np.ones((4, 4))) == [1, 1, 1, 2]
