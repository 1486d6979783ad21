"""Calibration: a strictly increasing map from a judge's scores to the raters' scale.

A judge may rank texts as the raters do and still score them a point too high, or use only the middle of the scale. The
map predicts a text's mean rating from its score. It is fitted by isotonic regression, the non-decreasing function with
the least squared error (Barlow, Bartholomew, Bremner and Brunk 1972). That is a step function, which would turn all
scores on a step into ties. So each step is replaced by one knot at the mean of its scores, with straight lines between
knots (centered isotonic regression, Oron and Flournoy 2017). What is still flat, such as the ends beyond the first and
last knot, gets a small slope (`IDENTITY_WEIGHT`). So no two scores become equal or change their order, and the rank
correlations of an aspect do not change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from debate_judge.data.agreement.correlations import agreement, error_and_bias, mean_estimate
from debate_judge.data.agreement.figures import UNDEFINED, Figure, Floats, GroupIndex, GroupScores, Pairs, plain
from debate_judge.data.errors import InputError
from debate_judge.data.schema import ROUNDING_ERROR, Level, Scale

IDENTITY_WEIGHT = 0.001
"""Weight of the linear map of the score's own scale in the mapped score; the rest is the fitted map. It moves a mapped
score by at most this share of the scale: .004 of a point on a scale from 1 to 5."""

_DIGITS = 9
"""Decimals that scores are rounded to before the fit."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The map of one aspect: straight lines between knots, constant beyond the first and the last one."""

    knots: tuple[tuple[float, float], ...]
    """(score, mapped score), both increasing."""
    groups: int
    """Number of groups that it was fitted on."""
    candidates: int
    """Number of candidates that it was fitted on."""

    def __post_init__(self) -> None:
        if not self.knots or not all(math.isfinite(2 * value) for knot in self.knots for value in knot):
            raise InputError("a calibration needs knots of finite numbers", field="knots")
        if any(before[i] >= after[i] for before, after in pairwise(self.knots) for i in (0, 1)):
            raise InputError("the knots of a calibration do not increase", field="knots")

    def map_score(self, score: float) -> float:
        """The mapped score."""
        scores, mapped = zip(*self.knots, strict=True)
        return float(np.interp(score, scores, mapped))

    def map_groups(self, groups: Sequence[GroupScores]) -> list[GroupScores]:
        """The groups with every score mapped."""
        return [replace(g, scores=tuple(None if s is None else self.map_score(s) for s in g.scores)) for g in groups]


def fit_calibration(groups: Sequence[GroupScores], scale: Scale, *, on_scale: bool = True) -> Calibration | None:
    """Fit a map from scores to mean ratings.

    Args:
        groups: Scores and ratings of one aspect, on sources whose ratings the judge was not tuned on.
        scale: The scale of the ratings.
        on_scale: Whether the scores are on it, too. Other scores keep their order only between the lowest and the
            highest fitted score.

    Returns:
        None without a candidate that has both score and rating.
    """
    from scipy.optimize import isotonic_regression

    pairs = Pairs.of(groups, GroupIndex.build({"": groups}, 0))
    if not len(pairs.scores):
        return None
    scores, step_of_pair, counts = np.unique(np.round(pairs.scores, _DIGITS), return_inverse=True, return_counts=True)
    steps = isotonic_regression(np.bincount(step_of_pair, weights=pairs.ratings) / counts, weights=counts)
    starts = steps.blocks[:-1]
    centres = np.round(np.add.reduceat(scores * counts, starts) / np.add.reduceat(counts, starts), _DIGITS)
    heights = np.clip(steps.x[starts], scale.low, scale.high)
    low, high = (scale.low, scale.high) if on_scale else (scores[0], scores[-1])
    if low < high:
        xs = np.unique([low, *centres, high])
        rescaled = scale.low + (scale.high - scale.low) * (xs - low) / (high - low)
        mapped = (1 - IDENTITY_WEIGHT) * np.interp(xs, centres, heights) + IDENTITY_WEIGHT * rescaled
        centres, heights = xs, mapped
    knots = zip(centres.tolist(), heights.tolist(), strict=True)
    return Calibration(tuple(knots), len(np.unique(pairs.group)), len(pairs.scores))


@dataclass(frozen=True, slots=True)
class CalibrationEffect:
    """Error, bias and rank correlation before and after calibration, on sources that it was not fitted on.

    Undefined is e.g. the error of scores that are not on the raters' scale.
    """

    calibration: Calibration
    error: Figure
    """Mean absolute difference of score and mean rating, before."""
    error_after: Figure
    """The same after calibration, as all `_after` fields."""
    change: Figure
    """`error_after` minus `error`, with an interval of the paired differences."""
    rms: float | None
    """Root mean squared difference, before. The map minimizes this one; where most ratings are at one end of the scale,
    the mean absolute difference may grow."""
    rms_after: float | None
    bias: Figure
    """Mean of score minus rating, before."""
    bias_after: Figure
    spearman: float | None
    """Rank correlation with the ratings, before."""
    spearman_after: float | None

    @property
    def keeps_ranks(self) -> bool:
        """Whether rank correlation is the same before and after."""
        if self.spearman is None or self.spearman_after is None:
            return self.spearman is self.spearman_after
        return math.isclose(self.spearman, self.spearman_after, abs_tol=ROUNDING_ERROR)

    def to_json(self) -> dict[str, object]:
        record = plain(self)
        fitted = record.pop("calibration")
        knots = [list(knot) for knot in fitted.pop("knots")]
        return record | {"fitted_on": fitted, "knots": knots}


def calibration_effect(
    calibration: Calibration,
    groups: Sequence[GroupScores],
    level: Level,
    *,
    on_scale: bool,
    mapped: Sequence[GroupScores] | None = None,
) -> CalibrationEffect:
    """Measure a calibration, with t intervals over sources.

    Args:
        calibration: The map.
        groups: One aspect's groups with the judge's own scores, from other sources than the map was fitted on.
        level: Of the rank correlation.
        on_scale: Whether the judge's own scores are on the raters' scale.
        mapped: The groups with mapped scores, where `calibration` does not map all of them (each fold has its own map).
    """
    mapped = calibration.map_groups(groups) if mapped is None else mapped
    index = GroupIndex.build({"": groups}, 0)
    before, after = (Pairs.of(side, index) for side in (groups, mapped))
    errors, errors_after = (np.abs(pairs.scores - pairs.ratings) for pairs in (before, after))
    (error, bias), (error_after, bias_after) = error_and_bias(groups), error_and_bias(mapped)
    return CalibrationEffect(
        calibration,
        error=error if on_scale else UNDEFINED,
        error_after=error_after,
        change=mean_estimate(errors_after - errors, before).figure() if on_scale else UNDEFINED,
        rms=_rms(errors) if on_scale else None,
        rms_after=_rms(errors_after),
        bias=bias if on_scale else UNDEFINED,
        bias_after=bias_after,
        spearman=agreement({"": groups}, "spearman", level).value,
        spearman_after=agreement({"": mapped}, "spearman", level).value,
    )


def _rms(errors: Floats) -> float | None:
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else None
