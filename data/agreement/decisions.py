"""Decisions that ratings define, such as factual or hallucinated, and how well a judge's scores reproduce them.

Which decisions exist follows from the ratings alone, not from the name of the data set:

- `binary`: every rater gave one of two values, e.g. factual or hallucinated. The midpoint between the two is the
  threshold for ratings and scores; a candidate whose raters are evenly split has no label.
- `pairs`: every group has two candidates, and some groups have unequal ratings. The decision is which one is better:
  win, tie or loss.

Other ratings define no decision; for them there are the correlations of `data/agreement/tables.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from debate_judge.data.agreement.classification import area_under_roc, classify
from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.estimates import Indices, number_in_order
from debate_judge.data.agreement.intervals import Measure
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, RatedGroup

DecisionKind = Literal["binary", "pairs"]

POSITIVE, NEGATIVE = "positive", "negative"
WIN, TIE, LOSS = "win", "tie", "loss"

LABELS: Mapping[DecisionKind, tuple[str, ...]] = {"binary": (POSITIVE, NEGATIVE), "pairs": (WIN, TIE, LOSS)}
"""Labels in the order of tables. Win and loss are those of the first candidate."""


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """How ratings and scores of an aspect become labels and decisions."""

    kind: DecisionKind
    threshold: float = 0.0
    """Binary: ratings of this value or more are positive."""
    cut: float | None = 0.0
    """Binary: scores of this value or more are positive. None where scores are on another scale; AUROC is then the only
    measure."""


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """One judge's decisions about one aspect, compared with the raters' labels."""

    rule: DecisionRule
    measures: Mapping[str, Measure]
    """By name in `classification.MEASURES`; if binary, values from the cut on are the positive label. Empty if the
    judge made no decision; AUROC alone without a cut."""
    lower: Mapping[str, Measure]
    """Binary: precision, recall and F1 where values below the cut are the positive label, e.g. hallucinated."""
    labels: Mapping[str, int]
    """Label -> how often the raters gave it, including candidates without a decision of the judge."""
    decisions: Mapping[str, int]
    """Label -> how often the judge decided for it; empty without a cut."""
    undecided: int
    """Number of labels for which the judge made no decision; no measure counts them."""
    sources: int
    """Number of sources with a label, the units of resampling."""
    ties: int = 0
    """Binary: number of candidates without a label because their raters are evenly split; no other field counts them.
    For pairs, a tie is a label."""

    @property
    def majority_baseline(self) -> float:
        """The accuracy of always deciding for the most frequent label."""
        return max(self.labels.values()) / sum(self.labels.values())


def find_decision_rules(groups: Iterable[RatedGroup], aspects: Sequence[Aspect]) -> dict[str, DecisionRule]:
    """Aspect name -> decision rule, for the aspects whose ratings define a decision.

    `groups` are all of the corpus; in a subset, ratings of more than two values could by chance have only two.
    """
    groups = list(groups)
    rules: dict[str, DecisionRule] = {}
    for aspect in aspects:
        scale, name = aspect.scale, aspect.name
        rated = [g for g in groups if any(r is not None for r in g.ratings(name))]
        values = {v for g in groups for c in g.candidates for v in c.ratings.get(name, ())}
        if all(g.is_pair(aspect) for g in rated) and any(g.has_distinct_ratings(name) for g in rated):
            rules[name] = DecisionRule("pairs")
        elif values == {scale.low, scale.high}:
            rules[name] = _binary_rule(values)
        elif all(len(g.candidates) == 2 for g in groups) and any(g.has_distinct_ratings(name) for g in groups):
            rules[name] = DecisionRule("pairs")
    return rules


def decision_rules_from_scores(aspects: Mapping[str, Sequence[GroupScores]]) -> dict[str, DecisionRule]:
    """`find_decision_rules` without a corpus: from mean ratings of two values, or groups of two candidates."""
    rules: dict[str, DecisionRule] = {}
    for name, groups in aspects.items():
        values = {r for g in groups for r in g.ratings if r is not None}
        paired = all(len(g.ratings) == 2 for g in groups) and any(_has_distinct_ratings(g) for g in groups)
        if len(values) == 2:
            rules[name] = _binary_rule(values)
        elif paired:
            rules[name] = DecisionRule("pairs")
    return rules


def evaluate_decisions(
    scores: Mapping[str, Sequence[GroupScores]],
    decision_rules: Mapping[str, DecisionRule],
    *,
    on_scale: bool = True,
    intervals: bool = True,
    seed: int = 0,
) -> dict[str, DecisionResult]:
    """Compare a judge's decisions, derived from its scores, with the labels derived from ratings.

    Args:
        scores: Aspect name -> groups, of one judge.
        decision_rules: From `find_decision_rules`; aspects without a rule, or with no label, are left out.
        on_scale: Whether scores are on the raters' scale. If not, binary decisions have no cut.
        intervals, seed: See `classify`.

    Raises:
        InputError: The decisions are about pairs, and a group does not have two candidates.
    """
    if not on_scale:
        decision_rules = {
            name: replace(rule, cut=None) if rule.kind == "binary" else rule for name, rule in decision_rules.items()
        }
    results = {
        name: _decision_result(groups, decision_rules[name], intervals, seed)
        for name, groups in scores.items()
        if name in decision_rules
    }
    return {name: result for name, result in results.items() if result is not None}


def _binary_rule(values: Set[float]) -> DecisionRule:
    middle = (min(values) + max(values)) / 2
    return DecisionRule("binary", middle, middle)


def _has_distinct_ratings(group: GroupScores) -> bool:
    return len({r for r in group.ratings if r is not None}) > 1


def _decision_result(
    groups: Sequence[GroupScores], rule: DecisionRule, intervals: bool, seed: int
) -> DecisionResult | None:
    ratings, scores, source = _labelled(groups, rule)
    if not len(ratings):
        return None
    scored = ~np.isnan(scores)
    labels = _label_numbers(ratings, rule.kind, rule.threshold)
    measures: Mapping[str, Measure] = {}
    lower: Mapping[str, Measure] = {}
    decisions: dict[str, int] = {}
    source_of_scored = np.unique(source[scored], return_inverse=True)[1]
    if rule.cut is not None:
        decided = _label_numbers(scores[scored], rule.kind, rule.cut)
        decisions = _counts(decided, rule.kind)
        if scored.any():
            measures, lower = _measures(labels[scored], decided, source_of_scored, rule.kind, intervals, seed)
    if scored.any():
        auroc = _auroc(labels[scored], scores[scored], source_of_scored, rule.kind, intervals, seed)
        measures = {**measures, "auroc": auroc}
    ties = sum(r == rule.threshold for g in groups for r in g.ratings) if rule.kind == "binary" else 0
    undecided, sources = int((~scored).sum()), len(np.unique(source))
    return DecisionResult(rule, measures, lower, _counts(labels, rule.kind), decisions, undecided, sources, ties)


def _labelled(groups: Sequence[GroupScores], rule: DecisionRule) -> tuple[Floats, Floats, Indices]:
    """Ratings, scores and numbers of the sources of the candidates that have a label, arrays of shape (candidates,); of
    pairs the differences, first minus second. A missing score is NaN.

    Raises:
        InputError: The decisions are about pairs, and a group does not have two candidates.
    """
    ratings, scores = (
        [np.array(side, dtype=float) for side in sides]
        for sides in ([g.ratings for g in groups], [g.scores for g in groups])
    )
    if rule.kind == "pairs":
        for group in groups:
            if len(group.candidates) != 2:
                raise InputError(
                    f"group {group.group!r} is not a pair", expected="two candidates", found=f"{len(group.candidates)}"
                )
        ratings, scores = ([values[:1] - values[1:] for values in side] for side in (ratings, scores))
    source = np.repeat(number_in_order([g.source_id for g in groups]), [len(values) for values in ratings])
    flat_ratings, flat_scores = (np.concatenate([*side, np.zeros(0)]) for side in (ratings, scores))
    labelled = ~np.isnan(flat_ratings)
    if rule.kind == "binary":
        # Raters who are evenly split give no label.
        labelled &= flat_ratings != rule.threshold
    return flat_ratings[labelled], flat_scores[labelled], source[labelled]


def _label_numbers(values: Floats, kind: DecisionKind, cut: float) -> Indices:
    """0 for negative and 1 for positive values; of pairs 0 for a loss, 1 for a tie and 2 for a win."""
    if kind == "binary":
        return (values >= cut).astype(np.intp)
    return (np.sign(values) + 1).astype(np.intp)


def _counts(numbers: Indices, kind: DecisionKind) -> dict[str, int]:
    """Label -> its frequency."""
    names = LABELS[kind]
    return dict(zip(names, np.bincount(numbers, minlength=len(names))[::-1].tolist(), strict=True))


def _measures(
    labels: Indices, decided: Indices, source: Indices, kind: DecisionKind, intervals: bool, seed: int
) -> tuple[dict[str, Measure], dict[str, Measure]]:
    """The measures with the upper label as the positive one, and those with the lower one."""
    if kind == "pairs":
        # Labels that do not occur have no cells in the confusion matrix, whose posterior depends on their number.
        occurring, numbers = np.unique([labels, decided], return_inverse=True)
        labels, decided = numbers.reshape(2, -1)
        return classify(labels, decided, source, max(2, len(occurring)), intervals=intervals, seed=seed)[0], {}
    measures, (lower, upper) = classify(labels, decided, source, 2, intervals=intervals, seed=seed)
    return measures | upper, lower


def _auroc(labels: Indices, scores: Floats, source: Indices, kind: DecisionKind, intervals: bool, seed: int) -> Measure:
    """The AUROC of positive against negative candidates. Of pairs, that of the differences of scores, better text minus
    worse, against worse minus better: each pair without a tie counts in both orders."""
    if kind == "pairs":
        untied = labels != 1
        wins, differences = labels[untied] == 2, scores[untied]
        labels, scores = np.concatenate([wins, ~wins]).astype(np.intp), np.concatenate([differences, -differences])
        source = np.tile(np.unique(source[untied], return_inverse=True)[1], 2)
    return area_under_roc(labels == 1, scores, source, intervals=intervals, seed=seed)
