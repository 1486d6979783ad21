"""The measures of `data/agreement/classification.py`, computed for many resamples at once.

Each function returns a `Replicate` (see `bootstrap.py`): from draw counts of shape (units, resamples) it computes
values of shape (measures, resamples), NaN where undefined.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import Indices, Replicate
from debate_judge.data.agreement.correlations import Floats


def confusion(
    labels: Indices,
    decided: Indices,
    unit: Indices,
    shape: tuple[int, int],
    positive: int | None,
) -> Replicate:
    """`of_tables` for the tables of resampled units; `shape` is (labels, units)."""
    size, units = shape
    of_units = np.zeros((size * size, units))
    np.add.at(of_units, (labels * size + decided, unit), 1.0)
    occurs = of_units.sum(axis=1).reshape(size, size).sum(axis=1) > 0
    return lambda counts: of_tables((of_units @ counts).reshape(size, size, -1), occurs, positive)


def of_tables(matrix: Floats, occurs: NDArray[np.bool_], positive: int | None) -> Floats:
    """Accuracy, kappa, balanced accuracy and, with a positive label, precision, recall and F1.

    Args:
        matrix: Labels x decisions, shape (labels, labels, tables).
        occurs: Which labels the raters gave; the mean recall is over these.
        positive: Index of the positive label.

    Returns:
        Shape (measures, tables).
    """
    rows, columns, right = matrix.sum(axis=1), matrix.sum(axis=0), np.einsum("iir->ir", matrix)
    total = rows.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = right.sum(axis=0) / total
        chance = (rows * columns).sum(axis=0) / total**2
        # Where labels and decisions are all the same one, chance agreement is 1 and kappa is 0 / 0.
        kappa = np.where(chance < 1, (accuracy - chance) / (1 - chance), np.nan)
        found = [accuracy, kappa, (right / rows)[occurs].mean(axis=0)]
        if positive is not None:
            hits, decided_for, labelled = right[positive], columns[positive], rows[positive]
            found += [hits / decided_for, hits / labelled, 2 * hits / (decided_for + labelled)]
    return np.stack(found)


def auroc(
    positive: NDArray[np.bool_],
    scores: Floats,
    unit: Indices,
    units: int,
) -> Replicate:
    """The area under the ROC curve, as the Mann-Whitney statistic of the score counts of each label."""
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
