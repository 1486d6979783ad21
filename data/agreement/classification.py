"""Agreement of decisions with labels: accuracy, kappa, precision, recall, F1, AUROC, with intervals.

For ratings that are categories: factual or hallucinated, win, tie or loss. The values are those of sklearn.metrics,
computed here for all samples of a jackknife at once. The unit of resampling is the source, because the candidates of a
source are not independent of each other. The method of the intervals is `logit`, or `dirichlet` where each source has
one decision (`data/agreement/intervals.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import Floats, mid_ranks
from debate_judge.data.agreement.estimates import Indices, bundle, pseudo_values
from debate_judge.data.agreement.intervals import (
    CORRELATION_RANGE,
    SHARE_RANGE,
    Measure,
    logit_interval,
    posterior_interval,
    standard_error,
    without_interval,
)

LABEL_MEASURES = ("precision", "recall", "f1")
"""Measures of one label as the positive one."""

DRAWS = 10_000
"""Draws from the posterior of a confusion matrix."""

MEASURES = ("accuracy", "kappa", "balanced_accuracy", *LABEL_MEASURES, "auroc")


def classify(
    labels: Indices, decided: Indices, source: Indices, count: int, *, intervals: bool = True, seed: int = 0
) -> tuple[dict[str, Measure], list[dict[str, Measure]]]:
    """Compare decisions with labels.

    With c the confusion matrix of labels (rows) and decisions (columns) and n its sum:

    - accuracy: p = trace(c) / n.
    - kappa (Cohen): (p - e) / (1 - e), where e is chance agreement, the sum of (row sum * column sum) / n^2.
    - balanced accuracy: mean recall over the labels that occur.
    - precision, recall, F1: of one label as the positive one; F1 = 2 TP / (2 TP + FP + FN).

    Where each source has one decision, intervals are quantiles of the posterior of the confusion matrix and not from
    the jackknife.

    Args:
        labels, decided: The raters' labels and the judge's decisions as numbers, shape (decisions,); at least one.
        source: Number of each decision's source.
        count: Number of different labels.
        intervals, seed: Whether there are intervals, and the seed of the draws from the posterior.

    Returns:
        The measures of all labels together, and for each label those of `LABEL_MEASURES`.
    """
    occurs = np.isin(np.arange(count), labels)

    def of_rows(x: Floats, y: Floats) -> Floats:
        matrix = [[((x == i) & (y == j)).sum(axis=1) for j in range(count)] for i in range(count)]
        return _measures_of_matrices(np.array(matrix, dtype=float), occurs)

    x, y = labels.astype(float), decided.astype(float)
    if intervals and 1 < len(labels) == len(np.unique(source)):
        table = np.zeros((count, count))
        np.add.at(table, (labels, decided), 1)
        shares = np.random.default_rng(seed).dirichlet(table.ravel() + 0.5, size=DRAWS)
        draws = _measures_of_matrices(shares.T.reshape(count, count, DRAWS), occurs)
        estimates = [posterior_interval(v, row) for v, row in zip(of_rows(x[None], y[None])[:, 0], draws, strict=True)]
    else:
        estimates = _with_intervals(of_rows, x, y, bundle(source, seed), intervals=intervals)
    by_label = [dict(zip(LABEL_MEASURES, estimates[i : i + 3], strict=True)) for i in range(3, len(estimates), 3)]
    return dict(zip(MEASURES[:3], estimates[:3], strict=True)), by_label


def area_under_roc(
    positive: NDArray[np.bool_], scores: Floats, source: Indices, *, intervals: bool, seed: int = 0
) -> Measure:
    """AUROC: the probability that a positive candidate scores higher than a negative one; equal scores count half.

    `positive` are the labels and `source` the number of each decision's source, shape (decisions,).
    """
    return _with_intervals(_auroc, positive.astype(float), scores, bundle(source, seed), intervals=intervals)[0]


def _with_intervals(
    statistic: Callable[[Floats, Floats], Floats], x: Floats, y: Floats, unit: Indices, *, intervals: bool
) -> list[Measure]:
    """Measures of all decisions, kappa as the second of several, with intervals from the jackknife."""
    values, units = statistic(x[None], y[None])[:, 0].tolist(), int(unit.max(initial=-1)) + 1
    if not intervals or units < 2:
        return [without_interval(value) for value in values]
    pseudo = pseudo_values(statistic, x, y, unit, units)
    errors = [standard_error((row - row.mean()) / units) for row in pseudo]
    ranges = [CORRELATION_RANGE if len(values) > 1 and i == 1 else SHARE_RANGE for i in range(len(values))]
    # A measure at an end of its range, which has no logit, is moved half a decision inwards.
    return [
        logit_interval(value, error, units, value_range, 0.5 / (len(x) + 1))
        for value, error, value_range in zip(values, errors, ranges, strict=True)
    ]


# --- measures of many rows of decisions at once; NaN is a missing decision, or an undefined measure ---


def _measures_of_matrices(matrix: Floats, occurs: NDArray[np.bool_]) -> Floats:
    """Accuracy, kappa, balanced accuracy, and for each label precision, recall and F1, shape (measures, tables).

    `matrix` is labels x decisions, shape (labels, labels, tables). The mean recall is over the labels that occur.
    """
    rows, columns, correct = matrix.sum(axis=1), matrix.sum(axis=0), np.einsum("iir->ir", matrix)
    total = rows.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = correct.sum(axis=0) / total
        chance = (rows * columns).sum(axis=0) / total**2
        # Where all labels and decisions are equal, chance agreement is 1 and kappa is 0 / 0.
        kappa = np.where(chance < 1, (accuracy - chance) / (1 - chance), np.nan)
        precision, recall, f1 = correct / columns, correct / rows, 2 * correct / (columns + rows)
    by_label = np.stack([precision, recall, f1], axis=1).reshape(-1, matrix.shape[2])
    return np.stack([accuracy, kappa, recall[occurs].mean(axis=0), *by_label])


def _auroc(positive: Floats, scores: Floats) -> Floats:
    """The area under the ROC curve of each row, shape (1, rows), as the Mann-Whitney statistic."""
    positives, negatives = (positive == 1).sum(axis=1), (positive == 0).sum(axis=1)
    ranks = np.where(positive == 1, mid_ranks(scores), 0.0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ((ranks - positives * (positives - 1) / 2) / (positives * negatives))[None]
