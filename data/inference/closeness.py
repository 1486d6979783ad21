"""How close scores are to the ratings, where correlations tell their order alone: level and decisions.

Three figures of each judge and aspect, over the candidates of all sources that have both a score and a rating:

- `mae`: mean absolute difference of score and mean rating, in points of the scale; lower is better.
- `ccc`: concordance, 1 where every score is its rating; a correlation that other level and other spread lower (Lin, A
  concordance correlation coefficient to evaluate reproducibility, 1989).
- `kappa`: of the decision "at least CUT", made of the score and of the mean rating (Cohen, A coefficient of agreement
  for nominal scales, 1960); undefined where all ratings fall on one side.

All three are functions of sums over sources, which are resampled. Judges are compared on the same resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from debate_judge.data.agreement.bootstrap import (
    GroupIndex,
    LevelEstimate,
    Pairs,
    pairs_of_groups,
    resample,
    summing_each,
)
from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.correlations import Floats, Statistic
from debate_judge.data.agreement.decisions import Question
from debate_judge.data.agreement.intervals import Interval, of_differences, of_replicates
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect

Closest = Literal["mae", "ccc", "kappa"]
MEASURES: tuple[Closest, ...] = ("mae", "ccc", "kappa")

Objective = Statistic | Closest
"""What a compile maximizes."""

MAXIMIZED: Mapping[Closest, str] = {
    "mae": "1 less the mean absolute error as a share of the scale",
    "ccc": "concordance (CCC) of all texts",
    "kappa": "Cohen's kappa of all decisions at the cut",
}
"""What is maximized where these are the objective."""

POOLED = ("ccc", "kappa")
"""Measures of all texts together; an error is a mean over sources as well."""

AVERAGE = "average"

_UPPER = 0.75
"""Where on the scale the decision is cut if nobody says so: 4 of 1 to 5."""


@dataclass(frozen=True, slots=True)
class Closeness:
    """The figures of one judge in one aspect, or on average over aspects."""

    cut: float | None
    """Of the decision; None for the average."""
    candidates: int
    """That have a score and a rating."""
    figures: Mapping[str, Measure]
    """Measure -> its value. On average over aspects the error is undefined where their scales differ."""
    changes: Mapping[str, Measure]
    """Measure -> this judge's minus the first judge's."""

    def to_json(self) -> dict[str, Any]:
        return {
            "cut": self.cut,
            "candidates": self.candidates,
            **{name: one.to_json() for name, one in self.figures.items()},
            "change": {name: one.to_json() for name, one in self.changes.items()},
        }


def cuts_of(aspects: Sequence[Aspect], questions: Mapping[str, Question], cut: float | None = None) -> dict[str, float]:
    """Aspect name -> the least value that is a yes.

    Args:
        aspects: Of the judge.
        questions: Aspect name -> the decision that its ratings define.
        cut: The user's, for all aspects; by default the threshold of binary ratings, else three quarters up the scale.

    Raises:
        InputError: The user's cut leaves nothing on one side.
    """
    found = {}
    for aspect in aspects:
        scale, question = aspect.scale, questions.get(aspect.name)
        if cut is not None and not scale.low < cut <= scale.high:
            raise InputError(
                f"no decision about {aspect.name}: every rating is on one side of the cut",
                field="cut",
                expected=f"a number above {scale.low:g} and up to {scale.high:g}",
                found=f"{cut:g}",
            )
        usual = scale.low + _UPPER * (scale.high - scale.low)
        binary = question is not None and question.kind == "binary"
        found[aspect.name] = cut if cut is not None else question.threshold if question and binary else usual
    return found


def closeness(
    judges: Mapping[str, Mapping[str, Sequence[GroupScores]]],
    cuts: Mapping[str, float],
    *,
    one_scale: bool,
    resamples: int,
    seed: int,
) -> dict[str, dict[str, Closeness]]:
    """Judge -> aspect or `AVERAGE` -> its figures, with 95 % intervals from resampled sources.

    Args:
        judges: Judge -> aspect -> scores on the raters' scale by group, the same groups for all; all judges are
            compared with the first.
        cuts: Aspect -> its cut (`cuts_of`).
        one_scale: Whether all aspects have the same scale; else there is no average error.
        resamples: Number of resamples.
        seed: Of the resamples.
    """
    first, aspects = next(iter(judges)), list(next(iter(judges.values())))
    index = GroupIndex.of(judges[first], seed)
    estimates, pairs = dict[tuple[str, str], LevelEstimate](), dict[tuple[str, str], Pairs]()
    for judge, by_aspect in judges.items():
        for aspect in aspects:
            key = judge, aspect
            pairs[key] = pairs_of_groups(by_aspect[aspect], index)
            estimates[key] = _estimate(pairs[key], cuts[aspect])
    replicates = dict(
        zip(estimates, resample(list(estimates.values()), index.units, resamples=resamples, seed=seed), strict=True)
    )
    found: dict[str, dict[str, Closeness]] = {}
    for judge in judges:
        found[judge] = {}
        for name, over in [*((aspect, [aspect]) for aspect in aspects), (AVERAGE, aspects)]:
            value, drawn, counts = (
                np.mean([estimates[judge, a].values for a in over], axis=0),
                np.mean([replicates[judge, a] for a in over], axis=0),
                [len(pairs[judge, a].scores) for a in over],
            )
            base = np.mean([estimates[first, a].values for a in over], axis=0)
            moved = drawn - np.mean([replicates[first, a] for a in over], axis=0)
            groups = min(index.sources(estimates[judge, a].rests_on) for a in over)
            if name == AVERAGE and not one_scale:
                value = np.array([np.nan, *value[1:]])
            figures = _measures(value, drawn, groups, min(counts))
            changes = {} if judge == first else _changes(value - base, moved, groups)
            found[judge][name] = Closeness(cuts.get(name), sum(counts), figures, changes)
    return found


@dataclass(frozen=True, slots=True)
class Bounds:
    """What closeness in one aspect is measured against."""

    span: float
    """From the lowest to the highest point of the scale."""
    cut: float
    """Of the decision."""


def closest(measure: Closest, ratings: Floats, scores: Floats, bounds: Bounds) -> Floats:
    """A measure of each row as something to maximize, 1 at best, shape (rows,); NaN where it is undefined.

    Args:
        measure: Which one; of the error, its share of the scale is subtracted from 1.
        ratings: Shape (rows, width); NaN fills up shorter rows, at the same places as in `scores`.
        scores: Likewise.
        bounds: Of the aspect.
    """
    there = ~np.isnan(ratings)
    s, r = np.where(there, scores, 0.0), np.where(there, ratings, 0.0)
    yes, wanted = (there & (x >= bounds.cut) for x in (scores, ratings))
    parts = [there, np.abs(s - r), s, r, s * s, r * r, s * r, yes & wanted, yes, wanted]
    error, ccc, kappa = _figures(np.array([part.sum(axis=1) for part in parts], dtype=float))
    found: Floats = {"mae": 1 - error / bounds.span, "ccc": ccc, "kappa": kappa}[measure]
    return found


def _estimate(pairs: Pairs, cut: float) -> LevelEstimate:
    s, r, yes, wanted = pairs.scores, pairs.ratings, pairs.scores >= cut, pairs.ratings >= cut
    ones = np.ones_like(s)
    parts = np.array([ones, np.abs(s - r), s, r, s * s, r * r, s * r, yes * wanted, yes * ones, wanted * ones])
    sums = summing_each(parts, pairs.unit, pairs.units)
    values = _figures(sums(np.ones((pairs.units, 1))))[:, 0]
    nothing = np.zeros(pairs.groups, dtype=bool)
    return LevelEstimate(values, pairs.contributing, nothing, values, replicate=lambda counts: _figures(sums(counts)))


def _figures(sums: Floats) -> Floats:
    """The three measures, shape (3, resamples), of the sums of `_estimate`, shape (10, resamples)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        _, error, s, r, ss, rr, sr, both, yes, wanted = sums / sums[0]
        ccc = 2 * (sr - s * r) / (ss - s * s + rr - r * r + (s - r) ** 2)
        chance = yes * wanted + (1 - yes) * (1 - wanted)
        kappa = (1 - yes - wanted + 2 * both - chance) / (1 - chance)
        kappa = np.where((wanted > 0) & (wanted < 1), kappa, np.nan)
    return np.array([error, ccc, kappa])


def _measures(values: Floats, drawn: Floats, groups: int, candidates: int) -> dict[str, Measure]:
    error, *others = values
    spans = [of_differences(float(error), drawn[0], groups, ends=(0.0, math.inf))]
    spans += [of_replicates(float(v), row, groups, candidates) for v, row in zip(others, drawn[1:], strict=True)]
    return {name: _measure(float(v), span) for name, v, span in zip(MEASURES, values, spans, strict=True)}


def _changes(values: Floats, drawn: Floats, groups: int) -> dict[str, Measure]:
    return {
        name: _measure(float(value), of_differences(float(value), row, groups, ends=(-math.inf, math.inf)))
        for name, value, row in zip(MEASURES, values, drawn, strict=True)
    }


def _measure(value: float, span: Interval) -> Measure:
    return Measure(None, None, None) if math.isnan(value) else Measure(value, *span)
