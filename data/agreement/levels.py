"""Correlations at each level, with the data for their intervals. Undefined is NaN here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import (
    LevelEstimate,
    RatingScorePairs,
    pseudo_values,
    resample_counts,
    sums_by_row,
)
from debate_judge.data.agreement.correlations import Floats, Statistic, correlations

_MANY_SYSTEMS, _MIN_RESAMPLES = 256, 200


def summary_level(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> LevelEstimate:
    """The mean over groups of the correlation within the group.

    Groups in which all ratings are equal are left out; those in which only the scores are all equal count 0.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
    """
    values = _within_groups(pairs.ratings, pairs.scores, pairs, statistics)
    ranked = ~np.isnan(_within_groups(pairs.ratings, pairs.ratings, pairs, ["pearson"])[0])
    constant = ranked & np.isnan(values[0])
    values[:, constant] = 0.0
    means, means_without_constant = (
        np.array([math.fsum(row) / len(row) if len(row) else math.nan for row in values[:, groups]])
        for groups in (ranked, ranked & ~constant)
    )
    return LevelEstimate(means, ranked, constant, means_without_constant, by_group=values)


def sample_level(pairs: RatingScorePairs, statistics: Sequence[Statistic], *, intervals: bool = True) -> LevelEstimate:
    """The correlation over all candidates of all groups; 0 where the ratings differ and the scores do not.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
        intervals: Whether to compute jackknife pseudo-values, which take a correlation without each unit.
    """
    if len(pairs.ratings) < 2 or np.ptp(pairs.ratings) == 0:
        return _undefined_estimate(pairs, statistics)
    values = correlations(pairs.ratings[None], pairs.scores[None], statistics)[:, 0]
    constant = pairs.groups_with_pairs & bool(np.isnan(values).any())
    estimate = LevelEstimate(np.nan_to_num(values), pairs.groups_with_pairs, constant, values)
    if not intervals:
        return estimate
    _, first, unit = np.unique(pairs.unit, return_index=True, return_inverse=True)
    by_group = np.full((len(values), pairs.groups), np.nan)
    # The pseudo-value of a unit is put at the first of its groups.
    by_group[:, pairs.group[first]] = pseudo_values(
        lambda x, y: correlations(x, y, statistics), pairs.ratings, pairs.scores, unit, len(first)
    )
    return replace(estimate, by_group=by_group)


def system_level(
    pairs: RatingScorePairs,
    statistics: Sequence[Statistic],
    *,
    resamples: int = 0,
    seed: int = 0,
    draw_systems: bool = False,
    progress: Callable[[int], object] = lambda done: None,
) -> LevelEstimate:
    """The correlation of mean ratings with mean scores over systems; 0 where only the mean scores do not differ.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems the value is undefined.
    Beyond 256 systems, fewer resamples are computed, down to 200.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
        resamples: Number of bootstrap resamples of the groups.
        seed: For the resampling of groups and systems.
        draw_systems: Whether to resample the systems, too, so that the interval generalises to similar systems.
        progress: Called with the number of resamples done since the last call.
    """
    recurring = np.bincount(pairs.system)[pairs.system] > 1
    systems = len(np.unique(pairs.system[recurring]))
    if systems < 3:
        return _undefined_estimate(pairs, statistics, resamples)
    means, rng = _system_means(pairs, recurring), np.random.default_rng(seed)

    def correlate_systems(counts: Floats) -> Floats:
        system_means = means(counts)
        if draw_systems:
            drawn_systems = rng.integers(systems, size=system_means[0].shape)
            ratings, scores = (np.take_along_axis(of_systems, drawn_systems, axis=1) for of_systems in system_means)
            return correlations(ratings, scores, statistics)
        return correlations(*system_means, statistics)

    mean_ratings, mean_scores = means(np.ones((pairs.units, 1)))
    values = correlations(mean_ratings, mean_scores, statistics)[:, 0]
    if np.isnan(values).any():
        return _undefined_estimate(pairs, statistics, resamples, constant=bool(np.ptp(mean_ratings) > 0))
    capped = min(resamples, max(_MIN_RESAMPLES, resamples * _MANY_SYSTEMS // max(_MANY_SYSTEMS, systems)))
    replicates = np.full((len(statistics), resamples), np.nan)
    for columns, counts in resample_counts(pairs.units, capped, seed):
        replicates[:, columns] = correlate_systems(counts)
        progress(counts.shape[1])
    included_groups = np.bincount(pairs.group[recurring], minlength=pairs.groups) > 0
    sources = pairs.index.count_sources(included_groups)
    return LevelEstimate(
        values,
        included_groups,
        np.zeros(pairs.groups, dtype=bool),
        values,
        replicates=replicates,
        units=min(sources, systems) if draw_systems else sources,
        observations=math.comb(systems, 2),
    )


def _system_means(pairs: RatingScorePairs, recurring: NDArray[np.bool_]) -> Callable[[Floats], tuple[Floats, Floats]]:
    """A function from counts of drawn units, shape (units, resamples), to the mean ratings and mean scores of the
    systems, each of shape (resamples, systems). `recurring` is the mask of the pairs whose system has several."""
    systems, system = np.unique(pairs.system[recurring], return_inverse=True)
    shape, unit = (len(systems), pairs.units), pairs.unit[recurring]
    summands = (
        np.ones(len(unit)),
        _scaled_deviations(pairs.ratings[recurring]),
        _scaled_deviations(pairs.scores[recurring]),
    )
    candidate_counts, rating_sums, score_sums = (sums_by_row(values, system, unit, shape) for values in summands)

    def means(counts: Floats) -> tuple[Floats, Floats]:
        candidates = candidate_counts(counts)
        with np.errstate(invalid="ignore"):
            # Rounded, because equal means of different values may differ in their last digits and would not tie.
            return np.round(rating_sums(counts) / candidates, 13).T, np.round(score_sums(counts) / candidates, 13).T

    return means


def _undefined_estimate(
    pairs: RatingScorePairs, statistics: Sequence[Statistic], resamples: int = 0, *, constant: bool = False
) -> LevelEstimate:
    """The estimate without a correlation: undefined, or 0 on all groups with pairs if only the scores are constant."""
    values = np.full(len(statistics), 0.0 if constant else math.nan)
    included_groups = pairs.groups_with_pairs & constant
    return LevelEstimate(
        values,
        included_groups,
        included_groups,
        np.full(len(statistics), math.nan),
        replicates=np.repeat(values[:, None], resamples, axis=1),
        units=pairs.index.count_sources(included_groups),
        observations=math.comb(len(pairs.ratings), 2),
    )


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


def _scaled_deviations(values: Floats) -> Floats:
    """Deviations from the mean divided by the range, so that sums of squares lose few digits to cancellation."""
    width = np.ptp(values)
    units = (values - values.min()) / (width if width > 0 else 1.0)
    deviations: Floats = units - units.mean()
    return deviations
