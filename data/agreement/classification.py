"""Agreement of decisions with labels: accuracy, kappa, precision, recall, F1, AUROC, with intervals.

For ratings that are categories: factual or hallucinated, win, tie or loss. The unit of resampling is the source,
because the candidates of a source are not independent of each other. The method of the intervals is `logit`, or
`dirichlet` where each source has one decision (`data/agreement/intervals.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import Indices, bundle, count_units, pseudo_values
from debate_judge.data.agreement.correlations import Floats, mid_ranks
from debate_judge.data.agreement.intervals import (
    CORRELATION_RANGE,
    SHARE_RANGE,
    Method,
    logit_interval,
    posterior_interval,
)
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError

POSITIVE, NEGATIVE = "positive", "negative"
WIN, TIE, LOSS = "win", "tie", "loss"

MEASURES = ("accuracy", "kappa", "balanced_accuracy", "precision", "recall", "f1", "auroc")


@dataclass(frozen=True, slots=True)
class Decision:
    """The raters' label of a candidate or pair, and the judge's decision about it."""

    source: str
    """Id of the source, the unit of resampling (`GroupScores.source_id`)."""
    label: str
    decided: str | None
    """None where the judge made no decision."""
    score: float | None = None
    """The graded score behind the decision; higher is more likely positive, of a pair a win."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The value of a measure with its 95 % interval."""

    value: float | None
    """None where undefined, e.g. the precision of a judge that never decides for positive."""
    low: float | None
    """Ends of the interval; None without a value, without resamples or with fewer than two groups."""
    high: float | None
    method: Method | None = None
    """Method of the interval, see `data/agreement/intervals.py`; None without one."""

    def to_json(self) -> dict[str, float | str | None]:
        return {"value": self.value, "low": self.low, "high": self.high, "method": self.method}

    def __str__(self) -> str:
        if self.value is None:
            return "undefined"
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{interval}"


_UNDEFINED = Measure(None, None, None)


@dataclass(frozen=True, slots=True)
class Classification:
    """All measures of a judge's decisions about one aspect."""

    measures: dict[str, Measure]
    """By name in `MEASURES`: always the first three, the others only with a positive label; of pairs AUROC as well."""
    positive: str | None
    decisions: int
    """Number of decisions that the measures are computed from."""
    undecided: int
    """Number of labels without a decision; they are left out."""
    groups: int

    def to_json(self) -> dict[str, object]:
        counts = {name: getattr(self, name) for name in ("positive", "decisions", "undecided", "groups")}
        return {**{name: measure.to_json() for name, measure in self.measures.items()}, **counts}


def binary_decisions(
    groups: Sequence[GroupScores], threshold: float, cut: float | None = None, *, below: bool = False
) -> list[Decision]:
    """Labels and decisions of candidates: positive at or above the threshold.

    Args:
        groups: Ratings and scores of one aspect; unrated candidates are left out.
        threshold: On the ratings, usually the middle of the scale.
        cut: On the scores, where it differs from the threshold.
        below: Whether values below the threshold are the positive ones, e.g. hallucinated; scores are then negated.
    """
    cut = threshold if cut is None else cut
    return [
        Decision(
            group.source_id,
            _label(rating, threshold, below),
            None if score is None else _label(score, cut, below),
            -score if below and score is not None else score,
        )
        for group in groups
        for rating, score in zip(group.ratings, group.scores, strict=True)
        if rating is not None
    ]


def pair_decisions(groups: Sequence[GroupScores], margin: float = 0.0) -> list[Decision]:
    """Labels and decisions of pairs: whether the first candidate wins, ties or loses, by ratings and by scores.

    Args:
        groups: Of two candidates each; groups without both ratings are left out.
        margin: Scores that differ by no more than this are a tie.

    Raises:
        InputError: A group does not have two candidates.
    """
    decisions = []
    for group in groups:
        if len(group.candidates) != 2:
            raise InputError(
                f"group {group.group!r} is not a pair", expected="two candidates", found=f"{len(group.candidates)}"
            )
        first_rating, second_rating = group.ratings
        first, second = group.scores
        if first_rating is None or second_rating is None:
            continue
        difference = None if first is None or second is None else first - second
        decided = None if difference is None else _outcome(difference, margin)
        decisions.append(Decision(group.source_id, _outcome(first_rating - second_rating, 0.0), decided, difference))
    return decisions


