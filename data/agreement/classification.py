"""Agreement of decisions with labels: accuracy, kappa, precision, recall, F1, AUROC, with intervals.

For ratings that are categories: factual or hallucinated, win, tie or loss. Correlations are in `tables.py`. The unit of
resampling is the group, because the candidates of one source are not independent of each other. Intervals are of the
methods `logit`, or `dirichlet` where each group has one decision (`data/agreement/intervals.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import Indices, Replicate, bundle, count_units
from debate_judge.data.agreement.correlations import Floats, or_none
from debate_judge.data.agreement.intervals import CORRELATION, NONE, SHARE, Interval, Method, of_draws, of_replicates
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError

POSITIVE, NEGATIVE = "positive", "negative"
WIN, TIE, LOSS = "win", "tie", "loss"

_CELLS = 2**21
"""Most draw counts held in memory at once."""

_MOST = 4096
"""Most distinct units that are drawn; where there are more, groups are bundled."""

_FEWEST, _ENTRIES = 1000, 2 * 10**7
"""AUROC needs cumulative sums over all scores for each resample. So it uses fewer resamples where decisions times
resamples exceeds `_ENTRIES`, but at least `_FEWEST`."""

MEASURES = ("accuracy", "kappa", "balanced_accuracy", "precision", "recall", "f1", "auroc")


@dataclass(frozen=True, slots=True)
class Decision:
    """The raters' label of one candidate or pair, and a judge's decision about it."""

    group: str
    """Id of its source, the unit of resampling (`GroupScores.cluster`)."""
    label: str
    decided: str | None
    """None where the judge made no decision."""
    score: float | None = None
    """The graded score behind the decision; higher is more likely positive."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure with its 95 % interval."""

    value: float | None
    """None where undefined, e.g. the precision of a judge that never decides for positive."""
    low: float | None
    """Ends of the interval; None without a value, without resamples or with fewer than two groups."""
    high: float | None
    method: Method | None = None
    """How the interval was made, see `data/agreement/intervals.py`; None without one."""

    def to_json(self) -> dict[str, float | str | None]:
        return {"value": self.value, "low": self.low, "high": self.high, "method": self.method}

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
    """Labels without a decision; they are left out."""
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
        below: Make the values below the threshold the positive ones, e.g. hallucinated; scores are then negated.
    """
    cut = threshold if cut is None else cut
    return [
        Decision(
            group.cluster,
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
        one, other = group.ratings
        first, second = group.scores
        if one is None or other is None:
            continue
        decided = None if first is None or second is None else _outcome(first - second, margin)
        decisions.append(Decision(group.cluster, _outcome(one - other, 0.0), decided))
    return decisions


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

    A resample in which a measure is undefined is left out of its interval; balanced accuracy is undefined where a label
    is missing that occurs in the data. Where each group has one decision, intervals come from draws of the posterior of
    the confusion matrix and not from resampled groups, except that of AUROC, which cannot be computed from the matrix.

    Args:
        decisions: At least one.
        positive: The label that precision, recall, F1 and AUROC are about; without one they are not computed.
        resamples: Number of resamples or draws; 0 gives no intervals.
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
    kept, unit, units = _units(made, seed)
    labels = np.array([names.index(d.label) for d in kept])
    decided = np.array([names.index(d.decided or "") for d in kept])
    which = None if positive is None else names.index(positive)
    groups = len({d.group for d in made})
    compute = [(_confusion(labels, decided, unit, (len(names), len(units)), which), resamples)]
    if which is not None:
        known = np.array([math.nan if d.score is None else d.score for d in kept])
        few = min(resamples, max(_FEWEST, _ENTRIES // len(kept)))
        compute.append((_auroc(labels == which, known, unit, len(units)), few))
    resampled = _measures(compute, units, (groups, len(made)), resamples, seed)
    if resamples and groups == len(made) > 1:
        table = np.zeros((len(names), len(names)))
        np.add.at(table, (labels, decided), units[unit])
        drawn = _from_posterior(table, which, resamples, seed)
        resampled[: len(drawn)] = [
            _measure(m.value, NONE if m.value is None else of_draws(m.value, d))
            for m, d in zip(resampled, drawn, strict=False)
        ]
    measures = dict(zip(MEASURES, resampled, strict=False))
    return Classification(measures, positive, len(made), len(decisions) - len(made), groups)


def _from_posterior(table: Floats, positive: int | None, draws: int, seed: int) -> Floats:
    """The measures of confusion matrices drawn from Dirichlet(counts + 1/2), shape (measures, draws)."""
    shares = np.random.default_rng(seed).dirichlet(table.ravel() + 0.5, size=draws)
    return _of_tables(shares.T.reshape(*table.shape, draws), table.sum(axis=1) > 0, positive)


def _units(made: Sequence[Decision], seed: int) -> tuple[list[Decision], Indices, Indices]:
    """Form the units of resampling.

    Groups with equal labels, decisions and scores are interchangeable: every measure depends only on how many of them
    are drawn. So one of each kind is kept with the number of its kind, and counts are drawn from a multinomial. Where
    more than `_MOST` kinds remain, groups are drawn in bundles instead (`bootstrap.bundle`).

    Returns:
        The decisions to compute on, the unit of each, and how often each unit occurs in the data.
    """
    by_group: dict[str, list[Decision]] = {}
    for decision in made:
        by_group.setdefault(decision.group, []).append(decision)
    alike: dict[object, list[list[Decision]]] = {}
    for group in by_group.values():
        # `is not None` comes before the score, because None and numbers cannot be ordered.
        key = sorted((d.label, d.decided or "", d.score is not None, d.score or 0.0) for d in group)
        alike.setdefault(tuple(key), []).append(group)
    if len(alike) > _MOST:
        units = bundle(len(by_group), seed)
        return list(made), units[_numbers([d.group for d in made])], np.ones(count_units(units), dtype=np.intp)
    kept = [(decision, unit) for unit, groups in enumerate(alike.values()) for decision in groups[0]]
    counts = np.array([len(groups) for groups in alike.values()])
    return [decision for decision, _ in kept], np.array([unit for _, unit in kept], dtype=np.intp), counts


def _measures(
    compute: Sequence[tuple[Replicate, int]],
    units: Indices,
    sizes: tuple[int, int],
    resamples: int,
    seed: int,
) -> list[Measure]:
    """The measures with their intervals, all from the same resampled groups.

    Args:
        compute: Functions from draw counts to measures, each with the number of resamples to use for it.
        units: How often each unit occurs in the data.
        sizes: Numbers of groups and of decisions.
        resamples: The largest of the numbers in `compute`.
        seed: For the draws.
    """
    values = np.concatenate([one(units[:, None].astype(float))[:, 0] for one, _ in compute])
    groups = int(units.sum())
    if not resamples or groups < 2:
        return [_measure(or_none(value), NONE) for value in values]
    rng = np.random.default_rng(seed)
    size = max(1, _CELLS // len(units))
    chunks: list[list[Floats]] = [[] for _ in compute]
    for start in range(0, resamples, size):
        drawn = rng.multinomial(groups, units / groups, size=min(size, resamples - start)).T.astype(float)
        for (one, most), into in zip(compute, chunks, strict=True):
            if start < most:
                into.append(one(drawn[:, : most - start]))
    replicates = [row for found in chunks for row in np.concatenate(found, axis=1)]
    return [
        _measure(or_none(value), of_replicates(value, row, *sizes, CORRELATION if name == "kappa" else SHARE, "logit"))
        for name, value, row in zip(MEASURES, values, replicates, strict=False)
    ]


# --- the measures, computed for many resamples at once; NaN where undefined ---


def _confusion(
    labels: Indices, decided: Indices, unit: Indices, shape: tuple[int, int], positive: int | None
) -> Replicate:
    """`_of_tables` for the tables of resampled units; `shape` is (labels, units)."""
    size, units = shape
    of_units = np.zeros((size * size, units))
    np.add.at(of_units, (labels * size + decided, unit), 1.0)
    occurs = of_units.sum(axis=1).reshape(size, size).sum(axis=1) > 0
    return lambda counts: _of_tables((of_units @ counts).reshape(size, size, -1), occurs, positive)


def _of_tables(matrix: Floats, occurs: NDArray[np.bool_], positive: int | None) -> Floats:
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


def _auroc(positive: NDArray[np.bool_], scores: Floats, unit: Indices, units: int) -> Replicate:
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


def _measure(value: float | None, span: Interval) -> Measure:
    return Measure(None, None, None) if value is None else Measure(value, *span)


def _numbers(names: Sequence[str]) -> Indices:
    index: dict[str, int] = {}
    return np.array([index.setdefault(name, len(index)) for name in names], dtype=np.intp)


def _side(value: float, threshold: float, below: bool) -> str:
    return POSITIVE if (value >= threshold) is not below else NEGATIVE


def _outcome(difference: float, margin: float) -> str:
    return TIE if abs(difference) <= margin else WIN if difference > 0 else LOSS
