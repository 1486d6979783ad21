"""Conformal intervals: the quantile against its definition, coverage, and what is left to people."""

from __future__ import annotations

import math

import numpy as np
import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.inference.conformal import evaluate_abstention, fit_intervals
from debate_judge.data.schema import Scale
from tests.data.scored_groups import group

SCALE = Scale(1, 5)


def drawn(seed: int, sources: int, texts: int, *, shared: float = 0.0, uneven: float = 0.0) -> list[GroupScores]:
    """Errors with a share that a source's texts have in common, and larger ones at low scores."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(sources):
        scores = rng.uniform(1.5, 4.5, texts)
        errors = math.sqrt(shared) * rng.normal() + math.sqrt(1 - shared) * rng.normal(size=texts)
        found.append(group(f"g{number}", scores + errors * (0.3 + uneven * (5 - scores) / 4), scores))
    return found


def test_equal_spread_gives_the_conformal_quantile() -> None:
    # Scores at the same height, so that the local spread is the same for all but for the text's own source.
    groups = [group(f"g{i}", [3 + 0.01 * (i + 1)], [3.0]) for i in range(19)]
    found = fit_intervals(groups, SCALE, 0.9)
    own = [0.01 * (i + 1) for i in range(19)]
    in_units = sorted(size / ((sum(own) - size) / 18) for size in own)
    # The 18th of 19: ceil(.9 x 20).
    assert found.factor == pytest.approx(in_units[17])
    assert found.at(3.0).width == pytest.approx(2 * in_units[17] * sum(own) / 19)


def test_too_few_sources_for_the_level_give_the_whole_scale() -> None:
    groups = [group(f"g{i}", [3 + i / 10], [3.0]) for i in range(5)]
    found = fit_intervals(groups, SCALE, 0.9)
    assert (found.at(2.0).low, found.at(2.0).high) == (1, 5)
    assert fit_intervals(groups[:1], SCALE) is None


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_coverage_of_new_sources(shared: float) -> None:
    """Within .02 of the nominal, on the mean of 60 draws of 24 sources."""
    hits = []
    for seed in range(60):
        found = fit_intervals(drawn(seed, 24, 8, shared=shared), Scale(-9, 15), 0.9)
        for one in drawn(1000 + seed, 20, 8, shared=shared):
            spans = [found.at(s) for s in one.scores if s is not None]
            hits += [span.low <= (r or 0) <= span.high for span, r in zip(spans, one.ratings, strict=True)]
    assert 0.88 < np.mean(hits) < 0.935


def test_intervals_are_wider_where_errors_are_larger_and_stay_on_the_scale() -> None:
    found = fit_intervals(drawn(1, 60, 8, uneven=1.0), SCALE, 0.8)
    assert found.at(2.5).width > found.at(4.0).width * 1.2
    assert found.at(1.2).low == 1
    assert found.at(4.99).high == 5


def test_wide_ones_are_left_to_people() -> None:
    groups = drawn(4, 30, 6, uneven=1.0)
    every = evaluate_abstention(groups, SCALE, 0.8)
    some = evaluate_abstention(groups, SCALE, 0.8, max_width=2.0)
    assert every.abstained_share == 0
    assert 0.1 < some.abstained_share < 0.9
    assert every.texts == 180
    assert abs(every.covered - 0.8) < 0.06
    kept = [s for g in some.scores.values() for s in g.scores]
    assert sum(s is None for s in kept) == round(some.abstained_share * 180)
    assert evaluate_abstention(groups[:2], SCALE, 0.8) is None
