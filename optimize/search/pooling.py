"""The choice by partial pooling over aspects: what each point of a search is worth for each aspect, shrunk toward what
it is worth for the others. Arrays in, indices out.

A few dozen sources tell apart large differences only, and the largest of many noisy means is too large. So the means of
one aspect are shrunk, so that an aspect with little evidence borrows strength from the others: the empirical-Bayes
estimate of a normal mean whose prior is estimated from the means themselves (Efron & Morris, Data analysis using
Stein's estimator and its generalizations, JASA 70, 1975; for several kinds of means at once, Efron & Morris, Biometrika
59, 1972).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast

import numpy as np

from debate_judge.data.agreement.bootstrap import pseudo_values
from debate_judge.data.agreement.correlations import Floats, correlations
from debate_judge.data.agreement.tables import GroupScores, Level, Statistic
from debate_judge.data.inference.absolute_agreement import MEASURES, AbsoluteScale, Objective, objective_value

BLOCKS = 25
"""Parts of the data that a pooled correlation is recomputed without, to see how much it rests on each."""

_MIN_SPREAD = 1e-9

MANY_GROUPS = 20
"""Number of groups from which on a cheaper point that is nearly the best is chosen."""

NEARLY = 0.005
"""Loss of posterior agreement that is accepted for fewer calls with `MANY_GROUPS` groups or more."""

SAME_COST = 0.05
"""Share of the calls by which judges may differ and still cost the same; the simpler is taken then."""

_EQUAL = 1e-12
"""Largest difference of agreements that is taken for a rounding error."""


@dataclass(frozen=True)
class Evaluated:
    """What all points did on the data of a choice. Points stand in the order of complexity, the simplest first."""

    values: Sequence[Floats]
    """For each aspect, of shape (points, groups): agreement in each group."""
    calls: Floats
    """LM calls per item, of shape (aspects, points)."""
    units: Sequence[Sequence[int]]
    """The aspects that get one judge together, by number."""


def pooled(evaluated: Evaluated) -> list[int]:
    """Partial pooling over aspects: the cheapest of those that are nearly the best, or with few groups the best."""
    posterior = pooled_means(evaluated.values)
    chosen = []
    for unit in evaluated.units:
        enough = min(evaluated.values[a].shape[1] for a in unit) >= MANY_GROUPS
        chosen.append(
            _cheapest(posterior[unit].mean(axis=0), evaluated.calls[unit].mean(axis=0), NEARLY if enough else 0.0)
        )
    return chosen


def _cheapest(worth: Floats, calls: Floats, within: float) -> int:
    """The simplest of the cheapest among the points that are worth the most, or by no more than `within` less."""
    good = np.flatnonzero(worth >= worth.max() - max(within, _EQUAL))
    least = calls[good].min()
    # Without a tolerance equal points are left, which cost what they cost; with one, a few calls are no reason.
    spared = SAME_COST * least if within else 0.0
    return int(good[calls[good] <= least + spared][0])


def pooled_means(values: Sequence[Floats]) -> Floats:
    """Posterior mean agreement of every point on every aspect, of shape (aspects, points).

    The posterior of Y, the means less their own mean over points, is S (S + diag nu)^-1 Y, with S and nu as in `prior`.
    For one aspect it is shrinkage to the aspect's mean.

    Args:
        values: For each aspect an array of shape (points, groups): agreement of each point in each group.
    """
    level, deviations = _deviations(values)
    spread, noise = prior(values)
    posterior: Floats = level + spread @ np.linalg.solve(spread + np.diag(noise), deviations)
    return posterior


def prior(values: Sequence[Floats]) -> tuple[Floats, Floats]:
    """How much points differ in truth, of shape (aspects, aspects), and the noise of each aspect's means.

    Model: an aspect's means over its groups, less their own mean over points, are Y. Points differ by what they are
    worth for all aspects alike (variance c) and for one aspect alone (variance d), and the means of aspect a have the
    noise nu_a of so many groups. Both variances come from the moments of Y, and S = c 11' + d I.

    Args:
        values: As for `pooled_means`.
    """
    _, deviations = _deviations(values)
    aspects, points = deviations.shape
    noise = np.array([_noise(v) for v in values])
    moments = deviations @ deviations.T / points
    common = max(0.0, float((moments.sum() - np.trace(moments)) / (aspects * (aspects - 1)))) if aspects > 1 else 0.0
    own_variance = max(_MIN_SPREAD, float(np.mean(np.diag(moments) - noise)) - common)
    return common * np.ones((aspects, aspects)) + own_variance * np.eye(aspects), noise


def _deviations(values: Sequence[Floats]) -> tuple[Floats, Floats]:
    """The mean of each aspect, and how far each point's mean is from it."""
    means = np.array([v.mean(axis=1) for v in values])
    level: Floats = means.mean(axis=1, keepdims=True)
    return level, means - level


