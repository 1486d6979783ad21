"""Pearson, Spearman and Kendall's tau-b of many rows at once, concordance, and the area under the ROC curve.

Equal to scipy.stats, which computes one pair of sequences at a time. Undefined is NaN here, because arrays have no
None; `tables.py` turns it into None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Statistic = Literal["pearson", "spearman", "kendall"]
STATISTICS: tuple[Statistic, ...] = ("pearson", "spearman", "kendall")

Floats = NDArray[np.float64]

_LONGEST_ROW = 64
"""Longest row for which Kendall's tau compares all pairs, for all rows at once; scipy computes that of longer rows."""


def correlations(x: Floats, y: Floats, statistics: Sequence[Statistic]) -> Floats:
    """Correlate each row of `x` with the same row of `y`, both of shape (rows, width).

    Returns:
        Shape (statistics, rows), NaN where a side is constant or a row has fewer than two entries.
    """
    if x.shape[1] < 2:
        return np.full((len(statistics), len(x)), np.nan)
    return np.stack([_BY_STATISTIC[name](x, y) for name in statistics])


def concordance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """The concordance correlation coefficient of two sequences (Lin 1989).

    1 - mean (x - y)^2 / its expectation by chance, mean x^2 + mean y^2 - 2 mean x mean y. Of zeros and ones it is
    Cohen's kappa. NaN where both sides have the same single value, or are empty.
    """
    if not len(x):
        return np.nan
    # From the lowest value of x, so that equal values of both sides are exactly 0.
    x, y = (np.asarray(side, dtype=float) - float(x.min()) for side in (x, y))
    by_chance = np.mean(x**2) + np.mean(y**2) - 2 * np.mean(x) * np.mean(y)
    return float(1 - np.mean((x - y) ** 2) / by_chance) if by_chance > 0 else np.nan


def area_under_roc(positive: NDArray[Any], scores: Floats) -> float:
    """The probability that a positive candidate scores higher than a negative one; equal scores count half."""
    from scipy.stats import rankdata

    positives, negatives = np.count_nonzero(positive), np.count_nonzero(~positive)
    if not positives or not negatives:
        return np.nan
    return float((rankdata(scores)[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def nan_to_none(value: float) -> float | None:
    """The value, or None where it is undefined."""
    return None if np.isnan(value) else float(value)


def _pearson(x: Floats, y: Floats) -> Floats:
    dx, dy = _deviations(x), _deviations(y)
    r: Floats = (dx * dy).sum(axis=1) / np.sqrt((dx**2).sum(axis=1) * (dy**2).sum(axis=1))
    return r.clip(-1.0, 1.0)


def _deviations(x: Floats) -> Floats:
    """Deviations from the row's mean in units of its range; NaN throughout a constant row."""
    low = x.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        unit = (x - low) / (x.max(axis=1, keepdims=True) - low)
    return np.asarray(unit - unit.mean(axis=1, keepdims=True))


def _spearman(x: Floats, y: Floats) -> Floats:
    from scipy.stats import rankdata

    return _pearson(rankdata(x, axis=1), rankdata(y, axis=1))


def _kendall(x: Floats, y: Floats) -> Floats:
    if x.shape[1] > _LONGEST_ROW:
        from scipy.stats import kendalltau

        return np.array([kendalltau(*row).statistic for row in zip(x, y, strict=True)])
    first, second = np.triu_indices(x.shape[1], 1)
    dx, dy = (np.sign(side[:, first] - side[:, second]) for side in (x, y))
    with np.errstate(invalid="ignore"):
        tau: Floats = (dx * dy).sum(axis=1) / np.sqrt(np.abs(dx).sum(axis=1)) / np.sqrt(np.abs(dy).sum(axis=1))
    return tau.clip(-1.0, 1.0)


_BY_STATISTIC: dict[Statistic, Callable[[Floats, Floats], Floats]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}
