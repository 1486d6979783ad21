"""The values of agreement at each level, and functions that recompute them for resampled groups.

Undefined is NaN here; see `data/agreement/bootstrap.py` for what a replicate is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from debate_judge.data.agreement.bootstrap import LevelEstimate, Pairs, summing, summing_each
from debate_judge.data.agreement.correlations import Floats, Statistic, correlations
from debate_judge.data.agreement.pooled import in_units, pooled

_FEW_SYSTEMS = 256


def summary_level(pairs: Pairs, statistics: Sequence[Statistic], constant_as_zero: bool = False) -> LevelEstimate:
    """The correlation within each group, then the mean over the groups where it is defined.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
        constant_as_zero: Count a group as 0 where the ratings differ and the scores do not.
    """
    values = _within_groups(pairs.ratings, pairs.scores, pairs, statistics)
    if constant_as_zero:
        ranked = ~np.isnan(_within_groups(pairs.ratings, pairs.ratings, pairs, ["pearson"])[0])
        values[:, ranked] = np.nan_to_num(values[:, ranked])
    defined = ~np.isnan(values[0])
    if not defined.any():
        return _undefined(pairs, statistics)
    parts = np.vstack([np.nan_to_num(values), defined])
    summed = summing_each(parts, pairs.unit_of_group, pairs.units)

    def mean(counts: Floats) -> Floats:
        *sums, drawn = summed(counts)
        with np.errstate(invalid="ignore"):
            means: Floats = np.stack(sums) / drawn
        return means

    return LevelEstimate(np.array([math.fsum(row) / len(row) for row in values[:, defined]]), defined, mean)


def sample_level(pairs: Pairs, statistics: Sequence[Statistic], constant_as_zero: bool = False) -> LevelEstimate:
    """The correlation over all candidates of all groups, pooled.

    Values are exact, and so are the replicates, with two exceptions: those of Spearman where ratings and scores form
    more than 8192 different pairs, and those of Kendall where their table has more than 4096 cells and there are more
    than 4096 pairs or 256 groups. There a side with many values is put on quantile bins, at least 64, and the
    replicates are shifted by the difference that this makes to the value, so that they are centred on it.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
        constant_as_zero: Count scores that do not differ as 0 where the ratings do.
    """
    exact = correlations(pairs.ratings[None], pairs.scores[None], statistics)[:, 0]
    if np.isnan(exact).any():
        varied = len(pairs.ratings) > 1 and bool(np.ptp(pairs.ratings) > 0)
        return _undefined(pairs, statistics, zero=constant_as_zero and varied)
    replicate = pooled(pairs, statistics)
    shift = exact[:, None] - replicate(np.ones((pairs.units, 1)))

    def centred(counts: Floats) -> Floats:
        found = np.clip(replicate(counts) + shift, -1.0, 1.0)
        return np.nan_to_num(found) if constant_as_zero else found

    return LevelEstimate(exact, pairs.contributing, centred)


def system_level(pairs: Pairs, statistics: Sequence[Statistic], constant_as_zero: bool = False) -> LevelEstimate:
    """The correlation of mean ratings with mean scores over systems.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems there is no value.
    Beyond 256 systems an interval rests on fewer resamples, down to 200; the statistics stay exact.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
        constant_as_zero: Count mean scores that do not differ as 0 where the mean ratings do.
    """
    recurring = np.bincount(pairs.system)[pairs.system] > 1
    group = pairs.group[recurring]
    systems, system = np.unique(pairs.system[recurring], return_inverse=True)
    if len(systems) < 3:
        return _undefined(pairs, statistics)
    summands = (np.ones(len(group)), in_units(pairs.ratings[recurring]), in_units(pairs.scores[recurring]))
    seen, rated, scored = (
        summing(v, system, pairs.unit_of_group[group], (len(systems), pairs.units)) for v in summands
    )

    def means(counts: Floats) -> tuple[Floats, Floats]:
        drawn = seen(counts)
        with np.errstate(invalid="ignore"):
            # Rounded, because equal means of different values may differ in their last digits, which would break ties.
            return np.round(rated(counts) / drawn, 13).T, np.round(scored(counts) / drawn, 13).T

    def over_systems(counts: Floats) -> Floats:
        found = correlations(*means(counts), statistics)
        return np.nan_to_num(found) if constant_as_zero else found

    mean_ratings, mean_scores = means(np.ones((pairs.units, 1)))
    values = correlations(mean_ratings, mean_scores, statistics)[:, 0]
    if np.isnan(values).any():
        return _undefined(pairs, statistics, zero=constant_as_zero and bool(np.ptp(mean_ratings) > 0))
    rests_on = np.bincount(group, minlength=pairs.groups) > 0
    stride = 1 << math.ceil(math.log2(max(1.0, len(systems) / _FEW_SYSTEMS)))
    return LevelEstimate(values, rests_on, over_systems, stride)


def _undefined(pairs: Pairs, statistics: Sequence[Statistic], zero: bool = False) -> LevelEstimate:
    """An undefined value, or with `zero` the value 0 on all groups with pairs."""
    values = np.full(len(statistics), 0.0 if zero else math.nan)
    return LevelEstimate(
        values, pairs.contributing & zero, lambda counts: np.repeat(values[:, None], counts.shape[1], axis=1)
    )


def _within_groups(x: Floats, y: Floats, pairs: Pairs, statistics: Sequence[Statistic]) -> Floats:
    """The correlations of `x` with `y` in each group, shape (statistics, groups)."""
    values = np.full((len(statistics), pairs.groups), np.nan)
    sizes = np.bincount(pairs.group, minlength=pairs.groups)
    order = np.argsort(pairs.group, kind="stable")
    starts = np.cumsum(sizes) - sizes
    # Groups of similar size share one padded matrix: one call of the vectorised kernels for all of them.
    widths = np.where(sizes > 1, 2.0 ** np.ceil(np.log2(np.maximum(sizes, 1))), 0).astype(np.intp)
    for width in np.unique(widths[widths > 0]):
        columns = np.arange(width)
        members = np.flatnonzero(widths == width)
        for part in np.array_split(members, math.ceil(len(members) * width / 2**20)):
            there = columns < sizes[part, None]
            at = order[np.where(there, starts[part, None] + columns, 0)]
            values[:, part] = correlations(np.where(there, x[at], np.nan), np.where(there, y[at], np.nan), statistics)
    return values
