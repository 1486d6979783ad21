"""Calibration: an increasing map from a judge's scores to the raters' scale.

A judge may rank texts as the raters do and still score them a point too high, or use only the middle of the scale. The
map says what the raters give, on average, to texts that the judge scores so. It is fitted by isotonic regression, the
increasing function with the least squared error (Barlow, Bartholomew, Bremner and Brunk 1972), which is a staircase:
scores on one step would become ties. So each step is put at the mean of its scores, with straight lines between the
steps (centered isotonic regression, Oron and Flournoy 2017), and beyond the first and the last step, where that is
flat, and wherever else it could be, a thousandth of the score's own place on its scale keeps the order. No two scores
become equal and none change places: rank correlations of one aspect stay what they are.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.raters import differences_by_group, error_and_bias, mean_over_groups
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level, Scale

ORDER = 0.001
"""Share of a mapped score that is the score itself: at most .004 of a point on a scale from 1 to 5."""

_DIGITS = 9
"""Scores that differ less are one."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The map of one aspect: straight lines between knots, flat beyond the first and the last one."""

    knots: tuple[tuple[float, float], ...]
    """Score and what it becomes, both increasing."""
    groups: int
    """Groups that it was fitted on."""
    candidates: int

    def __post_init__(self) -> None:
        if not self.knots or not all(math.isfinite(2 * value) for knot in self.knots for value in knot):
            raise InputError("a calibration needs knots of finite numbers", field="knots")
        if any(before[i] >= after[i] for before, after in pairwise(self.knots) for i in (0, 1)):
            raise InputError("the knots of a calibration do not increase", field="knots")

    def at(self, score: float) -> float:
        """What a score is on the raters' scale."""
        place = bisect_right(self.knots, score, key=lambda knot: knot[0])
        if place in (0, len(self.knots)):
            return self.knots[max(0, place - 1)][1]
        (x0, y0), (x1, y1) = self.knots[place - 1 : place + 1]
        return y0 + (y1 - y0) * (score - x0) / (x1 - x0)

    def applied(self, groups: Sequence[GroupScores]) -> list[GroupScores]:
        """The groups with every score mapped."""
        return [replace(g, scores=tuple(None if s is None else self.at(s) for s in g.scores)) for g in groups]


def fit_calibration(groups: Sequence[GroupScores], scale: Scale, *, on_scale: bool = True) -> Calibration | None:
    """The map that fits scores to mean ratings best.

    Args:
        groups: Of one aspect, on sources whose ratings the judge has not learnt from.
        scale: Of the ratings.
        on_scale: Whether scores are on it, too. Other scores keep their order only as far as the fitted ones went.

    Returns:
        None without a candidate that has both score and rating.
    """
    used = [
        [(s, r) for s, r in zip(g.scores, g.ratings, strict=True) if s is not None and r is not None] for g in groups
    ]
    pairs = [pair for own in used for pair in own]
    if not pairs:
        return None
    steps = _steps(np.array(pairs), scale)
    xs = [x for x, _ in steps]
    scores = [round(score, _DIGITS) for score, _ in pairs]
    low, high = (scale.low, scale.high) if on_scale else (min(scores), max(scores))
    if low < high:
        xs = sorted({low, *xs, high})
        own = [scale.low + (scale.high - scale.low) * (x - low) / (high - low) for x in xs]
        fitted = np.interp(xs, [x for x, _ in steps], [y for _, y in steps])
        steps = [(x, float((1 - ORDER) * y + ORDER * o)) for x, y, o in zip(xs, fitted, own, strict=True)]
    return Calibration(tuple(steps), sum(map(bool, used)), len(pairs))