def _noise(values: Floats) -> float:
    """Variance of a point's mean over groups, of what groups do to points differently."""
    groups = values.shape[1]
    if groups < 2:
        # One group tells nothing about how groups differ; correlations cannot vary more than this.
        return 1.0
    # How hard a group is moves all points alike, and so no difference between them.
    return float((values - values.mean(axis=0)).var(axis=1, ddof=1).mean() / groups)


def group_values(
    groups: Sequence[GroupScores], objective: Objective, level: Level, absolute_scale: AbsoluteScale | None = None
) -> dict[str, float]:
    """What each group contributes to the agreement, so that its mean is the agreement.

    At summary level that is the correlation within the group, by group id. Groups whose ratings are constant are left
    out, since no judge can agree with them; constant or missing scores count 0, so that a judge gains nothing by
    refusing to rank. At sample level there is one correlation over all candidates; its values are the pseudo-values of
    the jackknife over up to `BLOCKS` blocks of groups (Efron & Tibshirani, An Introduction to the Bootstrap, 1993,
    chapter 11), moved to the mean that they must have, by block number.

    The error (`mae`, see `objective_value`) is a mean over the texts of a group, whose missing scores count as wrong by
    the whole scale.

    Args:
        groups: Ratings and scores.
        objective: What is maximized.
        level: Of a correlation, and of the error.
        absolute_scale: Of the aspect, for an objective that is no correlation.
    """
    if level == "sample":
        return _pseudo_values(groups, objective, absolute_scale)
    if objective == "mae":
        return _nearness(groups, absolute_scale)
    ranked = [group for group in groups if len({r for r in group.ratings if r is not None}) > 1]
    if not ranked:
        return {}
    width = max(len(group.ratings) for group in ranked)
    ratings, scores = np.full((len(ranked), width), np.nan), np.full((len(ranked), width), np.nan)
    for row, group in enumerate(ranked):
        for column, (rating, score) in enumerate(zip(group.ratings, group.scores, strict=True)):
            if rating is not None and score is not None:
                ratings[row, column], scores[row, column] = rating, score
    values = np.nan_to_num(_of_rows(ratings, scores, objective, absolute_scale))
    return {group.group: float(value) for group, value in zip(ranked, values, strict=True)}


def _nearness(groups: Sequence[GroupScores], absolute_scale: AbsoluteScale | None) -> dict[str, float]:
    """1 less the mean error as a share of the scale, by group."""
    span = cast(AbsoluteScale, absolute_scale).width
    by_group = {}
    for group in groups:
        rated = [(r, s) for r, s in zip(group.ratings, group.scores, strict=True) if r is not None]
        if rated:
            by_group[group.group] = 1 - fmean(span if s is None else abs(s - r) for r, s in rated) / span
    return by_group


def _pseudo_values(
    groups: Sequence[GroupScores], objective: Objective, absolute_scale: AbsoluteScale | None
) -> dict[str, float]:
    blocks = min(BLOCKS, len(groups))
    pairs = [
        (number % blocks, rating, score)
        for number, group in enumerate(groups)
        for rating, score in zip(group.ratings, group.scores, strict=True)
        if rating is not None and score is not None
    ]
    if not pairs:
        return {str(block): 0.0 for block in range(blocks)}
    block, rating, score = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    found = pseudo_values(
        lambda x, y: _of_rows(x, y, objective, absolute_scale)[None], rating, score, block.astype(np.intp), blocks
    )
    return {str(number): float(value) for number, value in enumerate(found[0])}


def _of_rows(ratings: Floats, scores: Floats, objective: Objective, absolute_scale: AbsoluteScale | None) -> Floats:
    if absolute_scale is not None and objective in MEASURES:
        return objective_value(objective, ratings, scores, absolute_scale)
    with np.errstate(invalid="ignore"):
        values: Floats = correlations(ratings, scores, [cast(Statistic, objective)])[0]
    return values
