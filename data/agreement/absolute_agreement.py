"""Absolute agreement: how close scores are to the ratings, where correlations compare their order alone.

Three measures for each judge and aspect, over all candidates that have both a score and a rating:

- `mae`: mean absolute difference of score and mean rating, in points of the scale; lower is better.
- `ccc`: the concordance correlation coefficient, a correlation that differences in mean and spread lower; 1 where every
  score equals its rating (Lin, A concordance correlation coefficient to evaluate reproducibility, 1989).
- `kappa`: of the decision "at least CUT" by the score and by the mean rating (Cohen, A coefficient of agreement for
  nominal scales, 1960); undefined where all ratings are on one side of the cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from debate_judge.data.agreement.correlations import Floats, Statistic, concordance
from debate_judge.data.agreement.decisions import DecisionRule
from debate_judge.data.agreement.estimates import Estimate, GroupIndex, RatingScorePairs, rated_pairs
from debate_judge.data.agreement.intervals import Mask, range_interval, t_interval, without_each
from debate_judge.data.agreement.results import Figure, GroupScores
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
    measures: Mapping[str, Figure]
    """By name. The average error is undefined where the aspects have different scales."""
    changes: Mapping[str, Figure]
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
    pairs = {(j, a): rated_pairs(groups, index) for j, scores in judges.items() for a, groups in scores.items()}
    estimates = {(judge, aspect): _estimate(p, cuts[aspect]) for (judge, aspect), p in pairs.items()}
    by_judge: dict[str, dict[str, AbsoluteAgreement]] = {judge: {} for judge in judges}
    for judge in judges:
        for name, averaged in [*((aspect, [aspect]) for aspect in aspects), (AVERAGE, aspects)]:
            estimate, baseline = (Estimate.mean([estimates[j, a] for a in averaged]) for j in (judge, first))
            if name == AVERAGE and not same_scale:
                estimate = replace(estimate, values=np.array([np.nan, *estimate.values[1:]]))
            count = sum(len(pairs[judge, a].ratings) for a in averaged)
            changes = {} if judge == first else _figures(estimate - baseline, ranges=False)
            by_judge[judge][name] = AbsoluteAgreement(cuts.get(name), count, _figures(estimate), changes)
    return by_judge


@dataclass(frozen=True, slots=True)
class AbsoluteScale:
    """The scale and cut of one aspect, for absolute measures."""

    width: float
    """Highest minus lowest point of the scale."""
    cut: float
    """Of the decision."""


def objective_value(measure: AbsoluteMeasure, ratings: Floats, scores: Floats, scale: AbsoluteScale) -> float:
    """A measure in a form to be maximized, at most 1; NaN where undefined.

    The error is divided by the width of the scale and subtracted from 1. Ratings and scores have shape (candidates,).
    """
    error, ccc, kappa = _values(ratings, scores, scale.cut).tolist()
    return {"mae": 1 - error / scale.width, "ccc": ccc, "kappa": kappa}[measure]


def _values(ratings: Floats, scores: Floats, cut: float) -> Floats:
    """The three measures."""
    error = np.abs(scores - ratings).mean() if len(ratings) else np.nan
    rated_yes = ratings >= cut
    kappa = np.nan if rated_yes.all() or not rated_yes.any() else concordance(rated_yes, scores >= cut)
    return np.array([error, concordance(ratings, scores), kappa])


def _estimate(pairs: RatingScorePairs, cut: float) -> Estimate:
    def of(kept: Mask) -> Floats:
        return _values(pairs.ratings[kept], pairs.scores[kept], cut)

    values = of(np.full(len(pairs.ratings), True))
    return Estimate(values, without_each(of, pairs.unit, pairs.index.units), pairs.groups_with_pairs, pairs.index)


def _figures(estimate: Estimate, *, ranges: bool = True) -> dict[str, Figure]:
    """The measures, concordance and kappa with intervals within their ranges unless they are differences."""
    units = estimate.without_included.shape[1]
    values = list(zip(estimate.values.tolist(), estimate.standard_errors.tolist(), strict=True))
    figures = [range_interval(*v, units) if ranges and i else t_interval(*v, units) for i, v in enumerate(values)]
    if ranges and figures[0].low is not None:
        figures[0] = replace(figures[0], low=max(0.0, figures[0].low))
    return dict(zip(MEASURES, figures, strict=True))
