"""Sample-level correlations of resampled groups, from statistics that can be summed over the drawn groups.

Pearson needs six sums per group. Spearman needs the counts of each rating, each score and each combination of them.
Kendall needs the contingency table of ratings and scores, or with few groups the numbers of concordant and of tied
pairs between any two groups. Many distinct values are put on bins, see `data.agreement.levels.sample_level`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import Pairs, Replicate, summing, summing_each
from debate_judge.data.agreement.correlations import Floats, Statistic, mid_ranks, tau_b

_CELLS = 4096
"""Largest table of ratings and scores that Kendall counts."""

_COMBINATIONS = 8192
"""Most combinations of rating and score that Spearman counts."""

_FEW_UNITS, _FEW_PAIRS = 256, 4096
"""Up to so many units and pairs Kendall compares all units with one another where the table would be too large."""

_BINS = 64
"""Least number of bins."""


def pooled(pairs: Pairs, statistics: Sequence[Statistic]) -> Replicate:
    """The statistics over all pairs of the drawn units, shape (statistics, resamples)."""
    parts = [_STATISTICS[name](pairs) for name in statistics]
    return lambda counts: np.stack([part(counts) for part in parts])


def in_units(values: Floats) -> Floats:
    """Deviations from the mean divided by the range, so that sums of their squares lose few digits to cancellation."""
    width = np.ptp(values)
    units = (values - values.min()) / (width if width > 0 else 1.0)
    deviations: Floats = units - units.mean()
    return deviations


def _pearson(pairs: Pairs) -> Replicate:
    x, y = in_units(pairs.ratings), in_units(pairs.scores)
    summed = summing_each(np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y]), pairs.unit, pairs.units)

    def replicate(counts: Floats) -> Floats:
        n, sx, sy, sxx, syy, sxy = summed(counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            vx, vy = sxx - sx * sx / n, syy - sy * sy / n
            # The variance of a constant side is not exactly 0, but rounding error.
            varied = (vx > 1e-12 * sxx) & (vy > 1e-12 * syy)
            return np.where(varied, (sxy - sx * sy / n) / np.sqrt(vx * vy), np.nan)

    return replicate


def _spearman(pairs: Pairs) -> Replicate:
    x, y = _codes(pairs.ratings), _codes(pairs.scores)
    found, combination = _combinations(x, y)
    if len(found) > _COMBINATIONS:
        x, y = _on_bins(x), _on_bins(y)
        found, combination = _combinations(x, y)
    x_of, y_of = x[found], y[found]
    combined = summing(np.ones(len(x)), combination, pairs.unit, (len(found), pairs.units))
    x_summed, y_summed = (
        summing(np.ones(len(found)), code, np.arange(len(found)), (int(code.max()) + 1, len(found)))
        for code in (x_of, y_of)
    )

    def replicate(counts: Floats) -> Floats:
        weights = combined(counts)
        x_sizes, y_sizes = x_summed(weights), y_summed(weights)
        x_ranks, y_ranks = _centred_ranks(x_sizes), _centred_ranks(y_sizes)
        covariance = np.einsum("cr,cr,cr->r", weights, x_ranks[x_of], y_ranks[y_of])
        x_variance, y_variance = ((s * r**2).sum(axis=0) for s, r in ((x_sizes, x_ranks), (y_sizes, y_ranks)))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(covariance / np.sqrt(x_variance * y_variance))

    return replicate


def _kendall(pairs: Pairs) -> Replicate:
    x, y = _codes(pairs.ratings), _codes(pairs.scores)
    if (x.max() + 1) * (y.max() + 1) <= _CELLS:
        return _kendall_of_table(x, y, pairs)
    if pairs.units <= _FEW_UNITS and len(x) <= _FEW_PAIRS:
        return _kendall_between_units(x, y, pairs)
    x = _on_bins(x, _CELLS // int(y.max() + 1))
    y = _on_bins(y, _CELLS // int(x.max() + 1))
    return _kendall_of_table(x, y, pairs)


def _kendall_between_units(x: NDArray[np.intp], y: NDArray[np.intp], pairs: Pairs) -> Replicate:
    """Kendall's tau-b from the numbers of concordant minus discordant and of untied pairs between any two units.

    They add up over all pairs of drawn units, so each number of a resample is a quadratic form in its draw counts.
    """
    unit, units = pairs.unit, pairs.units
    between = np.zeros((3, units, units))
    for i, own in enumerate(unit):
        x_sign, y_sign = np.sign(x - x[i]), np.sign(y - y[i])
        for matrix, weights in zip(between, (x_sign * y_sign, x_sign != 0, y_sign != 0), strict=True):
            matrix[own] += np.bincount(unit, weights=weights, minlength=units)
    summed = summing_each(between.reshape(3 * units, units), np.arange(units), units)

    def replicate(counts: Floats) -> Floats:
        return tau_b(*np.einsum("kur,ur->kr", summed(counts).reshape(3, units, -1), counts))

    return replicate


def _kendall_of_table(x: NDArray[np.intp], y: NDArray[np.intp], pairs: Pairs) -> Replicate:
    """Kendall's tau-b from the contingency table of the codes of ratings `x` and scores `y`."""
    rows, columns = int(x.max()) + 1, int(y.max()) + 1
    summed = summing(np.ones(len(x)), x * columns + y, pairs.unit, (rows * columns, pairs.units))

    # Cumulative sums over both axes give for each cell the number of pairs below and left of it: the concordant ones.
    def replicate(counts: Floats) -> Floats:
        cells = summed(counts).reshape(rows, columns, -1)
        below = cells.copy()
        for side in (below, below.swapaxes(0, 1)):
            for previous, current in pairwise(side):
                current += previous
        concordant = np.einsum("xyr,xyr->r", cells[1:, 1:], below[:-1, :-1])
        # Counted in ordered pairs, including pairs of a candidate with its own copies in the resample, which are ties.
        every = below[-1, -1] ** 2
        x_ties, y_ties = (cells.sum(axis=1) ** 2).sum(axis=0), (cells.sum(axis=0) ** 2).sum(axis=0)
        untied = every - x_ties - y_ties + np.einsum("xyr,xyr->r", cells, cells)
        return tau_b(4 * concordant - untied, every - x_ties, every - y_ties)

    return replicate


def _codes(values: Floats) -> NDArray[np.intp]:
    """The index of each value among the distinct values in ascending order."""
    return np.unique(values, return_inverse=True)[1]


def _combinations(x: NDArray[np.intp], y: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The index where each distinct combination of codes first occurs, and each pair's combination."""
    _, first, inverse = np.unique(x * (y.max() + 1) + y, return_index=True, return_inverse=True)
    return first, inverse


def _on_bins(codes: NDArray[np.intp], bins: int = 0) -> NDArray[np.intp]:
    """The codes, or quantile bins of them if there are more than `bins` (at least `_BINS`)."""
    bins = max(_BINS, bins)
    if codes.max() < bins:
        return codes
    return _codes(np.floor(mid_ranks(codes[None].astype(float))[0] * bins / len(codes)))


def _centred_ranks(sizes: Floats) -> Floats:
    """Mid-ranks of values that occur `sizes` times, minus the mean rank."""
    ranks: Floats = np.cumsum(sizes, axis=0) - sizes / 2 - sizes.sum(axis=0) / 2
    return ranks


_STATISTICS: dict[Statistic, Callable[[Pairs], Replicate]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}
