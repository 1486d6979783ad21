"""Agreement of two samples of sources, and how sources are sampled."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from debate_judge.data.agreement.intervals import t_quantile
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import agreement_table, compare
from debate_judge.data.inference.drift import (
    TwoSampleDifference,
    agreement_estimate,
    estimate_from_interval,
    margin_verdict,
)
from debate_judge.data.inference.non_inferiority import Margins, ScoreMapping, compare_lms
from debate_judge.data.inference.source_sampling import (
    cluster_texts,
    inclusion_probabilities,
    rank_distance,
    systematic_sample,
)
from debate_judge.data.schema import Scale

# --- two samples ---


def groups(seed: int, noise: float, count: int = 12) -> list[GroupScores]:
    rng, noise_rng = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    sample = []
    for number in range(count):
        ratings = rng.integers(1, 6, 6) * 1.0
        scores = np.clip(ratings + noise * noise_rng.normal(size=6), 1, 5)
        sample.append(GroupScores(f"g{number}", tuple("abcdef"), tuple(ratings), tuple(scores)))
    return sample


def test_the_standard_error_is_that_of_the_tables_interval() -> None:
    scores = {"x": groups(1, 1.0), "y": groups(5, 2.0)}
    estimate = agreement_estimate(scores, "spearman", "summary")
    cell = agreement_table(scores).average["summary"]["spearman"]
    assert cell.high is not None
    assert estimate.value == pytest.approx(cell.value)
    half = (math.atanh(cell.high) - math.atanh(cell.value)) * (1 - cell.value**2)
    assert estimate.standard_error == pytest.approx(half / t_quantile(12))
    published = estimate_from_interval(cell.value, cell.low, cell.high, 12)
    assert (published.standard_error, published.sources) == (pytest.approx(estimate.standard_error), estimate.sources)


@pytest.mark.parametrize("level", ["sample", "system"])
def test_other_levels_have_the_bootstraps_error(level: str) -> None:
    estimate = agreement_estimate({"x": groups(2, 1.0)}, "pearson", level)  # type: ignore[arg-type]
    assert 0 < estimate.standard_error < 0.5


def test_verdicts_follow_the_interval() -> None:
    def between(low: float, high: float) -> TwoSampleDifference:
        return TwoSampleDifference((low + high) / 2, low, high, 0.5)

    assert margin_verdict(between(-0.04, 0.1), 0.05) == "holds"
    assert margin_verdict(between(-0.2, -0.06), 0.05) == "worse"
    assert margin_verdict(between(-0.2, 0.1), 0.05) == margin_verdict(None, 0.05) == "unclear"


def test_non_inferiority_is_the_paired_interval_above_the_margin() -> None:
    old, new = {"x": groups(3, 0.4)}, {"x": groups(3, 0.5)}
    apart = compare(new, old)
    mappings = {"x": ScoreMapping(Scale(1, 5), True, None)}
    for margin, carries in ((-apart.low + 0.001, True), (-apart.low - 0.001, False)):
        result = compare_lms(old, new, mappings, Margins(margin, shift=1.0))
        assert result.difference == apart
        assert (result.verdict == "carry") is carries
    assert result.sufficient_sources is not None


# --- the next sources ---


def group(*scores: float | None) -> GroupScores:
    return GroupScores("g", tuple(f"c{i}" for i in range(len(scores))), (None,) * len(scores), scores)


@pytest.mark.parametrize(
    ("priority", "count", "expected"),
    [
        # A floor of a quarter for all, the rest by priority: sizes .25, .25, .25, 3.25.
        ([0, 0, 0, 4], 1, [0.0625, 0.0625, 0.0625, 0.8125]),
        ([0, 0, 0, 0], 2, [0.5, 0.5, 0.5, 0.5]),
        # The first would have more than 1: it is taken, and the others share what is left.
        ([9, 1, 1, 1], 2, [1, 1 / 3, 1 / 3, 1 / 3]),
        ([3, 1, 0, 0], 4, [1, 1, 1, 1]),
    ],
)
def test_probabilities_follow_the_priority(priority: Sequence[float], count: int, expected: Sequence[float]) -> None:
    probabilities = inclusion_probabilities(np.array(priority, dtype=float), count)
    assert probabilities == pytest.approx(np.array(expected))
    assert probabilities.sum() == pytest.approx(count)


def test_sources_come_as_often_as_their_probability_says() -> None:
    rng = np.random.default_rng(0)
    priority = rng.exponential(size=30)
    probabilities = inclusion_probabilities(priority, 8)
    kinds = rng.integers(4, size=30)
    times, values, totals = np.zeros(30), rng.normal(size=30), []
    for _ in range(4000):
        which = systematic_sample(probabilities, kinds, rng)
        assert len(which) == len(set(which)) == 8
        times[which] += 1
        totals.append((values[which] / probabilities[which]).sum())
    assert np.abs(times / 4000 - probabilities).max() < 0.03
    # Weighted by 1 / probability a chosen sample still speaks for all.
    assert np.mean(totals) == pytest.approx(values.sum(), abs=4 * np.std(totals) / math.sqrt(4000))


def test_every_kind_gets_its_share() -> None:
    kinds = np.repeat([0, 1, 2], [2, 4, 6])
    for seed in range(20):
        which = systematic_sample(np.full(12, 0.5), kinds, np.random.default_rng(seed))
        assert np.bincount(kinds[which]).tolist() == [1, 2, 3]


def test_kinds_are_those_of_the_words() -> None:
    texts = ["the dog barks at the dog", "a dog barks", "stocks and bonds fell", "bonds fell and stocks rose"]
    kinds = cluster_texts(texts, 2)
    assert kinds[0] == kinds[1] != kinds[2] == kinds[3]
    assert cluster_texts(["same"] * 3, 2).tolist() == [0, 0, 0]
    assert set(cluster_texts(["?", "!", "words", "words too"], 2)) == {0, 1}


def test_the_distance_of_two_rankings() -> None:
    first = [group(1, 2, 3), group(1, 2, 3), group(1, None, 3), group(2, 2, 2), group(None, 1, None)]
    second = [group(2, 4, 9), group(3, 2, 1), group(1, 5, 2), group(1, 2, 3), group(1, 2, 3)]
    half = math.sqrt((0.5**2 + 0 + 0.5**2) / 3)
    assert rank_distance(first, second) == pytest.approx([0, math.sqrt(2 / 3), 0, half, 0])


def test_single_texts_are_ranked_among_all() -> None:
    first, second = [group(1), group(2), group(3), group(None)], [group(1), group(3), group(2), group(1)]
    assert rank_distance(first, second) == pytest.approx([0, 0.5, 0.5, 0])
