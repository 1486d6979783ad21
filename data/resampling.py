"""Agreement at each level as arrays, and the resampling of groups that its intervals rest on.

What judges and aspects are is known to `data/agreement.py` only; undefined is NaN in here. A resample of G groups
is written as how often it drew each of them, so every estimate takes draw counts of shape (groups, resamples) and
is vectorised over the resamples.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.correlations import Floats, Statistic, correlations, mid_ranks, table_correlations

Replicate = Callable[[Floats], Floats]
"""Draw counts, shape (groups, resamples) -> shape (statistics, resamples)."""

_CELLS = 4096
_FEWEST_BINS = 64
_CHUNK = 256
_FEW_SYSTEMS = 256
_ENOUGH_RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class Pairs:
    """The rated and scored candidates of one aspect; arrays of shape (pairs,)."""

    ratings: Floats
    scores: Floats
    group: NDArray[np.intp]
    """Index of the pair's group."""
    system: NDArray[np.intp]
    """Index of the pair's candidate id."""
    groups: int
    """How many groups are resampled, with or without pairs."""


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
    summands = np.vstack([np.nan_to_num(values), defined])

    def mean(counts: Floats) -> Floats:
        *sums, drawn = summands @ counts
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
    shift = exact[:, None] - replicate(np.ones((pairs.groups, 1)))

    def pooled(counts: Floats) -> Floats:
        found = np.clip(replicate(counts) + shift, -1.0, 1.0)
        return np.nan_to_num(found) if constant_as_zero else found

    return Estimate(exact, np.bincount(pairs.group, minlength=pairs.groups) > 0, pooled)


def system_level(pairs: Pairs, statistics: Sequence[Statistic], constant_as_zero: bool = False) -> Estimate:
    """The correlation of mean ratings with mean scores over systems.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems there is no value.
    Beyond 256 systems an interval rests on fewer resamples, down to 400, rather than on rougher statistics.

    Args:
        pairs: Of one aspect.
        statistics: What to compute.
        constant_as_zero: Count mean scores that do not differ as 0 where the mean ratings do.
    """
    from scipy.sparse import csr_array

    recurring = np.bincount(pairs.system)[pairs.system] > 1
    group, ratings, scores = pairs.group[recurring], pairs.ratings[recurring], pairs.scores[recurring]
    systems, system = np.unique(pairs.system[recurring], return_inverse=True)
    if len(systems) < 3:
        return _undefined(pairs, statistics)
    shape = (len(systems), pairs.groups)
    ones = np.ones(len(group))
    seen, rated, scored = (csr_array((v, (system, group)), shape=shape) for v in (ones, ratings, scores))

    def means(counts: Floats) -> tuple[Floats, Floats]:
        drawn = seen @ counts
        with np.errstate(invalid="ignore"):
            return _rounded((rated @ counts) / drawn).T, _rounded((scored @ counts) / drawn).T

    def over_systems(counts: Floats) -> Floats:
        found = correlations(*means(counts), statistics)
        return np.nan_to_num(found) if constant_as_zero else found

    mean_ratings, mean_scores = means(np.ones((pairs.groups, 1)))
    values = correlations(mean_ratings, mean_scores, statistics)[:, 0]
    if np.isnan(values).any():
        return _undefined(pairs, statistics, zero=constant_as_zero and bool(np.ptp(mean_ratings) > 0))
    rests_on = np.bincount(group, minlength=pairs.groups) > 0
    stride = 1 << math.ceil(math.log2(max(1.0, len(systems) / _FEW_SYSTEMS)))
    return Estimate(values, rests_on, over_systems, stride)


