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

FIVE = Scale(1, 5)


def group(name: str, scores: list[float | None], ratings: list[float | None]) -> GroupScores:
    return GroupScores(name, tuple(f"c{i}" for i in range(len(scores))), tuple(ratings), tuple(scores))


def fitted(groups: list[GroupScores], scale: Scale = FIVE, *, on_scale: bool = True) -> Calibration:
    found = fit_calibration(groups, scale, on_scale=on_scale)
    assert found is not None
    return found


def test_steps_are_put_at_the_mean_of_their_scores() -> None:
    """Ratings 2, 4, 3, 5 for scores 1, 2, 3, 4: the middle two are one step of 3.5 at 2.5."""
    found = fitted([group("a", [1, 2], [2, 4]), group("b", [3, 4], [3, 5])])
    assert (found.groups, found.candidates) == (2, 4)
    assert [x for x, _ in found.knots] == [1, 2.5, 4, 5]
    for score, rating in ((1, 2), (1.75, 2.75), (2.5, 3.5), (3.25, 4.25), (4, 5), (5, 5)):
        assert found.map_score(score) == pytest.approx((1 - IDENTITY_WEIGHT) * rating + IDENTITY_WEIGHT * score)


def test_beyond_what_was_fitted_it_is_flat_but_for_the_order() -> None:
    found = fitted([group("a", [2, 3], [2.5, 4.5])])
    assert (
        found.map_score(1)
        < found.map_score(1.5)
        < found.map_score(2)
        < found.map_score(3)
        < found.map_score(4)
        < found.map_score(5)
    )
    assert found.map_score(2) - found.map_score(1) == pytest.approx(IDENTITY_WEIGHT)
    assert found.map_score(5) - found.map_score(3) == pytest.approx(2 * IDENTITY_WEIGHT)
    assert found.map_score(-7) == found.map_score(1)
    assert found.map_score(9) == found.map_score(5)


def test_missing_scores_and_ratings_are_left_out() -> None:
    found = fitted([group("a", [2, None, 3], [2, 5, None]), group("b", [None], [1])])
    assert (found.groups, found.candidates) == (1, 1)
    assert fit_calibration([group("b", [None, 2], [1, None])], FIVE) is None


def test_scores_on_another_scale_are_mapped_too() -> None:
    """ROUGE from .1 to .4 beside ratings on 1 to 5."""
    found = fitted([group("a", [0.1, 0.2, 0.4], [1, 2, 5])], on_scale=False)
    assert found.map_score(0.1) == pytest.approx(1)
    assert found.map_score(0.3) == pytest.approx(3.5, abs=0.01)
    assert found.map_score(0.9) == found.map_score(0.4) == pytest.approx(5)
    assert fitted([group("a", [0.3, 0.3], [2, 3])], on_scale=False).map_score(0.7) == 2.5


POINTS = st.lists(
    st.tuples(st.floats(1, 5).map(lambda x: round(x, 2)), st.integers(1, 5).map(float)), min_size=1, max_size=30
)


@given(POINTS)
def test_every_map_increases_and_stays_on_the_scale(points: list[tuple[float, float]]) -> None:
    found = fitted([group("a", [s for s, _ in points], [r for _, r in points])])
    values = [found.map_score(score) for score in np.linspace(1, 5, 401)]
    assert all(a < b for a, b in pairwise(values))
    assert all(1 <= value <= 5 for value in values)


@given(POINTS)
def test_its_knots_are_the_steps_of_the_isotonic_regression(points: list[tuple[float, float]]) -> None:
    found = fitted([group("a", [s for s, _ in points], [r for _, r in points])])
    scores = sorted({s for s, _ in points})
    ratings = [[r for s, r in points if s == score] for score in scores]
    steps = isotonic_regression([np.mean(r) for r in ratings], weights=[len(r) for r in ratings]).x
    heights = {round(float(h), 6) for h in steps}
    mapped = {round((found.map_score(x) - IDENTITY_WEIGHT * x) / (1 - IDENTITY_WEIGHT), 6) for x, _ in found.knots}
    assert heights == mapped


def test_a_judge_a_point_too_high_is_put_right_and_keeps_its_ranks() -> None:
    draw = np.random.default_rng(3)

    def rated(name: str) -> GroupScores:
        ratings = draw.uniform(1, 4, 8)
        scores = np.clip(ratings + 1 + draw.normal(0, 0.1, 8), 1, 5)
        return group(name, [float(s) for s in scores], [float(r) for r in ratings])

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
    told = effect.to_json()
    assert told["fitted_on"] == {"groups": 20, "candidates": 160}
    assert told["change"] == effect.change.to_json()


def test_scores_on_another_scale_have_no_error_before() -> None:
    groups = [group(f"g{i}", [0.1, 0.2, 0.4], [1, 2, 5]) for i in range(3)]
    effect = calibration_effect(fitted(groups, on_scale=False), groups, "summary", on_scale=False)
    assert effect.error is effect.bias is effect.change is effect.rms is None
    assert effect.error_after.value == pytest.approx(0, abs=0.01)
