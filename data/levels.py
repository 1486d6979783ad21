"""The values of agreement at each level as arrays, and how to have them again for resampled groups.

What judges and aspects are is known to `data/agreement.py` only; undefined is NaN in here. A resample is written
as how often it drew each unit (a group, or a bundle of groups where they are many, see `data/resampling.py`), so
every replicate takes draw counts of shape (units, resamples) and is vectorised over the resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.correlations import Floats, Statistic, correlations, mid_ranks, table_correlations

Replicate = Callable[[Floats], Floats]
"""Draw counts, shape (units, resamples) -> shape (statistics, resamples)."""

_CELLS = 4096
_FEWEST_BINS = 64
_FEW_SYSTEMS = 256


@dataclass(frozen=True, slots=True)
class Pairs:
    """The rated and scored candidates of one aspect; arrays of shape (pairs,)."""

    ratings: Floats
    scores: Floats
    group: NDArray[np.intp]
    """Index of the pair's group."""
    system: NDArray[np.intp]
    """Index of the pair's candidate id."""
    unit: NDArray[np.intp]
    """Index of the unit that each group is drawn with, shape (groups,); a group need not have pairs."""

    @property
    def groups(self) -> int:
        return len(self.unit)

    @property
    def units(self) -> int:
        return int(self.unit.max(initial=-1)) + 1

    @property
    def contributing(self) -> NDArray[np.bool_]:
        """Which groups have pairs, shape (groups,)."""
        return np.bincount(self.group, minlength=self.groups) > 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Values at one level, and how to have them again for resampled groups."""

    values: Floats
    """Shape (statistics,)."""
    rests_on: NDArray[np.bool_]
    """Which groups the values come from, shape (groups,)."""
    replicate: Replicate
    stride: int = 1
    """A power of two: only every so-manyth resample is worth its cost."""


def summary_level(pairs: Pairs, statistics: Sequence[Statistic], constant_as_zero: bool = False) -> Estimate:
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
    row, group = np.indices(parts.shape)
    summed = _summed(parts.ravel(), row.ravel(), pairs.unit[group.ravel()], (len(parts), pairs.units))

    def mean(counts: Floats) -> Floats:
        *sums, drawn = summed(counts)
        with np.errstate(invalid="ignore"):
            means: Floats = np.stack(sums) / drawn
        return means

    return Estimate(np.array([math.fsum(row) / len(row) for row in values[:, defined]]), defined, mean)


def sample_level(pairs: Pairs, statistics: Sequence[Statistic], constant_as_zero: bool = False) -> Estimate:
    """The correlation over all candidates of all groups together.

    Values are exact. Replicates of Spearman and Kendall are computed on a table of ratings against scores. A table
    of more than 4096 cells is made smaller for the replicates only: a side with many distinct values is put on
    quantile bins (at least 64), and the replicates are shifted by the difference that this makes to the value.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
        constant_as_zero: Count scores that do not differ as 0 where the ratings do.
    """
    exact = correlations(pairs.ratings[None], pairs.scores[None], statistics)[:, 0]
    if np.isnan(exact).any():
        varied = len(pairs.ratings) > 1 and bool(np.ptp(pairs.ratings) > 0)
        return _undefined(pairs, statistics, zero=constant_as_zero and varied)
    replicate = _pooled(pairs, statistics)
    shift = exact[:, None] - replicate(np.ones((pairs.units, 1)))

    def pooled(counts: Floats) -> Floats:
        found = np.clip(replicate(counts) + shift, -1.0, 1.0)
        return np.nan_to_num(found) if constant_as_zero else found

    return Estimate(exact, pairs.contributing, pooled)


def system_level(pairs: Pairs, statistics: Sequence[Statistic], constant_as_zero: bool = False) -> Estimate:
    """The correlation of mean ratings with mean scores over systems.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems there is no value.
    Beyond 256 systems an interval rests on fewer resamples, down to 200, rather than on rougher statistics.

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
    summands = (np.ones(len(group)), _in_units(pairs.ratings[recurring]), _in_units(pairs.scores[recurring]))
    seen, rated, scored = (_summed(v, system, pairs.unit[group], (len(systems), pairs.units)) for v in summands)

    def means(counts: Floats) -> tuple[Floats, Floats]:
        drawn = seen(counts)
        with np.errstate(invalid="ignore"):
            # Equal means of unequal values may differ in their last digits, which would break ties.
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
    return Estimate(values, rests_on, over_systems, stride)


def _undefined(pairs: Pairs, statistics: Sequence[Statistic], zero: bool = False) -> Estimate:
    """No value, or 0 on all groups with pairs."""
    values = np.full(len(statistics), 0.0 if zero else math.nan)
    return Estimate(
        values, pairs.contributing & zero, lambda counts: np.repeat(values[:, None], counts.shape[1], axis=1)
    )