def resample(
    estimates: Sequence[Estimate],
    groups: int,
    *,
    resamples: int,
    seed: int,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Floats]:
    """Replicate all estimates on the same resampled groups.

    Args:
        estimates: All of the same groups.
        groups: How many groups there are; each resample draws as many, with replacement.
        resamples: How many times.
        seed: Of the draws. Nothing else decides them, not the number of threads either.
        progress: Called with the number of resamples done since the last call.

    Returns:
        One array of shape (statistics, resamples) per estimate, NaN where a resample leaves it undefined.
    """
    # Few resamples are kept whole, and a chunk of draw counts stays below some 100 MB.
    if not groups:
        return [np.full((len(e.values), resamples), np.nan) for e in estimates]
    strides = [min(e.stride, _power_of_two_below(resamples / _ENOUGH_RESAMPLES)) for e in estimates]
    size = min(_CHUNK, _power_of_two_below(2**23 / groups))
    starts = range(0, resamples, size)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))
    found = [np.full((len(e.values), resamples), np.nan) for e in estimates]

    def fill(start: int, own: np.random.SeedSequence) -> int:
        counts = _draw(np.random.default_rng(own), groups, min(size, resamples - start))
        for into, estimate, stride in zip(found, estimates, strides, strict=True):
            first = -start % stride
            chosen = counts if stride == 1 else np.ascontiguousarray(counts[:, first::stride])
            into[:, start + first : start + counts.shape[1] : stride] = estimate.replicate(chosen)
        return len(counts[0])

    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for done in pool.map(fill, starts, seeds):
            progress(done)
    return found


def _draw(rng: np.random.Generator, groups: int, resamples: int) -> Floats:
    """How often each group is drawn, shape (groups, resamples)."""
    counts = np.empty((resamples, groups))
    for row in counts:
        row[:] = np.bincount(rng.integers(groups, size=groups), minlength=groups)
    return np.ascontiguousarray(counts.T)


def _power_of_two_below(limit: float) -> int:
    return 1 << max(0, math.floor(math.log2(max(1.0, limit))))


def _undefined(pairs: Pairs, statistics: Sequence[Statistic], zero: bool = False) -> Estimate:
    """No value, or 0 on all groups with pairs."""
    value = 0.0 if zero else math.nan
    rests_on = (np.bincount(pairs.group, minlength=pairs.groups) > 0) & zero
    return Estimate(
        np.full(len(statistics), value), rests_on, lambda counts: np.full((len(statistics), counts.shape[1]), value)
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


def _rounded(means: Floats) -> Floats:
    # Equal means of unequal values differ in their last digits, which would break ties; 12 digits are kept.
    largest = np.fmax.reduce(np.abs(means), axis=0)
    return np.round(means / np.where(largest > 0, largest, 1.0), 12)


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
    # In units of the range around the mean, so that little cancels in the variances below.
    units = [(v - v.min()) / np.ptp(v) for v in (pairs.ratings, pairs.scores)]
    x, y = (u - u.mean() for u in units)
    products = (np.ones(len(x)), x, y, x * x, y * y, x * y)
    sums = np.stack([np.bincount(pairs.group, weights=w, minlength=pairs.groups) for w in products])

    def pearson(counts: Floats) -> Floats:
        n, sx, sy, sxx, syy, sxy = sums @ counts
        with np.errstate(invalid="ignore", divide="ignore"):
            vx, vy = sxx - sx * sx / n, syy - sy * sy / n
            # What a constant side leaves of its variance is rounding.
            varied = (vx > 1e-12 * sxx) & (vy > 1e-12 * syy)
            return np.where(varied, (sxy - sx * sy / n) / np.sqrt(vx * vy), np.nan)

    return pearson


def _table(pairs: Pairs) -> Callable[[Floats], Floats]:
    """Resampled tables of ratings against scores, shape (ratings, scores, resamples)."""
    from scipy.sparse import csr_array

    rating, score = _codes(pairs.ratings), _codes(pairs.scores)
    rows, columns = rating.max() + 1, score.max() + 1
    if rows * columns > _CELLS:
        rating = _binned(pairs.ratings, rating, max(_FEWEST_BINS, _CELLS // columns))
        score = _binned(pairs.scores, score, max(_FEWEST_BINS, _CELLS // (rating.max() + 1)))
        rows, columns = rating.max() + 1, score.max() + 1
    cell = rating * columns + score
    of_groups = csr_array((np.ones(len(cell)), (cell, pairs.group)), shape=(rows * columns, pairs.groups))
    return lambda counts: (of_groups @ counts).reshape(rows, columns, -1)


def _codes(values: Floats) -> NDArray[np.intp]:
    return np.unique(values, return_inverse=True)[1]


def _binned(values: Floats, codes: NDArray[np.intp], bins: int) -> NDArray[np.intp]:
    if codes.max() < bins:
        return codes
    return _codes(np.floor(mid_ranks(values[None])[0] * bins / len(values)))