def pair_auroc(pairs: Sequence[Decision], *, intervals: bool, seed: int = 0) -> Measure:
    """The probability that the difference of scores, better text minus worse, is greater than that of another pair,
    worse minus better.

    Each pair without a tie counts in both orders, so that which text comes first makes no difference.

    Args:
        pairs: Those of `pair_decisions`; pairs without scores are left out.
        intervals: Whether to give the interval.
        seed: For the sets of sources where there are many, see `bootstrap.bundle`.
    """
    untied = [(pair, pair.score) for pair in pairs if pair.label != TIE and pair.score is not None]
    if not untied:
        return _UNDEFINED
    wins = np.array([pair.label == WIN for pair, _ in untied], dtype=float)
    differences = np.array([difference for _, difference in untied])
    unit = _units([pair for pair, _ in untied], seed)
    return _with_intervals(
        _auroc,
        np.concatenate([wins, 1 - wins]),
        np.concatenate([differences, -differences]),
        np.concatenate([unit, unit]),
        intervals=intervals,
    )[0]


def _units(decisions: Sequence[Decision], seed: int) -> Indices:
    """The unit of resampling of each decision."""
    number_of_source = {name: i for i, name in enumerate(dict.fromkeys(d.source for d in decisions))}
    return bundle(len(number_of_source), seed)[[number_of_source[d.source] for d in decisions]]


def classify(
    decisions: Sequence[Decision], positive: str | None = None, *, resamples: int = 1000, seed: int = 0
) -> Classification:
    """Compare decisions with labels.

    With c the confusion matrix of labels (rows) and decisions (columns) and n its sum:

    - accuracy: p = trace(c) / n.
    - kappa (Cohen): (p - e) / (1 - e), where e is chance agreement, the sum of (row sum * column sum) / n^2.
    - balanced accuracy: mean recall over the labels that occur.
    - precision, recall, F1: of the positive label; F1 = 2 TP / (2 TP + FP + FN).
    - AUROC: the probability that a positive one has a higher score than a negative one, equal scores counting half;
      undefined if a decision has no score.

    Where each source has one decision, intervals are quantiles of the posterior of the confusion matrix and not from
    the jackknife, except that of AUROC, which cannot be computed from the matrix.

    Args:
        decisions: At least one.
        positive: The label that precision, recall, F1 and AUROC are about; without one they are not computed.
        resamples: Number of draws from the posterior; 0 gives no intervals at all.
        seed: For the draws.

    Raises:
        InputError: There is no decision, or the positive label is none of the labels and decisions.
    """
    made = [d for d in decisions if d.decided is not None]
    if not made:
        raise InputError("the judge made no decision, so there is nothing to compare with the labels")
    names = sorted({d.label for d in made} | {d.decided for d in made if d.decided is not None})
    if positive is not None and positive not in {*names, *(d.label for d in decisions), POSITIVE}:
        raise InputError("no such label", field="positive", expected="one of " + ", ".join(names), found=positive)
    if positive is not None and positive not in names:
        names = [*names, positive]
    labels, decided = (
        np.array([names.index(str(n)) for n in side], dtype=float)
        for side in zip(*((d.label, d.decided) for d in made), strict=True)
    )
    positive_index = None if positive is None else names.index(positive)
    sources, unit = len({d.source for d in made}), _units(made, seed)
    occurs = np.isin(np.arange(len(names)), labels)

    def of_rows(x: Floats, y: Floats) -> Floats:
        return _measures_of_matrices(_confusion_matrices(x, y, len(names)), occurs, positive_index)

    estimates = _with_intervals(of_rows, labels, decided, unit, intervals=resamples > 0)
    if positive_index is not None:
        scores = np.array([math.nan if d.score is None else d.score for d in made])
        auroc = _with_intervals(_auroc, (labels == positive_index).astype(float), scores, unit, intervals=resamples > 0)
        estimates += [_UNDEFINED] if np.isnan(scores).any() else auroc
    if resamples and sources == len(made) > 1:
        table = _confusion_matrices(labels[None], decided[None], len(names))[..., 0]
        posterior = _posterior_draws(table, positive_index, resamples, seed)
        estimates[: len(posterior)] = [
            _UNDEFINED if m.value is None else Measure(m.value, *posterior_interval(m.value, d))
            for m, d in zip(estimates, posterior, strict=False)
        ]
    measures = dict(zip(MEASURES, estimates, strict=False))
    return Classification(measures, positive, len(made), len(decisions) - len(made), sources)


