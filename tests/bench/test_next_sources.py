"""The bench of chosen sources finds what it is meant to find, in a pool where it is known."""

from __future__ import annotations

import numpy as np

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Scale
from tests.bench.next_sources import DESIGNS, Pool, simulated

SOURCES, APART = 80, 16
"""Of which the two judges differ in some."""


def pool() -> Pool:
    rng = np.random.default_rng(0)
    ids = tuple("abcdef")
    found: dict[str, dict[str, list[GroupScores]]] = {"first": {"x": []}, "second": {"x": []}}
    for i in range(SOURCES):
        ratings = rng.uniform(1, 5, size=6)
        both = ratings + rng.normal(size=6)
        other = ratings + 2 * rng.normal(size=6) if i < APART else both
        for name, scores in (("first", both), ("second", other)):
            made = GroupScores(str(i), ids, tuple(ratings.tolist()), tuple(scores.tolist()))
            found[name]["x"].append(made)
    texts = [f"{'dogs bark' if i % 2 else 'stocks fall'} {i}" for i in range(SOURCES)]
    return Pool(texts, found, {"x": Scale(1, 5)})


def test_sources_with_other_rankings_tell_more_of_the_difference() -> None:
    found = simulated(pool(), 20, 60, seed=0)
    assert set(found) == set(DESIGNS)
    assert found["random"]["difference"] == found["random"]["agreement"] == 1
    assert found["rankings"]["difference"] > 1.5
    assert found["rankings"]["given away"] <= found["random"]["given away"]
    # The kinds of this pool have nothing to do with its judges.
    assert 0.5 < found["kinds"]["difference"] < 2
