"""The map to the raters' scale: right on average, increasing everywhere, on the scale."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.calibration import IDENTITY_WEIGHT, Calibration, calibration_effect, fit_calibration
from debate_judge.data.schema import Scale
from tests.data.scored_groups import group

FIVE = Scale(1, 5)


def fitted(groups: list[GroupScores], scale: Scale = FIVE, *, on_scale: bool = True) -> Calibration:
    found = fit_calibration(groups, scale, on_scale=on_scale)
    assert found is not None
    return found


def test_steps_are_put_at_the_mean_of_their_scores() -> None:
    """Ratings 2, 4, 3, 5 for scores 1, 2, 3, 4: the middle two are one step of 3.5 at 2.5."""
    found = fitted([group("a", [2, 4], [1, 2]), group("b", [3, 5], [3, 4])])
    assert (found.groups, found.candidates) == (2, 4)
    assert [x for x, _ in found.knots] == [1, 2.5, 4, 5]
    for score, rating in ((1, 2), (1.75, 2.75), (2.5, 3.5), (3.25, 4.25), (4, 5), (5, 5)):
        assert found.map_score(score) == pytest.approx((1 - IDENTITY_WEIGHT) * rating + IDENTITY_WEIGHT * score)


def test_beyond_what_was_fitted_it_is_flat_but_for_the_order_and_what_is_missing_is_left_out() -> None:
    mapped = fitted([group("a", [2.5, 4.5], [2, 3])]).map_score
    assert mapped(2) - mapped(1) == pytest.approx(IDENTITY_WEIGHT)
    assert mapped(5) - mapped(3) == pytest.approx(2 * IDENTITY_WEIGHT)
    assert (mapped(-7), mapped(9)) == (mapped(1), mapped(5))
    partly = fitted([group("a", [2, 5, None], [2, None, 3]), group("b", [1], [None])])
    assert (partly.groups, partly.candidates) == (1, 1)
    assert fit_calibration([group("b", [1, None], [None, 2])], FIVE) is None


def test_scores_on_another_scale_are_mapped_too_and_have_no_error_before() -> None:
    """ROUGE from .1 to .4 beside ratings on 1 to 5."""
    groups = [group(f"g{i}", [1, 2, 5], [0.1, 0.2, 0.4]) for i in range(3)]
    found = fitted(groups, on_scale=False)
    assert found.map_score(0.1) == pytest.approx(1)
    assert found.map_score(0.3) == pytest.approx(3.5, abs=0.01)
    assert found.map_score(0.9) == found.map_score(0.4) == pytest.approx(5)
    assert fitted([group("a", [2, 3], [0.3, 0.3])], on_scale=False).map_score(0.7) == 2.5
    effect = calibration_effect(found, groups, "summary", on_scale=False)
    assert effect.error is effect.bias is effect.change is effect.rms is None
    assert effect.error_after.value == pytest.approx(0, abs=0.01)


POINTS = st.lists(
    st.tuples(st.floats(1, 5).map(lambda x: round(x, 2)), st.integers(1, 5).map(float)), min_size=1, max_size=30
)


@given(POINTS)
def test_every_map_increases_on_the_scale_and_its_knots_are_steps_of_the_isotonic_regression(
    points: list[tuple[float, float]],
) -> None:
    found = fitted([group("a", [r for _, r in points], [s for s, _ in points])])
    values = [found.map_score(score) for score in np.linspace(1, 5, 401)]
    assert all(a < b for a, b in pairwise(values))
    assert all(1 <= value <= 5 for value in values)
    scores = sorted({s for s, _ in points})
    ratings = [[r for s, r in points if s == score] for score in scores]
    steps = isotonic_regression([np.mean(r) for r in ratings], weights=[len(r) for r in ratings]).x
    mapped = {round((found.map_score(x) - IDENTITY_WEIGHT * x) / (1 - IDENTITY_WEIGHT), 6) for x, _ in found.knots}
    assert {round(float(height), 6) for height in steps} == mapped


def test_a_judge_a_point_too_high_is_put_right_and_keeps_its_ranks() -> None:
    draw = np.random.default_rng(3)

    def rated(name: str) -> GroupScores:
        ratings = draw.uniform(1, 4, 8)
        scores = np.clip(ratings + 1 + draw.normal(0, 0.1, 8), 1, 5)
        return group(name, ratings.tolist(), scores.tolist())

    calibration = fitted([rated(f"train {i}") for i in range(20)])
    effect = calibration_effect(calibration, [rated(f"held-out {i}") for i in range(10)], "summary", on_scale=True)
    assert effect.bias.value == pytest.approx(1, abs=0.05)
    assert effect.error.value == pytest.approx(1, abs=0.05)
    assert effect.error_after.value == pytest.approx(0.1, abs=0.05)
    assert effect.change.value == pytest.approx(effect.error_after.value - effect.error.value)
    assert effect.change.high < 0
    assert effect.bias_after.low < 0 < effect.bias_after.high
    assert effect.rms == pytest.approx(1, abs=0.05)
    assert effect.error_after.value < effect.rms_after < 0.2
    assert effect.keeps_ranks
    assert effect.spearman == pytest.approx(effect.spearman_after)
    assert effect.to_json()["fitted_on"] == {"groups": 20, "candidates": 160}
