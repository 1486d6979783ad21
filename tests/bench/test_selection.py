"""The benchmark of the choice, on made-up agreement instead of an LM's."""

from __future__ import annotations

import numpy as np

from debate_judge.optimize.search.points import Point
from tests.bench.selection import ROUNDS, RULES, Scored, measured

POINTS = [Point("none", "strict", 0, False, "given"), Point("none", "strict", ROUNDS, False, "given")]
POINTS += [Point("none", f"other {n}", 1, False, "given") for n in range(20)]


def made(best: float, noise: float) -> Scored:
    """Twenty points that are equally good in truth, beside the single call and the whole debate."""
    rng = np.random.default_rng(0)
    truth = np.array([0.3, 0.4] + [best] * 20)
    values = truth[None, :, None] + rng.normal(0, noise, (4, len(POINTS), 40))
    values[0, :, 3] = np.nan
    calls = np.ones_like(values) * np.array([1.0, 7.0] + [3.0] * 20)[None, :, None]
    return Scored(POINTS, values, calls)


def test_where_both_rules_must_be_right_they_are() -> None:
    found = measured(made(0.6, noise=0.001), splits=5)
    assert set(found) == {"single call", "untuned debate", *RULES}
    for name in RULES:
        assert abs(found[name]["agreement"] - 0.6) < 0.01
        assert found[name]["calls"] == 3.0
        assert found[name]["worse than single"] == found[name]["worse than untuned"] == 0.0
    assert found["single call"]["worse than untuned"] == 1.0


def test_what_is_nearly_the_best_is_left_for_fewer_calls_by_the_pooled_rule_alone() -> None:
    """The whole debate is better by a hair."""
    found = measured(made(0.3985, noise=1e-6), splits=5)
    assert found["best"]["calls"] == 7.0
    assert found["pooled"]["calls"] == 3.0
    assert found["pooled"]["worse than untuned"] == 1.0
    assert found["pooled"]["worse than single"] == 0.0
