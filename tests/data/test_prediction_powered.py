"""Prediction-powered means: against closed forms, and what the tables of systems say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.inference.drift import SampleEstimate, compare_samples
from debate_judge.data.inference.prediction_powered import measure_systems, ppi_estimate

RATED, OTHERS = 12, 40


def ratings_and_scores(seed: int, noise: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """Ratings, the last of them missing, and scores on another scale."""
    rng = np.random.default_rng(seed)
    ratings = rng.normal(3, 1, RATED + OTHERS)
    scores = 20 * ratings + 20 * noise * rng.normal(size=RATED + OTHERS)
    ratings[RATED:] = np.nan
    return ratings, scores


def test_weight_and_value_are_those_of_the_closed_form() -> None:
    ratings, scores = ratings_and_scores(1)
    estimate = ppi_estimate(ratings[:, None], scores[:, None])
    y, f, g = ratings[:RATED], scores[:RATED], scores[RATED:]
    # The tuning of PPI++ for a mean, with the variance of scores as both samples estimate it.
    pooled = f.var() / RATED + g.var() / OTHERS
    weight = np.cov(y, f, ddof=0)[0, 1] / RATED / pooled
    assert estimate.weight == pytest.approx(weight)
    assert estimate.value == pytest.approx(y.mean() + weight * (g.mean() - f.mean()))
    assert (estimate.rated, estimate.others) == (RATED, OTHERS)
    assert estimate.saved == pytest.approx(
        RATED * ((estimate.alone_high - estimate.alone_low) / (estimate.high - estimate.low)) ** 2 - RATED
    )


def test_ratings_alone_are_the_classical_interval() -> None:
    ratings, scores = ratings_and_scores(2)
    estimate = ppi_estimate(ratings[:, None], scores[:, None])
    classical = stats.ttest_1samp(ratings[:RATED], 0).confidence_interval()
    assert (estimate.alone_low, estimate.alone_high) == pytest.approx(tuple(classical))


def test_a_scale_of_scores_changes_nothing_but_the_weight() -> None:
    ratings, scores = ratings_and_scores(3)
    estimate = ppi_estimate(ratings[:, None], scores[:, None])
    rescaled = ppi_estimate(ratings[:, None], scores[:, None] / 100 - 7)
    assert (estimate.value, estimate.low) == pytest.approx((rescaled.value, rescaled.low))
    assert rescaled.weight == pytest.approx(100 * estimate.weight)


def test_an_interval_is_never_wider_than_that_of_ratings_alone() -> None:
    for seed in range(60):
        ratings, scores = ratings_and_scores(seed, noise=50)
        estimate = ppi_estimate(ratings[:, None], scores[:, None])
        assert estimate.high - estimate.low <= estimate.alone_high - estimate.alone_low + 1e-12
        assert estimate.saved >= 0


def test_a_difference_is_that_of_the_paired_sources() -> None:
    rng = np.random.default_rng(4)
    ratings, scores = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    ratings[10:] = np.nan
    both = ppi_estimate(ratings, scores, np.array([1.0, -1.0]))
    paired = ppi_estimate(ratings[:, :1] - ratings[:, 1:], scores[:, :1] - scores[:, 1:])
    assert (both.value, both.low, both.weight) == pytest.approx((paired.value, paired.low, paired.weight))


def test_equal_ratings_have_the_exact_bound() -> None:
    ratings = np.full((20, 1), np.nan)
    ratings[:8] = 5.0
    estimate = ppi_estimate(ratings, np.arange(20.0)[:, None], value_range=(1, 5))
    # With 8 of 8 sources at 5, at most this share of all sources is not, and these may be at 1.
    away = 1 - 0.025 ** (1 / 8)
    assert (estimate.low, estimate.high) == pytest.approx((5 - 4 * away, 5.0))


def test_too_few_rated_sources_give_no_estimate() -> None:
    ratings = np.full((9, 1), np.nan)
    ratings[:2] = 3.0
    assert ppi_estimate(ratings, np.ones((9, 1))) is None


def groups_of(means: dict[str, float], count: int, rated: int, seed: int) -> list[GroupScores]:
    rng = np.random.default_rng(seed)
    groups = []
    for number in range(count):
        true = {name: mean + rng.normal(0, 0.5) for name, mean in means.items()}
        scores = tuple(value + rng.normal(0, 0.2) for value in true.values())
        ratings = tuple(value if number < rated else None for value in true.values())
        groups.append(GroupScores(f"g{number}", tuple(means), ratings, scores))
    return groups


def test_ranks_are_those_that_differences_support() -> None:
    table = measure_systems(groups_of({"far": 1.0, "near": 3.0, "best": 3.05, "rare": 2.0}, 60, 15, seed=5))
    ranks = {row.system: (row.best_rank, row.worst_rank) for row in table.systems}
    assert ranks["far"] == (4, 4)
    assert ranks["near"] == ranks["best"] == (1, 2)
    assert (table.rated, table.others, table.left_out) == (15, 45, ())
    assert all(row.corrected >= row.difference.p_value for row in table.differences)
    assert len(table.differences) == 6
    assert table.rated_minus_others.p_value > 0.01


def test_rated_sources_that_were_not_drawn_at_random_are_noticed() -> None:
    groups = groups_of({"a": 3.0, "b": 3.0}, 60, 60, seed=6)
    best = sorted(groups, key=lambda g: -sum(s or 0 for s in g.scores))
    chosen = {g.group for g in best[:15]}
    partly_rated = [
        g if g.group in chosen else GroupScores(g.group, g.candidates, (None, None), g.scores) for g in groups
    ]
    difference = measure_systems(partly_rated).rated_minus_others
    assert difference.value > 0
    assert difference.p_value < 0.001


def test_two_samples_are_welchs() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(0, 1, 9), rng.normal(0.5, 3, 14)
    difference = compare_samples(*(SampleEstimate.of_mean(list(sample[:, None])) for sample in (x, y)))
    expected = stats.ttest_ind(x, y, equal_var=False)
    assert difference.p_value == pytest.approx(expected.pvalue)
    assert (difference.low, difference.high) == pytest.approx(tuple(expected.confidence_interval()))


def test_a_ratio_over_sources_of_one_text_each_is_their_mean() -> None:
    values = np.array([1.0, 4.0, 2.0, 5.0])
    estimate = SampleEstimate.of_mean([np.array([v]) for v in values])
    assert estimate.value == values.mean()
    assert estimate.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(4))
