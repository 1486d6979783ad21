"""A sample of sources has the probabilities that it says, and goes through the kinds; rankings' distance by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.inference.source_sampling import (
    cluster_texts,
    inclusion_probabilities,
    rank_distance,
    systematic_sample,
)


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
    found = inclusion_probabilities(np.array(priority, dtype=float), count)
    assert found == pytest.approx(np.array(expected))
    assert found.sum() == pytest.approx(count)


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
