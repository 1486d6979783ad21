"""Agreement of decisions with labels: accuracy, kappa, precision, recall, F1, AUROC, with intervals.

For ratings that are categories: factual or hallucinated, win, tie or loss. Correlations are in `data/agreement.py`.
Intervals come from resampling groups, as there: the candidates of one source are not independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from data.correlations import Floats
from data.errors import InputError
from data.evidence import GroupScores

POSITIVE, NEGATIVE = "positive", "negative"
WIN, TIE, LOSS = "win", "tie", "loss"

_CELLS = 2**21
"""Most draw counts that are held at once."""

MEASURES = ("accuracy", "kappa", "balanced_accuracy", "precision", "recall", "f1", "auroc")


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing that was labelled, and what a judge made of it."""

    group: str
    """Id of its source, the unit of resampling."""
    label: str
    decided: str | None
    """None where the judge came to no decision."""
    score: float | None = None
    """The graded score behind the decision; higher speaks for the positive label."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure with its 95 % percentile interval."""

    value: float | None
    """None where undefined, e.g. the precision of a judge who never says positive."""
    low: float | None
    """Ends of the interval; None without a value, without resamples or with fewer than two groups."""
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        if self.value is None:
            return "undefined"
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{interval}"


@dataclass(frozen=True, slots=True)
class Classification:
    """All measures of one judge on one set of labels."""

    measures: dict[str, Measure]
    """Keys out of `MEASURES`: the first three always, the others where there is a positive label."""
    positive: str | None
    decisions: int
    """Decisions that the measures rest on."""
    undecided: int
    """Labelled things without a decision; they are left out."""
    groups: int

    def to_json(self) -> dict[str, object]:
        counts = {name: getattr(self, name) for name in ("positive", "decisions", "undecided", "groups")}
        return {**{name: measure.to_json() for name, measure in self.measures.items()}, **counts}


def binary(
    groups: Sequence[GroupScores], threshold: float, cut: float | None = None, *, below: bool = False
) -> list[Decision]:
    """Decisions about candidates: positive at or above the threshold, for raters and judge alike.

    Args:
        groups: Ratings and scores of one aspect; unrated candidates are left out.
        threshold: On the ratings, usually the middle of the scale.
        cut: On the scores, where it differs from the threshold.
        below: Call what lies below positive instead, e.g. hallucinated; scores then change their sign.
    """
    cut = threshold if cut is None else cut
    return [
        Decision(
            group.group,
            _side(rating, threshold, below),
            None if score is None else _side(score, cut, below),
            -score if below and score is not None else score,
        )
        for group in groups
        for rating, score in zip(group.ratings, group.scores, strict=True)
        if rating is not None
    ]


def pairs(groups: Sequence[GroupScores], margin: float = 0.0) -> list[Decision]:
    """Decisions about groups of two: whether the first candidate wins, ties or loses, by ratings and by scores.

    Args:
        groups: Of two candidates each; groups without both ratings are left out.
        margin: Scores that are not further apart are a tie.

    Raises:
        InputError: A group does not have two candidates.
    """
    decisions = []
    for group in groups:
        if len(group.candidates) != 2:
            raise InputError(
                f"group {group.group!r} is no pair", expected="two candidates", found=f"{len(group.candidates)}"
            )
        one, other = group.ratings
        first, second = group.scores
        if one is None or other is None:
            continue
        decided = None if first is None or second is None else _outcome(first - second, margin)
        decisions.append(Decision(group.group, _outcome(one - other, 0.0), decided))
    return decisions


