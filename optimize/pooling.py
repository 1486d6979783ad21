"""The choice by partial pooling over aspects: the agreement of each point on each aspect, shrunk toward its agreement
on the other aspects. Takes arrays, returns indices.

A few dozen sources tell apart large differences only, and the largest of many noisy means is biased upwards. So means
are shrunk, and an aspect with little evidence borrows strength from the others: the empirical-Bayes
estimate of a normal mean whose prior is estimated from the means themselves (Efron & Morris, Data analysis using
Stein's estimator and its generalizations, JASA 70, 1975; for several kinds of means at once, Efron & Morris, Biometrika
59, 1972).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import cast

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import correlations
from debate_judge.data.agreement.decisions import ABSOLUTE_MEASURES, AbsoluteScale, Objective, objective_value
from debate_judge.data.agreement.figures import Floats, GroupScores, Statistic, pseudo_values, without_each
from debate_judge.data.schema import Level

JACKKNIFE_BLOCKS = 25
"""Blocks of the delete-a-group jackknife of a pooled correlation."""

_MIN_VARIANCE = 1e-9

MANY_GROUPS = 20
"""Number of groups from which on a cheaper point that is nearly the best is chosen."""

NEAR_BEST_TOLERANCE = 0.005
"""Loss of posterior agreement that is accepted for fewer calls with `MANY_GROUPS` groups or more."""

EQUAL_COST_TOLERANCE = 0.05
"""Largest relative difference in calls at which judges count as equally expensive; the simpler is then chosen."""

_ROUNDING_ERROR = 1e-12
"""Largest difference of agreements that counts as a rounding error."""


def choose_points(values: Sequence[Floats], calls: Floats) -> list[int]:
    """The index of the chosen point for each aspect: the cheapest of those near the best posterior mean, or with few
    groups the best.

    Args:
        values: For each aspect, of shape (points, groups): agreement in each group. Points are in order of complexity,
            the simplest first.
        calls: LM calls per item, of shape (aspects, points).
    """
    return [
        _cheapest(posterior, of_aspect, NEAR_BEST_TOLERANCE if by_group.shape[1] >= MANY_GROUPS else 0.0)
        for posterior, of_aspect, by_group in zip(posterior_means(values), calls, values, strict=True)
    ]


def _cheapest(agreement: Floats, calls: Floats, tolerance: float) -> int:
    """The simplest of the cheapest among the points whose agreement is within `tolerance` of the highest."""
    near_best = np.flatnonzero(agreement >= agreement.max() - max(tolerance, _ROUNDING_ERROR))
    fewest = calls[near_best].min()
    # With a tolerance for agreement, calls have one, too; without it only equal points remain, and calls decide.
    margin = EQUAL_COST_TOLERANCE * fewest if tolerance else 0.0
    return int(near_best[calls[near_best] <= fewest + margin][0])


def posterior_means(values: Sequence[Floats]) -> Floats:
    """Posterior mean agreement of every point on every aspect, of shape (aspects, points).

    The posterior of Y, the means less their own mean over points, is S (S + diag nu)^-1 Y, with S and nu as in
    `estimate_prior`. For one aspect it is shrinkage to the aspect's mean.

    Args:
        values: For each aspect an array of shape (points, groups): agreement of each point in each group.
    """
    aspect_means, deviations = _deviations(values)
    covariance, noise = estimate_prior(values)
    posterior: Floats = aspect_means + covariance @ np.linalg.solve(covariance + np.diag(noise), deviations)
    return posterior


def estimate_prior(values: Sequence[Floats]) -> tuple[Floats, Floats]:
    """The prior covariance S of points' true agreement, of shape (aspects, aspects), and the noise of each aspect's
    means.

    Model: Y are an aspect's means over its groups, less their own mean over points. True agreement has a component that
    all aspects share (variance c) and one of each aspect (variance d); the means of aspect a have noise of variance
    nu_a. Both variances are estimated from the moments of Y, and S = c 11' + d I.

    Args:
        values: As for `posterior_means`.
    """
    _, deviations = _deviations(values)
    aspects, points = deviations.shape
    noise = np.array([_noise(v) for v in values])
    moments = deviations @ deviations.T / points
    common = max(0.0, float((moments.sum() - np.trace(moments)) / (aspects * (aspects - 1)))) if aspects > 1 else 0.0
    specific = max(_MIN_VARIANCE, float(np.mean(np.diag(moments) - noise)) - common)
    return common * np.ones((aspects, aspects)) + specific * np.eye(aspects), noise


def _deviations(values: Sequence[Floats]) -> tuple[Floats, Floats]:
    """The mean of each aspect, and each point's deviation from it."""
    means = np.array([v.mean(axis=1) for v in values])
    aspect_means: Floats = means.mean(axis=1, keepdims=True)
    return aspect_means, means - aspect_means


