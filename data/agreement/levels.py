"""Correlations at each level, with the data for their intervals. Undefined is NaN here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import AgreementEstimate, RatingScorePairs
from debate_judge.data.agreement.correlations import Floats, Statistic, correlations
from debate_judge.data.schema import Level

_MANY_SYSTEMS, _MIN_RESAMPLES = 256, 200


@dataclass(frozen=True, slots=True)
class LevelEstimate:
    """Correlations of one aspect at one level."""

    estimate: AgreementEstimate
    """Values are 0 where the scores are constant and the ratings are not."""
    constant: NDArray[np.bool_]
    """Mask of the groups with constant scores, shape (groups,)."""
    without_constant: Floats
    """The values without these groups, shape (statistics,)."""


def estimate_level(
    level: Level,
    pairs: RatingScorePairs,
    statistics: Sequence[Statistic],
    *,
    resamples: int,
    seed: int,
    jackknife: bool = True,
) -> LevelEstimate:
    """Compute the correlations of one aspect at a level.

    At system level, `resamples` is the number of bootstrap resamples of the sources. At sample level, `jackknife` is
    whether to compute influences, which take a correlation without each source.
    """
    if level == "summary":
        return _summary_level(pairs, statistics)
    if level == "sample":
        return _sample_level(pairs, statistics, jackknife)
    return _system_level(pairs, statistics, resamples, seed)


def _summary_level(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> LevelEstimate:
    """The mean over groups of the correlation within the group.

    Groups in which all ratings are equal are left out; those in which only the scores are all equal count 0.
    """
    values = _within_groups(pairs.ratings, pairs.scores, pairs, statistics)
    ranked = ~np.isnan(_within_groups(pairs.ratings, pairs.ratings, pairs, ["pearson"])[0])
    constant = ranked & np.isnan(values[0])
    without_constant = AgreementEstimate.of_groups(pairs.index, values, ranked & ~constant).values
    values[:, constant] = 0.0
    return LevelEstimate(AgreementEstimate.of_groups(pairs.index, values, ranked), constant, without_constant)


def _sample_level(pairs: RatingScorePairs, statistics: Sequence[Statistic], jackknife: bool) -> LevelEstimate:
    """The correlation over all candidates of all groups; 0 where the ratings differ and the scores do not."""
    if len(pairs.ratings) < 2 or np.ptp(pairs.ratings) == 0:
        return _undefined_estimate(pairs, statistics)
    values = correlations(pairs.ratings[None], pairs.scores[None], statistics)[:, 0]
    constant = pairs.groups_with_pairs & bool(np.isnan(values).any())
    estimate = AgreementEstimate(pairs.index, np.nan_to_num(values), pairs.groups_with_pairs)
    if jackknife:
        by_group = pairs.jackknife(lambda x, y: correlations(x, y, statistics))
        estimate = replace(
            AgreementEstimate.of_groups(pairs.index, by_group, pairs.groups_with_pairs), values=estimate.values
        )
    return LevelEstimate(estimate, constant, values)


def _system_level(pairs: RatingScorePairs, statistics: Sequence[Statistic], resamples: int, seed: int) -> LevelEstimate:
    """The correlation of mean ratings with mean scores over systems; 0 where only the mean scores do not differ.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems the value is undefined.
    Beyond 256 systems, fewer resamples are computed, down to 200.
    """
    counts, ratings, scores = system_sums(pairs)
    systems, units = counts.shape
    if systems < 3:
        return _undefined_estimate(pairs, statistics, resamples)

    def means(weights: Floats) -> tuple[Floats, Floats]:
        """Mean ratings and mean scores, each of shape (resamples, systems), from how often each unit is drawn."""
        sizes = counts @ weights
        with np.errstate(invalid="ignore"):
            # Rounded, because equal means of different values may differ in their last digits and would not tie.
            return np.round((ratings @ weights) / sizes, 13).T, np.round((scores @ weights) / sizes, 13).T

    mean_ratings, mean_scores = means(np.ones((units, 1)))
    values = correlations(mean_ratings, mean_scores, statistics)[:, 0]
    if np.isnan(values).any():
        return _undefined_estimate(pairs, statistics, resamples, constant=bool(np.ptp(mean_ratings) > 0))
    computed = min(resamples, max(_MIN_RESAMPLES, resamples * _MANY_SYSTEMS // max(_MANY_SYSTEMS, systems)))
    replicates, rng = np.full((len(statistics), resamples), np.nan), np.random.default_rng(seed)
    for chunk in np.array_split(np.arange(computed), 1 + computed * (units + systems) // 2**22):
        drawn = rng.integers(units, size=(len(chunk), units)) + units * np.arange(len(chunk))[:, None]
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(float)
        replicates[:, chunk] = correlations(*means(times.T), statistics)
    recurring = np.bincount(pairs.system)[pairs.system] > 1
    included_groups = np.bincount(pairs.group[recurring], minlength=pairs.groups) > 0
    estimate = AgreementEstimate.of_replicates(pairs.index, values, included_groups, replicates, math.comb(systems, 2))
    return LevelEstimate(estimate, np.zeros(pairs.groups, dtype=bool), values)


def system_sums(pairs: RatingScorePairs) -> tuple[Any, Any, Any]:
    """Number of pairs, sum of ratings and sum of scores of each system in each unit of resampling, as sparse arrays of
    shape (systems, units); ratings and scores are standardized. Candidate ids with a single pair are left out."""
    from scipy.sparse import csr_array

    recurring = np.bincount(pairs.system)[pairs.system] > 1
    system = np.unique(pairs.system[recurring], return_inverse=True)[1]
    unit = pairs.index.unit_of_group[pairs.group[recurring]]
    shape = (int(system.max(initial=-1)) + 1, int(pairs.index.unit_of_group.max(initial=-1)) + 1)
    # Sparse even where nothing is 0: the threads of a dense product cost more than it saves where cores are shared.
    values = (np.ones(len(unit)), _standardized(pairs.ratings[recurring]), _standardized(pairs.scores[recurring]))
    counts, ratings, scores = (csr_array((v, (system, unit)), shape=shape) for v in values)
    return counts, ratings, scores


def _standardized(values: Floats) -> Floats:
    """Deviations from the mean in units of the standard deviation; 0 where all values are equal."""
    if not len(values) or np.ptp(values) == 0:
        return np.zeros(len(values))
    deviations = values / np.abs(values).max()
    deviations = deviations - deviations.mean()
    return np.asarray(deviations / deviations.std())


def _undefined_estimate(
    pairs: RatingScorePairs, statistics: Sequence[Statistic], resamples: int = 0, *, constant: bool = False
) -> LevelEstimate:
    """The estimate without a correlation: undefined, or 0 on all groups with pairs if only the scores are constant."""
    values = np.full(len(statistics), 0.0 if constant else math.nan)
    included_groups = pairs.groups_with_pairs & constant
    replicates, observations = np.repeat(values[:, None], resamples, axis=1), math.comb(len(pairs.ratings), 2)
    estimate = AgreementEstimate.of_replicates(pairs.index, values, included_groups, replicates, observations)
    return LevelEstimate(estimate, included_groups, np.full(len(statistics), math.nan))


def _within_groups(x: Floats, y: Floats, pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> Floats:
    """The correlations of `x` with `y` in each group, shape (statistics, groups)."""
    values = np.full((len(statistics), pairs.groups), np.nan)
    sizes = np.bincount(pairs.group, minlength=pairs.groups)
    order = np.argsort(pairs.group, kind="stable")
    starts = np.cumsum(sizes) - sizes
    # Groups of similar size share one padded matrix, for one vectorised call.
    widths = np.where(sizes > 1, 2.0 ** np.ceil(np.log2(np.maximum(sizes, 1))), 0).astype(np.intp)
    for width in np.unique(widths[widths > 0]):
        columns = np.arange(width)
        members = np.flatnonzero(widths == width)
        for chunk in np.array_split(members, math.ceil(len(members) * width / 2**20)):
            filled = columns < sizes[chunk, None]
            pair_of_cell = order[np.where(filled, starts[chunk, None] + columns, 0)]
            values[:, chunk] = correlations(
                np.where(filled, x[pair_of_cell], np.nan), np.where(filled, y[pair_of_cell], np.nan), statistics
            )
    return values