def _posterior_draws(table: Floats, positive: int | None, draws: int, seed: int) -> Floats:
    """The measures of confusion matrices drawn from Dirichlet(counts + 1/2), shape (measures, draws)."""
    shares = np.random.default_rng(seed).dirichlet(table.ravel() + 0.5, size=draws)
    return _measures_of_matrices(shares.T.reshape(*table.shape, draws), table.sum(axis=1) > 0, positive)


def _with_intervals(
    statistic: Callable[[Floats, Floats], Floats], x: Floats, y: Floats, unit: Indices, *, intervals: bool
) -> list[Measure]:
    """The measures of all decisions, in the order of `MEASURES` or AUROC alone; see `bootstrap.pseudo_values`."""
    values, units = statistic(x[None], y[None])[:, 0], count_units(unit)
    if not intervals or units < 2:
        return [_UNDEFINED if math.isnan(v) else Measure(v, None, None) for v in values.tolist()]
    pseudo = pseudo_values(statistic, x, y, unit, units)
    measures = []
    for i, (value, row) in enumerate(zip(values.tolist(), pseudo, strict=True)):
        value_range = CORRELATION_RANGE if len(values) > 1 and MEASURES[i] == "kappa" else SHARE_RANGE
        # A measure at an end of its range, which has no logit, is moved half a decision inwards.
        interval = logit_interval(value, (row - row.mean()) / units, value_range, 0.5 / (len(x) + 1), "logit")
        measures.append(_UNDEFINED if math.isnan(value) else Measure(value, *interval))
    return measures


# --- measures of many rows of decisions at once; NaN is a missing decision, or an undefined measure ---


def _confusion_matrices(labels: Floats, decided: Floats, size: int) -> Floats:
    """Labels x decisions of each row, shape (labels, labels, rows)."""
    return np.array(
        [[((labels == i) & (decided == j)).sum(axis=1) for j in range(size)] for i in range(size)], dtype=float
    )


def _measures_of_matrices(matrix: Floats, occurs: NDArray[np.bool_], positive: int | None) -> Floats:
    """Accuracy, kappa, balanced accuracy and, with a positive label, precision, recall and F1.

    Args:
        matrix: Labels x decisions, shape (labels, labels, tables).
        occurs: Which labels the raters gave; the mean recall is over these.
        positive: Index of the positive label.

    Returns:
        Shape (measures, tables).
    """
    rows, columns, correct = matrix.sum(axis=1), matrix.sum(axis=0), np.einsum("iir->ir", matrix)
    total = rows.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = correct.sum(axis=0) / total
        chance = (rows * columns).sum(axis=0) / total**2
        # Where all labels and decisions are equal, chance agreement is 1 and kappa is 0 / 0.
        kappa = np.where(chance < 1, (accuracy - chance) / (1 - chance), np.nan)
        measures = [accuracy, kappa, (correct / rows)[occurs].mean(axis=0)]
        if positive is not None:
            hits, decided_for, labelled = correct[positive], columns[positive], rows[positive]
            measures += [hits / decided_for, hits / labelled, 2 * hits / (decided_for + labelled)]
    return np.stack(measures)


def _auroc(positive: Floats, scores: Floats) -> Floats:
    """The area under the ROC curve of each row, shape (1, rows), as the Mann-Whitney statistic."""
    yes, no = (positive == 1).sum(axis=1), (positive == 0).sum(axis=1)
    ranks = np.where(positive == 1, mid_ranks(scores), 0.0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ((ranks - yes * (yes - 1) / 2) / (yes * no))[None]


def _label(value: float, threshold: float, below: bool) -> str:
    return POSITIVE if (value >= threshold) is not below else NEGATIVE


def _outcome(difference: float, margin: float) -> str:
    return TIE if abs(difference) <= margin else WIN if difference > 0 else LOSS