def _within_groups(x: Floats, y: Floats, pairs: Pairs, statistics: Sequence[Statistic]) -> Floats:
    """The correlations of `x` with `y` in each group, shape (statistics, groups)."""
    values = np.full((len(statistics), pairs.groups), np.nan)
    sizes = np.bincount(pairs.group, minlength=pairs.groups)
    order = np.argsort(pairs.group, kind="stable")
    starts = np.cumsum(sizes) - sizes
    # Groups of similar size share one padded matrix.
    widths = np.where(sizes > 1, 2.0 ** np.ceil(np.log2(np.maximum(sizes, 1))), 0).astype(np.intp)
    for width in np.unique(widths[widths > 0]):
        columns = np.arange(width)
        members = np.flatnonzero(widths == width)
        for part in np.array_split(members, math.ceil(len(members) * width / 2**20)):
            there = columns < sizes[part, None]
            at = order[np.where(there, starts[part, None] + columns, 0)]
            values[:, part] = correlations(np.where(there, x[at], np.nan), np.where(there, y[at], np.nan), statistics)
    return values


def _summed(values: Floats, row: NDArray[np.intp], unit: NDArray[np.intp], shape: tuple[int, int]) -> Replicate:
    """Sums of `values` by row over the drawn units; `shape` is (rows, units)."""
    from scipy.sparse import csr_array

    # Sparse even where nothing is 0: the threads of a dense product cost more than it saves where cores are shared.
    matrix = csr_array((values, (row, unit)), shape=shape)
    return lambda counts: np.asarray(matrix @ counts)


def _in_units(values: Floats) -> Floats:
    """Deviations from the mean in units of the range, so that little is lost when they are summed."""
    width = np.ptp(values)
    units = (values - values.min()) / (width if width > 0 else 1.0)
    deviations: Floats = units - units.mean()
    return deviations


def _pooled(pairs: Pairs, statistics: Sequence[Statistic]) -> Replicate:
    pearson = _moments(pairs) if "pearson" in statistics else None
    ranked = [name for name in statistics if name != "pearson"]
    table = _table(pairs) if ranked else None

    def replicate(counts: Floats) -> Floats:
        found: dict[Statistic, Floats] = {}
        if pearson is not None:
            found["pearson"] = pearson(counts)
        if table is not None:
            found |= zip(ranked, table_correlations(table(counts), ranked), strict=True)
        return np.stack([found[name] for name in statistics])

    return replicate


def _moments(pairs: Pairs) -> Callable[[Floats], Floats]:
    """Pearson from the sums over each group, which is all that it needs."""
    x, y = _in_units(pairs.ratings), _in_units(pairs.scores)
    parts = np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y])
    row, pair = np.indices(parts.shape)
    unit = pairs.unit[pairs.group[pair.ravel()]]
    summed = _summed(parts.ravel(), row.ravel(), unit, (len(parts), pairs.units))

    def pearson(counts: Floats) -> Floats:
        n, sx, sy, sxx, syy, sxy = summed(counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            vx, vy = sxx - sx * sx / n, syy - sy * sy / n
            # What a constant side leaves of its variance is rounding.
            varied = (vx > 1e-12 * sxx) & (vy > 1e-12 * syy)
            return np.where(varied, (sxy - sx * sy / n) / np.sqrt(vx * vy), np.nan)

    return pearson


def _table(pairs: Pairs) -> Callable[[Floats], Floats]:
    """Resampled tables of ratings against scores, shape (ratings, scores, resamples)."""
    rating, score = _codes(pairs.ratings), _codes(pairs.scores)
    rows, columns = rating.max() + 1, score.max() + 1
    if rows * columns > _CELLS:
        rating = _binned(pairs.ratings, rating, max(_FEWEST_BINS, _CELLS // columns))
        score = _binned(pairs.scores, score, max(_FEWEST_BINS, _CELLS // (rating.max() + 1)))
        rows, columns = rating.max() + 1, score.max() + 1
    cell, unit = rating * columns + score, pairs.unit[pairs.group]
    summed = _summed(np.ones(len(cell)), cell, unit, (int(rows * columns), pairs.units))
    return lambda counts: summed(counts).reshape(rows, columns, -1)


def _codes(values: Floats) -> NDArray[np.intp]:
    return np.unique(values, return_inverse=True)[1]


def _binned(values: Floats, codes: NDArray[np.intp], bins: int) -> NDArray[np.intp]:
    if codes.max() < bins:
        return codes
    return _codes(np.floor(mid_ranks(values[None])[0] * bins / len(values)))