def _steps(pairs: Floats, scale: Scale) -> list[tuple[float, float]]:
    """The steps of the isotonic regression, each as the mean of its scores and its height; two at least where scores
    differ and ratings rise with them."""
    from scipy.optimize import isotonic_regression

    scores, place, counts = np.unique(np.round(pairs[:, 0], _DIGITS), return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=pairs[:, 1]) / counts
    fitted = isotonic_regression(means, weights=counts)
    heights = np.clip(fitted.x, scale.low, scale.high)
    found: list[tuple[float, float]] = []
    for first, last in pairwise(fitted.blocks):
        block = slice(int(first), int(last))
        centre = float(np.average(scores[block], weights=counts[block]))
        found.append((round(centre, _DIGITS), float(heights[block][0])))
    return found


@dataclass(frozen=True, slots=True)
class CalibrationEffect:
    """How far a judge's scores are from the raters' before and after its calibration, on sources that it did not see.

    None stands for what cannot be told, e.g. the distance of scores on another scale than the raters'.
    """

    calibration: Calibration
    error: Measure | None
    """Mean absolute difference of score and mean rating, before."""
    error_after: Measure | None
    change: Measure | None
    """Of that error, paired over candidates: after minus before."""
    rms: float | None
    """Root of the mean squared difference, before: what the map is fitted to lessen. Where most ratings are at one end
    of the scale, it may raise the mean absolute difference for that."""
    rms_after: float | None
    bias: Measure | None
    """Mean of score minus rating, before."""
    bias_after: Measure | None
    spearman: float | None
    """Rank correlation with the ratings, before."""
    spearman_after: float | None

    @property
    def keeps_ranks(self) -> bool:
        """Whether rank correlation is the same before and after."""
        if self.spearman is None or self.spearman_after is None:
            return self.spearman is self.spearman_after
        return math.isclose(self.spearman, self.spearman_after, abs_tol=1e-9)

    def to_json(self) -> dict[str, object]:
        names = ("error", "error_after", "change", "bias", "bias_after")
        found: dict[str, object] = {
            name: None if (value := getattr(self, name)) is None else value.to_json() for name in names
        }
        fitted = {"groups": self.calibration.groups, "candidates": self.calibration.candidates}
        found |= {"rms": self.rms, "rms_after": self.rms_after}
        ranks = {"spearman": self.spearman, "spearman_after": self.spearman_after}
        return {**found, **ranks, "fitted_on": fitted, "knots": [list(knot) for knot in self.calibration.knots]}


def effect_of(
    calibration: Calibration,
    groups: Sequence[GroupScores],
    level: Level,
    *,
    on_scale: bool,
    mapped: Sequence[GroupScores] | None = None,
) -> CalibrationEffect:
    """What a calibration changes, with t intervals over groups.

    Args:
        calibration: The map.
        groups: Of one aspect, with the judge's own scores; none of them was fitted on.
        level: Of the rank correlation.
        on_scale: Whether the judge's own scores are on the raters' scale.
        mapped: The groups with mapped scores, where parts of them are mapped by calibrations of their own.
    """
    mapped = calibration.applied(groups) if mapped is None else mapped
    before = error_and_bias(groups) if on_scale else (None, None)
    after = error_and_bias(mapped)
    ranks = [
        agreement_table({"x": own}, levels=(level,), resamples=0).aspects["x"][level]["spearman"].value
        for own in (groups, mapped)
    ]
    old, new = differences_by_group(groups), differences_by_group(mapped)
    changes = [np.abs(b) - np.abs(a) for a, b in zip(old, new, strict=True)]
    return CalibrationEffect(
        calibration,
        error=before[0],
        error_after=after[0],
        change=mean_over_groups(changes) if on_scale and changes else None,
        rms=_rms(old) if on_scale else None,
        rms_after=_rms(new),
        bias=before[1],
        bias_after=after[1],
        spearman=ranks[0],
        spearman_after=ranks[1],
    )


def _rms(by_group: Sequence[Floats]) -> float | None:
    return float(np.sqrt(np.mean(np.concatenate(by_group) ** 2))) if by_group else None
