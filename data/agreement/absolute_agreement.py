"""Absolute agreement: how close scores are to the ratings, where correlations compare their order alone.

Three measures for each judge and aspect, over all candidates that have both a score and a rating:

- `mae`: mean absolute difference of score and mean rating, in points of the scale; lower is better.
- `ccc`: the concordance correlation coefficient, a correlation that differences in mean and spread lower; 1 where every
  score equals its rating (Lin, A concordance correlation coefficient to evaluate reproducibility, 1989).
- `kappa`: of the decision "at least CUT" by the score and by the mean rating (Cohen, A coefficient of agreement for
  nominal scales, 1960); undefined where all ratings are on one side of the cut.

Intervals are computed from jackknife pseudo-values over sources (`data.agreement.estimates.pseudo_values`), and those
of differences between judges from paired differences of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from debate_judge.data.agreement.correlations import Floats, Statistic, concordance
from debate_judge.data.agreement.decisions import DecisionRule
from debate_judge.data.agreement.estimates import AgreementEstimate, GroupIndex, RatingScorePairs, rated_pairs
from debate_judge.data.agreement.intervals import Measure, logit_interval, t_interval
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect

AbsoluteMeasure = Literal["mae", "ccc", "kappa"]
MEASURES: tuple[AbsoluteMeasure, ...] = ("mae", "ccc", "kappa")

Objective = Statistic | AbsoluteMeasure
"""What a compile maximizes: a correlation, or an absolute measure in its increasing form (`objective_value`)."""

OBJECTIVE_DESCRIPTIONS: Mapping[AbsoluteMeasure, str] = {
    "mae": "1 less the mean absolute error as a share of the scale",
    "ccc": "concordance (CCC) of all texts",
    "kappa": "Cohen's kappa of all decisions at the cut",
}
"""Measure -> what is maximized where it is the objective."""

POOLED = ("ccc", "kappa")
"""Measures that are defined on all texts together only; an error can also be averaged over sources."""

AVERAGE = "average"

_DEFAULT_CUT = 0.75
"""Default cut of the decision as a share of the scale: 4 on a scale from 1 to 5."""


@dataclass(frozen=True, slots=True)
class AbsoluteAgreement:
    """The measures of one judge in one aspect, or averaged over aspects."""

    cut: float | None
    """Cut of the decision; None for the average."""
    candidates: int
    """Number of candidates that have a score and a rating."""
    measures: Mapping[str, Measure]
    """By name. The average error is undefined where the aspects have different scales."""
    changes: Mapping[str, Measure]
    """By name: this judge's measure minus the first judge's."""

    def to_json(self) -> dict[str, Any]:
        return {
            "cut": self.cut,
            "candidates": self.candidates,
            **{name: measure.to_json() for name, measure in self.measures.items()},
            "change": {name: measure.to_json() for name, measure in self.changes.items()},
        }


def decision_cuts(
    aspects: Sequence[Aspect], decision_rules: Mapping[str, DecisionRule], cut: float | None = None
) -> dict[str, float]:
    """Aspect name -> cut: values at or above it are a yes.

    Args:
        aspects: Of the judge.
        decision_rules: Aspect name -> the decision that its ratings define.
        cut: The user's cut for all aspects; None for the threshold of binary ratings, else three quarters of the scale.

    Raises:
        InputError: The user's cut is not inside the scale of an aspect.
    """
    cuts = {}
    for aspect in aspects:
        scale, rule = aspect.scale, decision_rules.get(aspect.name)
        if cut is not None and not scale.low < cut <= scale.high:
            raise InputError(
                f"no decision about {aspect.name}: every rating is on one side of the cut",
                field="cut",
                expected=f"a number above {scale.low:g} and up to {scale.high:g}",
                found=f"{cut:g}",
            )
        default = scale.low + _DEFAULT_CUT * (scale.high - scale.low)
        binary = rule is not None and rule.kind == "binary"
        cuts[aspect.name] = cut if cut is not None else rule.threshold if rule and binary else default
    return cuts


def absolute_agreement(
    judges: Mapping[str, Mapping[str, Sequence[GroupScores]]], cuts: Mapping[str, float], *, same_scale: bool, seed: int
) -> dict[str, dict[str, AbsoluteAgreement]]:
    """Judge -> aspect or `AVERAGE` -> measures with 95 % intervals over sources.

    Args:
        judges: Judge -> aspect -> scores on the raters' scale by group, the same groups for all; all judges are
            compared with the first.
        cuts: Aspect -> its cut (`decision_cuts`).
        same_scale: Whether all aspects have the same scale; else the average error is undefined.
        seed: For random bundles of sources where there are many.
    """
    first, aspects = next(iter(judges)), list(next(iter(judges.values())))
    index = GroupIndex.build(judges[first], seed)
    pairs = {
        (judge, aspect): rated_pairs(groups, index)
        for judge, scores in judges.items()
        for aspect, groups in scores.items()
    }
    estimates = {(judge, aspect): _estimate(p, cuts[aspect]) for (judge, aspect), p in pairs.items()}
    by_judge: dict[str, dict[str, AbsoluteAgreement]] = {judge: {} for judge in judges}
    for judge in judges:
        for name, averaged in [*((aspect, [aspect]) for aspect in aspects), (AVERAGE, aspects)]:
            estimate, baseline = (AgreementEstimate.mean([estimates[j, a] for a in averaged]) for j in (judge, first))
            if name == AVERAGE and not same_scale:
                estimate = replace(estimate, values=np.array([np.nan, *estimate.values[1:]]))
            by_judge[judge][name] = AbsoluteAgreement(
                cuts.get(name),
                sum(len(pairs[judge, a].ratings) for a in averaged),
                _measures(estimate),
                {} if judge == first else _changes(estimate - baseline),
            )
    return by_judge


@dataclass(frozen=True, slots=True)
class AbsoluteScale:
    """The scale and cut of one aspect, for absolute measures."""

    width: float
    """Highest minus lowest point of the scale."""
    cut: float
    """Of the decision."""


def objective_value(measure: AbsoluteMeasure, ratings: Floats, scores: Floats, scale: AbsoluteScale) -> Floats:
    """A measure of each row in a form to be maximized, at most 1, shape (rows,); NaN where undefined.

    The error is divided by the width of the scale and subtracted from 1. Ratings and scores have shape (rows, width);
    shorter rows are padded with NaN, at the same positions in both.
    """
    error, ccc, kappa = _measures_of_rows(ratings, scores, scale.cut)
    values: Floats = {"mae": 1 - error / scale.width, "ccc": ccc, "kappa": kappa}[measure]
    return values


def _measures_of_rows(ratings: Floats, scores: Floats, cut: float) -> Floats:
    """The three measures of each row, shape (3, rows), from arrays as in `objective_value`."""
    missing = np.isnan(ratings)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(missing, 0.0, np.abs(scores - ratings)).sum(axis=1) / (~missing).sum(axis=1)
    yes, rated_yes = (np.where(missing, np.nan, side >= cut) for side in (scores, ratings))
    lowest, highest = (reduce(rated_yes, axis=1, initial=np.nan) for reduce in (np.fmin.reduce, np.fmax.reduce))
    kappa = np.where(lowest == highest, np.nan, concordance(rated_yes, yes))
    return np.array([error, concordance(ratings, scores), kappa])


def _estimate(pairs: RatingScorePairs, cut: float) -> AgreementEstimate:
    values = _measures_of_rows(pairs.ratings[None], pairs.scores[None], cut)[:, 0]
    by_group = pairs.jackknife(lambda r, s: _measures_of_rows(r, s, cut))
    return replace(AgreementEstimate.of_groups(pairs.index, by_group, pairs.groups_with_pairs), values=values)


def _measures(estimate: AgreementEstimate) -> dict[str, Measure]:
    values, errors, sources = estimate.values.tolist(), estimate.standard_errors.tolist(), estimate.sources
    error = t_interval(values[0], errors[0], sources)
    if error.low is not None:
        error = replace(error, low=max(0.0, error.low))
    others = [logit_interval(value, e, sources) for value, e in zip(values[1:], errors[1:], strict=True)]
    return dict(zip(MEASURES, [error, *others], strict=True))


def _changes(difference: AgreementEstimate) -> dict[str, Measure]:
    values, errors = difference.values.tolist(), difference.standard_errors.tolist()
    intervals = [t_interval(v, error, difference.sources) for v, error in zip(values, errors, strict=True)]
    return dict(zip(MEASURES, intervals, strict=True))
