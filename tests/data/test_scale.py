"""On the raters' scale: the map to it, and absolute agreement."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from sklearn.metrics import cohen_kappa_score

from debate_judge.data.agreement.decisions import DecisionRule, absolute_agreement, decision_cuts
from debate_judge.data.agreement.figures import AVERAGE, Figure, GroupScores
from debate_judge.data.calibration import IDENTITY_WEIGHT, Calibration, calibration_effect, fit_calibration
from debate_judge.data.schema import Aspect, Scale
from tests.data.scored_groups import group

# --- the map ---


FIVE = Scale(1, 5)


def fitted(groups: list[GroupScores], scale: Scale = FIVE, *, on_scale: bool = True) -> Calibration:
    calibration = fit_calibration(groups, scale, on_scale=on_scale)
    assert calibration is not None
    return calibration


def test_steps_are_put_at_the_mean_of_their_scores() -> None:
    """Ratings 2, 4, 3, 5 for scores 1, 2, 3, 4: the middle two are one step of 3.5 at 2.5."""
    calibration = fitted([group("a", [2, 4], [1, 2]), group("b", [3, 5], [3, 4])])
    assert (calibration.groups, calibration.candidates) == (2, 4)
    assert [x for x, _ in calibration.knots] == [1, 2.5, 4, 5]
    for score, rating in ((1, 2), (1.75, 2.75), (2.5, 3.5), (3.25, 4.25), (4, 5), (5, 5)):
        assert calibration.map_score(score) == pytest.approx((1 - IDENTITY_WEIGHT) * rating + IDENTITY_WEIGHT * score)


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
    calibration = fitted(groups, on_scale=False)
    assert calibration.map_score(0.1) == pytest.approx(1)
    assert calibration.map_score(0.3) == pytest.approx(3.5, abs=0.01)
    assert calibration.map_score(0.9) == calibration.map_score(0.4) == pytest.approx(5)
    assert fitted([group("a", [2, 3], [0.3, 0.3])], on_scale=False).map_score(0.7) == 2.5
    effect = calibration_effect(calibration, groups, "summary", on_scale=False)
    assert {effect.error, effect.bias, effect.change} == {Figure()}
    assert effect.rms is None
    assert effect.error_after.value == pytest.approx(0, abs=0.01)


POINTS = st.lists(
    st.tuples(st.floats(1, 5).map(lambda x: round(x, 2)), st.integers(1, 5).map(float)), min_size=1, max_size=30
)


@given(POINTS)
def test_every_map_increases_on_the_scale_and_its_knots_are_steps_of_the_isotonic_regression(
    points: list[tuple[float, float]],
) -> None:
    calibration = fitted([group("a", [r for _, r in points], [s for s, _ in points])])
    values = [calibration.map_score(score) for score in np.linspace(1, 5, 401)]
    assert all(a < b for a, b in pairwise(values))
    assert all(1 <= value <= 5 for value in values)
    scores = sorted({s for s, _ in points})
    ratings = [[r for s, r in points if s == score] for score in scores]
    steps = isotonic_regression([np.mean(r) for r in ratings], weights=[len(r) for r in ratings]).x
    mapped = {
        round((calibration.map_score(x) - IDENTITY_WEIGHT * x) / (1 - IDENTITY_WEIGHT), 6) for x, _ in calibration.knots
    }
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
    assert effect.spearman == pytest.approx(effect.spearman_after)


# --- absolute agreement ---


Judged = dict[str, list[GroupScores]]
CUTS = {"style": 3.5, "facts": 2.5}


def judged(off: float, spread: float, seed: int = 1, unscored: int = 0) -> Judged:
    """Scores that are the ratings, moved by `off` and by chance, of two aspects."""
    by_aspect: Judged = {}
    for number, aspect in enumerate(CUTS):
        ratings = np.random.default_rng(number).integers(1, 6, (30, 4)).astype(float)
        scores = ratings + off + spread * np.random.default_rng(seed).normal(size=ratings.shape)
        rows: Any = zip(ratings.tolist(), scores.tolist(), strict=True)
        pairs = ((r, [None, *s[1:]] if g < unscored else s) for g, (r, s) in enumerate(rows))
        by_aspect[aspect] = [group(f"g{g}", r, s, "abcd") for g, (r, s) in enumerate(pairs)]
    return by_aspect


def compared(cuts: dict[str, float] = CUTS, *, same_scale: bool = True, **judges: Judged) -> Any:
    return absolute_agreement(judges, cuts, same_scale=same_scale, seed=0)


def test_the_figures_are_those_of_their_definitions_and_a_change_is_paired() -> None:
    judges = {"single": judged(1.0, 0.8), "compiled": judged(0.2, 0.5, seed=2, unscored=3)}
    results = compared(**judges)
    for judge, by_aspect in judges.items():
        for aspect, groups in by_aspect.items():
            result = results[judge][aspect]
            pairs = [(s, r) for g in groups for s, r in zip(g.scores, g.ratings, strict=True) if s is not None]
            s, r = np.array(pairs).T
            ccc = 2 * np.cov(s, r, bias=True)[0, 1] / (s.var() + r.var() + (s.mean() - r.mean()) ** 2)
            kappa = cohen_kappa_score(s >= CUTS[aspect], r >= CUTS[aspect])
            expected = {"mae": np.abs(s - r).mean(), "ccc": ccc, "kappa": kappa}
            assert {name: measure.value for name, measure in result.measures.items()} == pytest.approx(expected)
            assert result.candidates == len(s) == 120 - 3 * (judge == "compiled")
        for measure, average in results[judge][AVERAGE].measures.items():
            values = [results[judge][aspect].measures[measure].value for aspect in by_aspect]
            assert average.value == pytest.approx(np.mean(values))
    change, error = results["compiled"][AVERAGE].change, results["compiled"][AVERAGE].measures["mae"]
    assert change["mae"].high < 0 < change["kappa"].low
    assert results["single"][AVERAGE].change == {}
    assert 0 <= error.low < error.value < error.high


def test_what_is_undefined_is_left_out() -> None:
    above = judged(0.0, 0.1)
    results = compared({"style": 0.5, "facts": 0.5}, same_scale=False, x=above)["x"]
    assert results["style"].measures["kappa"].value is None, "all ratings are on one side"
    assert results[AVERAGE].measures["mae"].value is None, "points of different scales"
    unscored = {"style": [replace(g, scores=(None,) * 4) for g in above["style"]]}
    assert {measure.value for measure in compared(x=unscored)["x"]["style"].measures.values()} == {None}


def test_cuts_follow_the_ratings_the_scale_or_the_user() -> None:
    aspects = (Aspect("style", "?", Scale(1, 5)), Aspect("facts", "?", Scale(0, 1)))
    decision_rules = {"facts": DecisionRule("binary", threshold=0.5, cut=0.5)}
    assert decision_cuts(aspects, decision_rules) == {"style": 4, "facts": 0.5}
    assert decision_cuts(aspects[:1], {}, 3) == {"style": 3}
