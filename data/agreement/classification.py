"""Agreement of decisions with labels: accuracy, kappa, precision, recall, F1, AUROC, with intervals.

For ratings that are categories: factual or hallucinated, win, tie or loss. Correlations are in `tables.py`. Intervals
come from resampling groups, as there: the candidates of one source are not independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from debate_judge.data.agreement.bootstrap import Replicate, bundle, count_units
from debate_judge.data.agreement.classification_measures import auroc, confusion
from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError

POSITIVE, NEGATIVE = "positive", "negative"
WIN, TIE, LOSS = "win", "tie", "loss"

_CELLS = 2**21
"""Most draw counts that are held at once."""

_MOST = 4096
"""Most units that are drawn."""

_FEWEST, _ENTRIES = 1000, 2 * 10**7
"""AUROC, which takes sorting through all scores each time, is resampled so often that decisions times resamples stay
within this, but not more rarely than that."""

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
    kept, unit, units = _units(made, seed)
    labels = np.array([names.index(d.label) for d in kept])
    decided = np.array([names.index(d.decided or "") for d in kept])
    which = None if positive is None else names.index(positive)
    compute = [(confusion(labels, decided, unit, (len(names), len(units)), which), resamples)]
    if which is not None:
        known = np.array([math.nan if d.score is None else d.score for d in kept])
        few = min(resamples, max(_FEWEST, _ENTRIES // len(kept)))
        compute.append((auroc(labels == which, known, unit, len(units)), few))
    measures = dict(zip(MEASURES, _measures(compute, units, resamples, seed), strict=False))
    groups = len({d.group for d in made})
    return Classification(measures, positive, len(made), len(decisions) - len(made), groups)


def _units(
    made: Sequence[Decision], seed: int
) -> tuple[list[Decision], np.ndarray[tuple[int], np.dtype[np.intp]], np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """What is drawn when groups are resampled.

    Groups in which the same was decided about the same labels by the same scores are interchangeable: one of them is
    kept, with their number. Only where many different ones are left are they drawn in bundles (`bootstrap.py`).

    Returns:
        The decisions to compute on, the unit of each, and how often each unit stands in the data.
    """
    by_group: dict[str, list[Decision]] = {}
    for decision in made:
        by_group.setdefault(decision.group, []).append(decision)
    alike: dict[object, list[list[Decision]]] = {}
    for group in by_group.values():
        # Without a score comes first; None and numbers cannot be compared.
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
    units: np.ndarray[tuple[int], np.dtype[np.intp]],
    resamples: int,
    seed: int,
) -> list[Measure]:
    """The measures of each computation, all on the same resampled groups.

    Args:
        compute: Each with the number of resamples that it is worth.
        units: How often each unit stands in the data.
        resamples: How many there are.
        seed: Of the draws.
    """
    values = [one(units[:, None].astype(float))[:, 0] for one, _ in compute]
    groups = int(units.sum())
    if not resamples or groups < 2:
        return [Measure(_number(value), None, None) for value in np.concatenate(values)]
    rng = np.random.default_rng(seed)
    size = max(1, _CELLS // len(units))
    chunks: list[list[Floats]] = [[] for _ in compute]
    for start in range(0, resamples, size):
        drawn = rng.multinomial(groups, units / groups, size=min(size, resamples - start)).T.astype(float)
        for (one, worth), into in zip(compute, chunks, strict=True):
            if start < worth:
                into.append(one(drawn[:, : worth - start]))
    replicates = [row for found in chunks for row in np.concatenate(found, axis=1)]
    return [_measure(value, row) for value, row in zip(np.concatenate(values), replicates, strict=True)]


def _measure(value: float, replicates: Floats) -> Measure:
    defined = replicates[~np.isnan(replicates)]
    if math.isnan(value) or not len(defined):
        return Measure(_number(value), None, None)
    low, high = np.quantile(defined, (0.025, 0.975))
    return Measure(float(value), float(low), float(high))


def _numbers(names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    index: dict[str, int] = {}
    return np.array([index.setdefault(name, len(index)) for name in names], dtype=np.intp)


def _side(value: float, threshold: float, below: bool) -> str:
    return POSITIVE if (value >= threshold) is not below else NEGATIVE


def _outcome(difference: float, margin: float) -> str:
    return TIE if abs(difference) <= margin else WIN if difference > 0 else LOSS


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
