"""Intervals against a plain cluster bootstrap with scipy on the same resampled groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from debate_judge.data.agreement.bootstrap import Pairs, bundle, resample
from debate_judge.data.agreement.correlations import correlations
from debate_judge.data.agreement.levels import sample_level, system_level
from debate_judge.data.agreement.tables import LEVELS, STATISTICS, GroupScores, agreement_table

Array = NDArray[np.float64]
FUNCTIONS: dict[str, Any] = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def scores_of(ratings: Array, scores: Array) -> list[GroupScores]:
    ids = tuple(f"s{i}" for i in range(ratings.shape[1]))
    rows = enumerate(zip(ratings.tolist(), scores.tolist(), strict=True))
    return [GroupScores(f"g{i}", ids, tuple(r), tuple(s)) for i, (r, s) in rows]


def made(groups: int, size: int, *, points: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng(groups)
    quality = rng.normal(3, 1, size=(groups, size)) + rng.normal(size=(groups, 1))
    ratings, scores = (quality + rng.normal(size=quality.shape) for _ in range(2))
    return (np.round(ratings), np.round(scores)) if points else (ratings, scores)


def brute_force(ratings: Array, scores: Array, resamples: int, seed: int) -> dict[str, dict[str, list[float]]]:
    """level -> statistic -> replicates."""
    rng = np.random.default_rng(seed)
    found: dict[str, dict[str, list[float]]] = {level: {s: [] for s in STATISTICS} for level in LEVELS}
    varied = (np.ptp(ratings, axis=1) > 0) & (np.ptp(scores, axis=1) > 0)
    within = {
        name: np.array(
            [f(*pair).statistic if ok else np.nan for ok, *pair in zip(varied, ratings, scores, strict=True)]
        )
        for name, f in FUNCTIONS.items()
    }
    for _ in range(resamples):
        drawn = rng.integers(len(ratings), size=len(ratings))
        x, y = ratings[drawn], scores[drawn]
        for name, function in FUNCTIONS.items():
            found["summary"][name].append(float(np.nanmean(within[name][drawn])))
            found["sample"][name].append(float(function(x.ravel(), y.ravel()).statistic))
            # Rounded, for the means of equal sums may differ in their last digits.
            found["system"][name].append(float(function(x.mean(0).round(10), y.mean(0).round(10)).statistic))
    return found


@pytest.mark.parametrize(
    ("groups", "size", "points"), [(20, 5, True), (20, 12, False)], ids=["tables", "continuous scores"]
)
def test_intervals_equal_a_plain_cluster_bootstrap(groups: int, size: int, points: bool) -> None:
    ratings, scores = made(groups, size, points=points)
    table = agreement_table({"x": scores_of(ratings, scores)}, resamples=150, seed=5).aspects["x"]
    for level, by_statistic in brute_force(ratings, scores, 150, 5).items():
        for name, replicates in by_statistic.items():
            found = table[level][name]  # type: ignore[index]
            assert (found.low, found.high) == pytest.approx(np.quantile(replicates, (0.025, 0.975)), abs=1e-9)


@pytest.mark.parametrize("name", ["spearman", "kendall"])
def test_binned_intervals_are_near_the_exact_ones_and_centred(name: str) -> None:
    # 9,000 different values a side: more than any exact route takes.
    ratings, scores = made(90, 100, points=False)
    found = agreement_table({"x": scores_of(ratings, scores)}, resamples=60, seed=5, levels=("sample",))
    rng, replicates = np.random.default_rng(5), []
    for _ in range(60):
        drawn = rng.integers(90, size=90)
        replicates.append(FUNCTIONS[name](ratings[drawn].ravel(), scores[drawn].ravel()).statistic)
    cell = found.aspects["x"]["sample"][name]  # type: ignore[index]
    assert (cell.low, cell.high) == pytest.approx(np.quantile(replicates, (0.025, 0.975)), abs=0.003)
    assert cell.value == pytest.approx(FUNCTIONS[name](ratings.ravel(), scores.ravel()).statistic, abs=1e-9)


def test_replicates_of_every_group_once_are_the_value() -> None:
    ratings, scores = made(90, 100, points=False)
    group = np.repeat(np.arange(90), 100)
    pairs = Pairs(ratings.ravel(), scores.ravel(), group, np.tile(np.arange(100), 90), bundle(90, 0))
    for estimate in (sample_level(pairs, STATISTICS), system_level(pairs, STATISTICS)):
        assert estimate.replicate(np.ones((90, 1)))[:, 0] == pytest.approx(estimate.values, abs=1e-12)


def test_groups_are_drawn_themselves_until_they_are_many() -> None:
    assert bundle(4096, seed=0).tolist() == list(range(4096))
    sizes = np.bincount(bundle(10_000, seed=0))
    assert len(sizes) == 4096
    assert set(sizes) == {2, 3}
    assert not np.array_equal(bundle(10_000, seed=0), bundle(10_000, seed=1))


def test_bundles_give_the_interval_that_single_groups_would() -> None:
    ratings, scores = made(6000, 3, points=False)
    found = agreement_table({"x": scores_of(ratings, scores)}, resamples=2000, levels=("summary",))
    values = correlations(ratings, scores, ["pearson"])[0]
    # A mean of 6,000 independent values: the normal interval is the exact one for all that matters here.
    half = 1.96 * values.std() / np.sqrt(6000)
    cell = found.aspects["x"]["summary"]["pearson"]
    assert cell.value == pytest.approx(values.mean())
    assert (cell.low, cell.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_many_systems_are_resampled_less_often_unless_resamples_are_few() -> None:
    rng = np.random.default_rng(0)
    system = np.tile(np.arange(1000), 4)
    pairs = Pairs(rng.normal(size=4000), rng.normal(size=4000), np.repeat(np.arange(4), 1000), system, bundle(4, 0))
    estimate = system_level(pairs, ["pearson"])
    assert estimate.stride == 4
    (plenty,) = resample([estimate], 4, resamples=1000, seed=0)
    (few,) = resample([estimate], 4, resamples=300, seed=0)
    assert np.flatnonzero(~np.isnan(plenty[0])).tolist() == list(range(0, 1000, 4))
    assert not np.isnan(few).any()
    # The same draws: what is computed does not depend on how many are skipped.
    assert plenty[0, :300:4] == pytest.approx(few[0, ::4])


def test_resamples_without_any_defined_group_are_left_out_of_the_interval() -> None:
    ids = ("1", "2", "3")
    defined = [GroupScores(f"d{i}", ids, (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)) for i in range(2)]
    constant = [GroupScores(f"c{i}", ids, (1.0, 1.0, 1.0), (1.0, 2.0, 3.0)) for i in range(4)]
    found = agreement_table({"x": defined + constant}, resamples=200).aspects["x"]["summary"]["pearson"]
    assert (found.low, found.high) == pytest.approx((1, 1))


def test_progress_adds_up_to_the_resamples() -> None:
    done: list[int] = []
    ratings, scores = made(20, 5, points=True)
    agreement_table({"x": scores_of(ratings, scores)}, resamples=300, progress=done.append)
    assert sum(done) == 300
    assert len(done) > 1
