"""The choice by partial pooling: against the formulas written out, and in simulated searches."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.inference.absolute_agreement import AbsoluteScale
from debate_judge.optimize.search.pooling import (
    MANY_GROUPS,
    EvaluatedPoints,
    choose_points,
    group_values,
    posterior_means,
)

RNG = np.random.default_rng


def made(seed: int, aspects: int = 4, points: int = 20, groups: int = 12, spread: float = 0.1) -> list[Floats]:
    rng = RNG(seed)
    common = rng.normal(0, spread, points)
    return [
        0.5 + common[:, None] + rng.normal(0, spread, points)[:, None]
        + rng.normal(0, 0.2, groups) + rng.normal(0, 0.3, (points, groups))
        for _ in range(aspects)
    ]  # fmt: skip


# --- partial pooling ---


@pytest.mark.parametrize("seed", range(3))
def test_posterior_means_are_those_of_the_formulas(seed: int) -> None:
    values = made(seed)
    aspects, points, groups = 4, 20, 12
    means = np.array([[np.mean(values[a][p]) for p in range(points)] for a in range(aspects)])
    y = np.array([[means[a, p] - np.mean(means[a]) for p in range(points)] for a in range(aspects)])
    noise = []
    for a in range(aspects):
        ease = [np.mean([values[a][p][g] for p in range(points)]) for g in range(groups)]
        variances = [np.var([values[a][p][g] - ease[g] for g in range(groups)], ddof=1) for p in range(points)]
        noise.append(np.mean(variances) / groups)
    products = np.array([[np.mean(y[a] * y[b]) for b in range(aspects)] for a in range(aspects)])
    common = np.mean([products[a, b] for a in range(aspects) for b in range(aspects) if a != b])
    own = np.mean([products[a, a] - noise[a] for a in range(aspects)]) - common
    assert common > 0
    assert own > 0
    prior = np.full((aspects, aspects), common) + own * np.eye(aspects)
    expected = means - y + prior @ np.linalg.inv(prior + np.diag(noise)) @ y
    assert posterior_means(values) == pytest.approx(expected)


# --- what a group contributes ---


def group(name: str, ratings: tuple[float | None, ...], scores: tuple[float | None, ...]) -> GroupScores:
    return GroupScores(name, tuple(str(i) for i in range(len(ratings))), ratings, scores)


def test_within_groups_each_contributes_its_correlation() -> None:
    found = group_values(
        [
            group("good", (1, 2, 3), (2, 3, 4)),
            group("reversed", (1, 2, 3), (4, 3, 2)),
            group("constant", (1, 2, 3), (3, 3, 3)),
            group("silent", (1, 2, 3), (None, None, None)),
            group("unranked", (2, 2, 2), (1, 2, 3)),
            group("partly", (1, None, 3, 2), (2, 9, 4, None)),
        ],
        "spearman",
        "summary",
    )
    assert found == pytest.approx({"good": 1, "reversed": -1, "constant": 0, "silent": 0, "partly": 1})
    assert group_values([group("unranked", (2, 2), (1, 2))], "spearman", "summary") == {}


@pytest.mark.parametrize("groups", [8, 60])
def test_pooled_values_have_the_correlation_for_mean_and_its_jackknife_error(groups: int) -> None:
    rng = RNG(groups)
    ratings = rng.normal(size=(groups, 3))
    scores = ratings + rng.normal(size=(groups, 3))
    made_of = [group(str(i), tuple(ratings[i]), tuple(scores[i])) for i in range(groups)]
    found = np.array(list(group_values(made_of, "spearman", "sample").values()))
    assert found.mean() == pytest.approx(stats.spearmanr(ratings.ravel(), scores.ravel()).statistic)
    assert len(found) == min(groups, 25)
    blocks = [np.arange(groups) % len(found) == b for b in range(len(found))]
    without = [stats.spearmanr(ratings[~b].ravel(), scores[~b].ravel()).statistic for b in blocks]
    error = np.sqrt((len(found) - 1) / len(found) * np.sum((np.array(without) - np.mean(without)) ** 2))
    assert found.std(ddof=1) / np.sqrt(len(found)) == pytest.approx(error)


def test_over_all_candidates_a_missing_score_is_none_and_equal_scores_agree_with_nothing() -> None:
    ranked = [group(str(i), (i + 1.0, 5.0 - i), (i + 1.0, 5.0 - i)) for i in range(4)]
    silent = [group(str(i), (5.0, 5.0), (None, None)) for i in range(4, 8)]
    assert [*group_values(ranked + silent, "pearson", "sample").values()] == pytest.approx([1] * 8)
    equal = [group(str(i), (1, 2), (3, 3)) for i in range(4)]
    assert set(group_values(equal, "spearman", "sample").values()) == {0.0}
    assert set(group_values(silent, "spearman", "sample").values()) == {0.0}


def test_the_error_within_groups_counts_a_missing_score_as_wrong_by_the_whole_scale() -> None:
    found = group_values(
        [
            group("off by one", (1, 2, 3), (2, 3, 4)),
            group("silent", (1, 2), (None, None)),
            group("unranked", (2, 2), (2, 2)),
            group("half", (1, None, 3), (1, 5, None)),
            group("unrated", (None, None), (1, 2)),
        ],
        "mae",
        "summary",
        AbsoluteScale(4.0, 4.0),
    )
    assert found == pytest.approx({"off by one": 0.75, "silent": 0, "unranked": 1, "half": 0.5})


# --- the choice ---


def evaluated(means: list[list[float]], calls: list[float], groups: int, noise: float = 0.0) -> EvaluatedPoints:
    """Points with these means on each aspect; `noise` is what groups do to the points differently."""
    bumps = np.tile([1.0, -1.0], groups // 2)
    values = [np.array([mean + noise * (-1) ** p * bumps for p, mean in enumerate(row)]) for row in means]
    return EvaluatedPoints(values, np.array([calls] * len(means)), [[a] for a in range(len(means))])


def test_with_many_groups_a_cheaper_point_near_the_best_is_chosen() -> None:
    means = [[0.400, 0.600, 0.603], [0.300, 0.500, 0.503]]
    many = evaluated(means, [1, 2, 7], MANY_GROUPS)
    assert choose_points(many) == [1, 1]
    few = evaluated(means, [1, 2, 7], MANY_GROUPS - 2)
    assert choose_points(few) == [2, 2]
    # What differs by more is not near.
    assert choose_points(evaluated([[0.4, 0.6, 0.61]], [1, 2, 7], MANY_GROUPS)) == [2]


def test_at_nearly_equal_cost_the_simpler_is_chosen() -> None:
    assert choose_points(evaluated([[0.2, 0.600, 0.602]], [1, 3.1, 3.0], MANY_GROUPS)) == [1]
    # The points stand in the order of plainness.
    assert choose_points(evaluated([[0.5, 0.5, 0.5]], [1, 1, 1], 10)) == [0]


def test_an_uncertain_aspect_borrows_strength_from_the_others() -> None:
    """Where an aspect cannot tell two points apart by itself, the others decide; what it can tell stays its own."""
    rng = RNG(0)
    noise = rng.normal(0, 1, (4, 4, 10))
    noise -= noise.mean(axis=2, keepdims=True)
    means = np.array([[0.0, 0.20, 0.10, 0.05]] * 3 + [[0.0, 0.19, 0.20, 0.05]])
    unsure = EvaluatedPoints(list(means[:, :, None] + 0.3 * noise), np.ones((4, 4)), [[0], [1], [2], [3]])
    assert [int(values.mean(axis=1).argmax()) for values in unsure.values] == [1, 1, 1, 2]
    assert choose_points(unsure) == [1, 1, 1, 1]
    means[3] = [0.0, 0.05, 0.20, 0.05]
    sure = EvaluatedPoints(list(means[:, :, None] + 0.03 * noise), np.ones((4, 4)), [[0], [1], [2], [3]])
    assert choose_points(sure) == [1, 1, 1, 2]