def classify(
    decisions: Sequence[Decision], positive: str | None = None, *, resamples: int = 1000, seed: int = 0
) -> Classification:
    """Compare decisions with labels.

    With c the confusion matrix of labels (rows) and decisions (columns) and n its sum:

    - accuracy: p = trace(c) / n.
    - kappa (Cohen): (p - e) / (1 - e), where e is the agreement by chance, the sum of (row sum * column sum) / n^2.
    - balanced accuracy: mean over the labels that occur of the share that was decided rightly.
    - precision, recall, F1: of the positive label; F1 = 2 TP / (2 TP + FP + FN).
    - AUROC: the chance that a positive thing has a higher score than one that is not, equal scores counting half; it
      rests on the decisions that have a score and is undefined if one that was decided has none.

    A resample in which a measure is undefined, or a label that otherwise occurs does not, is left out of its
    interval.

    Args:
        decisions: At least one.
        positive: The label that precision, recall, F1 and AUROC are about; without one they are not computed.
        resamples: Resamples of the groups; 0 gives no intervals.
        seed: Of the draws.

    Raises:
        InputError: There is no decision, or the positive label is none of the labels and decisions.
    """
    made = [d for d in decisions if d.decided is not None]
    if not made:
        raise InputError("nothing was decided, so there is nothing to compare with the labels")
    names = sorted({d.label for d in made} | {d.decided for d in made if d.decided is not None})
    if positive is not None and positive not in {*names, *(d.label for d in decisions), POSITIVE}:
        raise InputError("no such label", field="positive", expected="one of " + ", ".join(names), found=positive)
    if positive is not None and positive not in names:
        names = [*names, positive]
    group = _numbers([d.group for d in made])
    count = int(group.max()) + 1
    labels = np.array([names.index(d.label) for d in made])
    decided = np.array([names.index(d.decided or "") for d in made])
    which = None if positive is None else names.index(positive)
    compute = [_confusion(labels, decided, group, (len(names), count), which)]
    if which is not None:
        scores = [d.score for d in made]
        known = np.array([math.nan if s is None else s for s in scores])
        compute.append(_auroc(labels == which, known, group, count))
    found = [_measures(*part, count, resamples, seed) for part in zip(compute, strict=True)]
    measures = dict(zip(MEASURES, [m for part in found for m in part], strict=False))
    return Classification(measures, positive, len(made), len(decisions) - len(made), count)


def _measures(replicate: Callable[[Floats], Floats], groups: int, resamples: int, seed: int) -> list[Measure]:
    values = replicate(np.ones((groups, 1)))[:, 0]
    if not resamples or groups < 2:
        return [Measure(_number(value), None, None) for value in values]
    # The same seed for each kind of measure: they are read on the same resampled groups.
    rng = np.random.default_rng(seed)
    size = max(1, _CELLS // groups)
    chunks = [
        replicate(
            rng.multinomial(groups, np.full(groups, 1 / groups), size=min(size, resamples - start)).T.astype(float)
        )
        for start in range(0, resamples, size)
    ]
    return [_measure(value, row) for value, row in zip(values, np.concatenate(chunks, axis=1), strict=True)]


def _measure(value: float, replicates: Floats) -> Measure:
    defined = replicates[~np.isnan(replicates)]
    if math.isnan(value) or not len(defined):
        return Measure(_number(value), None, None)
    low, high = np.quantile(defined, (0.025, 0.975))
    return Measure(float(value), float(low), float(high))


def _confusion(
    labels: np.ndarray[tuple[int], np.dtype[np.intp]],
    decided: np.ndarray[tuple[int], np.dtype[np.intp]],
    group: np.ndarray[tuple[int], np.dtype[np.intp]],
    shape: tuple[int, int],
    positive: int | None,
) -> Callable[[Floats], Floats]:
    """Everything that the confusion matrix tells, from its sums over the drawn groups."""
    size, groups = shape
    of_groups = np.zeros((size * size, groups))
    np.add.at(of_groups, (labels * size + decided, group), 1.0)
    occurs = of_groups.sum(axis=1).reshape(size, size).sum(axis=1) > 0

    def replicate(counts: Floats) -> Floats:
        matrix = (of_groups @ counts).reshape(size, size, -1)
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


def _auroc(
    positive: np.ndarray[tuple[int], np.dtype[np.bool_]],
    scores: Floats,
    group: np.ndarray[tuple[int], np.dtype[np.intp]],
    groups: int,
) -> Callable[[Floats], Floats]:
    """The area under the ROC curve as the Mann-Whitney statistic, on tables of scores by label."""
    from scipy.sparse import csr_array

    if np.isnan(scores).any():
        return lambda counts: np.full((1, counts.shape[1]), np.nan)
    rank = np.unique(scores, return_inverse=True)[1]
    size = (int(rank.max()) + 1, groups)
    tables = [csr_array((np.ones(int(s.sum())), (rank[s], group[s])), shape=size) for s in (positive, ~positive)]

    def replicate(counts: Floats) -> Floats:
        yes, no = (np.asarray(table @ counts) for table in tables)
        below = np.cumsum(no, axis=0) - no / 2
        with np.errstate(invalid="ignore", divide="ignore"):
            area: Floats = (yes * below).sum(axis=0) / (yes.sum(axis=0) * no.sum(axis=0))
        return area[None]

    return replicate


def _numbers(names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    index: dict[str, int] = {}
    return np.array([index.setdefault(name, len(index)) for name in names], dtype=np.intp)


def _side(value: float, threshold: float, below: bool) -> str:
    return POSITIVE if (value >= threshold) is not below else NEGATIVE


def _outcome(difference: float, margin: float) -> str:
    return TIE if abs(difference) <= margin else WIN if difference > 0 else LOSS


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