def _noise(values: Floats) -> float:
    """Sampling variance of a point's mean over groups, from the interaction of groups and points."""
    groups = values.shape[1]
    if groups < 2:
        # One group does not show how groups differ; correlations cannot vary more than this.
        return 1.0
    # A group's difficulty moves all points alike, and so no difference between them.
    return float((values - values.mean(axis=0)).var(axis=1, ddof=1).mean() / groups)


def group_values(
    groups: Sequence[GroupScores], objective: Objective, level: Level, absolute_scale: AbsoluteScale | None = None
) -> dict[str, float]:
    """What each group contributes to the agreement, so that its mean is the agreement.

    At summary level that is the correlation within the group, by group id. Groups whose ratings are constant are left
    out, since no judge can agree with them; constant or missing scores count 0, so that a judge gains nothing by
    refusing to rank. At sample level there is one correlation over all candidates; its values are the pseudo-values of
    the jackknife over up to `JACKKNIFE_BLOCKS` blocks of groups (Efron & Tibshirani, An Introduction to the Bootstrap,
    1993, chapter 11), shifted so that their mean is the correlation, by block number.

    The error (`mae`, see `objective_value`) is a mean over the texts of a group, whose missing scores count as wrong by
    the whole scale.

    Args:
        groups: Ratings and scores.
        objective: What is maximized.
        level: Of the agreement.
        absolute_scale: Of the aspect, for an objective that is no correlation.
    """
    if level == "sample":
        return _pseudo_values(groups, objective, absolute_scale)
    if objective == "mae":
        return _one_minus_error(groups, absolute_scale)
    return {
        group.group: float(np.nan_to_num(_objective(*_pairs([group]), objective, absolute_scale)))
        for group in groups
        if len({r for r in group.ratings if r is not None}) > 1
    }


def _pairs(groups: Sequence[GroupScores]) -> tuple[Floats, Floats]:
    """Ratings and scores of the candidates that have both."""
    pairs = [
        (rating, score)
        for group in groups
        for rating, score in zip(group.ratings, group.scores, strict=True)
        if rating is not None and score is not None
    ]
    ratings, scores = np.array(pairs, dtype=float).reshape(-1, 2).T
    return ratings, scores


def _one_minus_error(groups: Sequence[GroupScores], absolute_scale: AbsoluteScale | None) -> dict[str, float]:
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
    blocks = min(JACKKNIFE_BLOCKS, len(groups))
    ratings, scores = _pairs(groups)
    block = np.repeat(np.arange(len(groups)) % blocks, [len(_pairs([group])[0]) for group in groups])

    def of(kept: NDArray[np.bool_]) -> float:
        return _objective(ratings[kept], scores[kept], objective, absolute_scale)

    value = float(np.nan_to_num(_objective(ratings, scores, objective, absolute_scale)))
    return {str(i): float(v) for i, v in enumerate(pseudo_values(value, without_each(of, block, blocks)))}


def _objective(ratings: Floats, scores: Floats, objective: Objective, absolute_scale: AbsoluteScale | None) -> float:
    if absolute_scale is not None and objective in ABSOLUTE_MEASURES:
        return objective_value(objective, ratings, scores, absolute_scale)
    return float(correlations(ratings[None], scores[None], cast(Statistic, objective))[0])
