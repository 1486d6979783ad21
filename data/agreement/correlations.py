"""Pearson, Spearman, Kendall's tau-b and concordance of many pairs of rows at once, as the jackknife and the bootstrap
need them; scipy computes one pair at a time.

Undefined is NaN here, because arrays have no None; `data/agreement/tables.py` turns it into None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Statistic = Literal["pearson", "spearman", "kendall"]
STATISTICS: tuple[Statistic, ...] = ("pearson", "spearman", "kendall")

Floats = NDArray[np.float64]

_LONGEST_ROW = 1024
"""Longest row for which Kendall's tau compares all pairs, for all rows at once; scipy computes that of longer rows."""


def correlations(x: Floats, y: Floats, statistics: Sequence[Statistic]) -> Floats:
    """Correlate each row of `x` with the same row of `y`; equal to scipy.stats on every row.

    Both have shape (rows, width); shorter rows are padded with NaN, at the same positions in both.

    Returns:
        Shape (statistics, rows), NaN where a side is constant or a row has fewer than two entries.
    """
    if x.shape[1] < 2:
        return np.full((len(statistics), len(x)), np.nan)
    return np.stack([_BY_STATISTIC[name](x, y) for name in statistics])


def concordance(x: Floats, y: Floats) -> Floats:
    """The concordance correlation coefficient of each row (Lin 1989), of arrays as in `correlations`.

    1 - mean (x - y)^2 / its expectation by chance, mean x^2 + mean y^2 - 2 mean x mean y. Of whole points this is
    Cohen's kappa with quadratic weights (Fleiss and Cohen 1973), and of zeros and ones Cohen's kappa.

    Returns:
        Shape (rows,), NaN where both sides have the same single value, or nothing is present.
    """
    present = ~np.isnan(x)
    # From the lowest value of x, so that equal values of both sides are exactly 0; initial is for rows without pairs.
    origin = np.fmin.reduce(x, axis=1, initial=np.nan)[:, None]
    x, y = np.where(present, x - origin, 0.0), np.where(present, y - origin, 0.0)
    count = np.maximum(present.sum(axis=1), 1)
    x_mean, y_mean = x.sum(axis=1) / count, y.sum(axis=1) / count
    by_chance = (x**2 + y**2).sum(axis=1) / count - 2 * x_mean * y_mean
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - ((x - y) ** 2).sum(axis=1) / count / np.where(by_chance > 0, by_chance, np.nan))


def mid_ranks(x: Floats) -> Floats:
    """Ranks within each row from 0; ties have their mean rank, and NaN stays NaN."""
    from scipy.stats import rankdata

    # Missing entries are ranked behind all others; rankdata's own nan_policy would leave the vectorised path.
    missing = np.isnan(x)
    ranks: Floats = rankdata(np.where(missing, np.inf, x), axis=1) - 1
    ranks[missing] = np.nan
    return ranks


def nan_to_none(value: float) -> float | None:
    """The value, or None where it is undefined."""
    return None if np.isnan(value) else float(value)


def _pearson(x: Floats, y: Floats) -> Floats:
    dx, dy = _deviations(x), _deviations(y)
    with np.errstate(invalid="ignore"):
        r: Floats = (dx * dy).sum(axis=1) / np.sqrt((dx**2).sum(axis=1) * (dy**2).sum(axis=1))
    return r.clip(-1.0, 1.0)


def _deviations(x: Floats) -> Floats:
    """Deviations from the row's mean in units of its range, 0 where missing; NaN throughout a constant row."""
    missing = np.isnan(x)
    low, high = np.fmin.reduce(x, axis=1)[:, None], np.fmax.reduce(x, axis=1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = np.where(missing, 0.0, (x - low) / (high - low))
        mean = unit.sum(axis=1, keepdims=True) / (~missing).sum(axis=1, keepdims=True)
    return np.where(missing & ~np.isnan(mean), 0.0, unit - mean)


def _spearman(x: Floats, y: Floats) -> Floats:
    return _pearson(mid_ranks(x), mid_ranks(y))


def _kendall(x: Floats, y: Floats) -> Floats:
    if x.shape[1] > _LONGEST_ROW:
        from scipy.stats import kendalltau

        present = ~np.isnan(x)
        rows = [(a[mask], b[mask]) for a, b, mask in zip(x, y, present, strict=True)]
        return np.array([kendalltau(*row).statistic for row in rows])
    concordant_minus_discordant, x_differs, y_differs = np.zeros((3, len(x)), dtype=np.int64)
    x, y = np.ascontiguousarray(x.T), np.ascontiguousarray(y.T)
    for i in range(len(x) - 1):
        x_sign, y_sign = _sign(x[i + 1 :], x[i]), _sign(y[i + 1 :], y[i])
        concordant_minus_discordant += (x_sign * y_sign).sum(axis=0, dtype=np.int64)
        x_differs += np.count_nonzero(x_sign, axis=0)
        y_differs += np.count_nonzero(y_sign, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        tau: Floats = concordant_minus_discordant / np.sqrt(x_differs) / np.sqrt(y_differs)
    return tau.clip(-1.0, 1.0)


def _sign(later: Floats, earlier: Floats) -> NDArray[np.int8]:
    # Comparisons with NaN are false, so a missing entry counts as tied with all others; a difference would be NaN.
    return (later > earlier).view(np.int8) - (later < earlier).view(np.int8)


_BY_STATISTIC: dict[Statistic, Callable[[Floats, Floats], Floats]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}
