"""What `data/agreement/classification.py` measures, computed for many resamples at once.

Each measure is made ready for draw counts of shape (units, resamples), as in `bootstrap.py`, and then gives values
of shape (measures, resamples), NaN where undefined.
"""

from __future__ import annotations

import numpy as np

from debate_judge.data.agreement.bootstrap import Replicate
from debate_judge.data.agreement.correlations import Floats


def confusion(
    labels: np.ndarray[tuple[int], np.dtype[np.intp]],
    decided: np.ndarray[tuple[int], np.dtype[np.intp]],
    unit: np.ndarray[tuple[int], np.dtype[np.intp]],
    shape: tuple[int, int],
    positive: int | None,
) -> Replicate:
    """Everything that the confusion matrix tells, from its sums over the drawn units."""
    size, units = shape
    of_units = np.zeros((size * size, units))
    np.add.at(of_units, (labels * size + decided, unit), 1.0)
    occurs = of_units.sum(axis=1).reshape(size, size).sum(axis=1) > 0

    def replicate(counts: Floats) -> Floats:
        matrix = (of_units @ counts).reshape(size, size, -1)
        rows, columns, right = matrix.sum(axis=1), matrix.sum(axis=0), np.einsum("iir->ir", matrix)
        total = rows.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracy = right.sum(axis=0) / total
            chance = (rows * columns).sum(axis=0) / total**2
            # Where everything is one label on both sides, agreement by chance is certain and kappa is 0 / 0.
            kappa = np.where(chance < 1, (accuracy - chance) / (1 - chance), np.nan)
            found = [accuracy, kappa, (right / rows)[occurs].mean(axis=0)]
            if positive is not None:
                hits, said, there = right[positive], columns[positive], rows[positive]
                found += [hits / said, hits / there, 2 * hits / (said + there)]
        return np.stack(found)

    return replicate


def auroc(
    positive: np.ndarray[tuple[int], np.dtype[np.bool_]],
    scores: Floats,
    unit: np.ndarray[tuple[int], np.dtype[np.intp]],
    units: int,
) -> Replicate:
    """The area under the ROC curve as the Mann-Whitney statistic, on tables of scores by label."""
    from scipy.sparse import csr_array

    if np.isnan(scores).any():
        return lambda counts: np.full((1, counts.shape[1]), np.nan)
    rank = np.unique(scores, return_inverse=True)[1]
    size = (int(rank.max()) + 1, units)
    tables = [csr_array((np.ones(int(s.sum())), (rank[s], unit[s])), shape=size) for s in (positive, ~positive)]

    def replicate(counts: Floats) -> Floats:
        yes, no = (np.asarray(table @ counts) for table in tables)
        below = np.cumsum(no, axis=0) - no / 2
        with np.errstate(invalid="ignore", divide="ignore"):
            area: Floats = (yes * below).sum(axis=0) / (yes.sum(axis=0) * no.sum(axis=0))
        return area[None]

    return replicate
