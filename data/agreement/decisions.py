"""Decisions that ratings define, such as factual or hallucinated, and how well a judge's scores reproduce them.

Which decisions exist follows from the ratings alone, not from the name of the data set:

- `binary`: every rater gave one of two values, e.g. factual or hallucinated. The midpoint between the two is the
  threshold for ratings and scores; a candidate whose raters are evenly split has no label.
- `pairs`: every group has two candidates, and some groups have unequal ratings. The decision is which one is better:
  win, tie or loss.

Other ratings define no decision; for them there are correlations. The measures are those of sklearn.metrics,
with intervals from leaving out each source in turn.

Absolute agreement is how close scores are to the ratings, where correlations compare their order alone. Three measures
for each judge and aspect, over all candidates that have both a score and a rating:

- `mae`: mean absolute difference of score and mean rating, in points of the scale; lower is better.
- `ccc`: the concordance correlation coefficient, a correlation that differences in mean and spread lower; 1 where every
  score equals its rating (Lin, A concordance correlation coefficient to evaluate reproducibility, 1989).
- `kappa`: of the decision "at least CUT" by the score and by the mean rating (Cohen, A coefficient of agreement for
  nominal scales, 1960); undefined where all ratings are on one side of the cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.figures import (
    AVERAGE,
    CORRELATION_RANGE,
    SHARE_RANGE,
    Estimate,
    Figure,
    Floats,
    GroupIndex,
    GroupScores,
    Indices,
    Mask,
    Pairs,
    ScoresByAspect,
    Statistic,
    jackknife,
)
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, RatedGroup

DecisionKind = Literal["binary", "pairs"]

LABELS: Mapping[DecisionKind, tuple[str, ...]] = {"binary": ("positive", "negative"), "pairs": ("win", "tie", "loss")}
"""Labels in the order of tables. Win and loss are those of the first candidate."""

DECISION_MEASURES = {
    "accuracy": "accuracy",
    "kappa": "Cohen's kappa",
    "balanced_accuracy": "balanced acc.",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "auroc": "AUROC",
}
"""Name -> heading in tables. Precision, recall and F1 have one label as the positive one."""

AbsoluteMeasure = Literal["mae", "ccc", "kappa"]
ABSOLUTE_MEASURES: tuple[AbsoluteMeasure, ...] = ("mae", "ccc", "kappa")

Objective = Statistic | AbsoluteMeasure
"""What a compile maximizes: a correlation, or an absolute measure in its increasing form (`objective_value`)."""

POOLED = ("ccc", "kappa")
"""Absolute measures that are defined on all texts together only; an error can also be averaged over sources."""

_DEFAULT_CUT = 0.75
"""Default cut of the decision as a share of the scale: 4 on a scale from 1 to 5."""


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """How ratings and scores of an aspect become labels and decisions."""

    kind: DecisionKind
    threshold: float = 0.0
    """Binary: ratings of this value or more are positive."""
    cut: float | None = 0.0
    """Binary: scores of this value or more are positive. None where scores are on another scale; AUROC is then the only
    measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionResult(DecisionRule):
    """One judge's decisions about one aspect, compared with the raters' labels."""

    measures: Mapping[str, Figure]
    """By name in `DECISION_MEASURES`; if binary, values from the cut on are the positive label. AUROC alone without a
    cut."""
    lower_label: Mapping[str, Figure]
    """Binary: precision, recall and F1 where values below the cut are the positive label, e.g. hallucinated."""
    labels: Mapping[str, int]
    """Label -> how often the raters gave it, including candidates without a decision of the judge."""
    decisions: Mapping[str, int]
    """Label -> how often the judge decided for it; empty without a cut."""
    undecided: int
    """Number of labels for which the judge made no decision; no measure counts them."""
    sources: int
    """Number of sources with a label, the units of resampling."""
    ties: int
    """Binary: number of candidates without a label because their raters are evenly split; no other field counts them.
    For pairs, a tie is a label."""
    majority_accuracy: float
    """The accuracy of always deciding for the most frequent label."""


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


def decision_rules_from_scores(aspects: ScoresByAspect) -> dict[str, DecisionRule]:
    """`find_decision_rules` without a corpus: from mean ratings of two values, or groups of two candidates."""
    rules: dict[str, DecisionRule] = {}
    for name, groups in aspects.items():
        values = {r for g in groups for r in g.ratings if r is not None}
        if len(values) == 2:
            rules[name] = _binary_rule(values)
        elif all(len(g.ratings) == 2 for g in groups) and any(len({*g.ratings} - {None}) > 1 for g in groups):
            rules[name] = DecisionRule("pairs")
    return rules


def _binary_rule(values: Set[float]) -> DecisionRule:
    middle = (min(values) + max(values)) / 2
    return DecisionRule("binary", middle, middle)


def evaluate_decisions(
    scores: ScoresByAspect,
    decision_rules: Mapping[str, DecisionRule],
    *,
    on_scale: bool = True,
    seed: int = 0,
) -> dict[str, DecisionResult]:
    """Compare a judge's decisions, derived from its scores, with the labels derived from ratings.

    Args:
        scores: Aspect name -> groups, of one judge.
        decision_rules: From `find_decision_rules`; aspects without a rule, or with no label, are left out.
        on_scale: Whether scores are on the raters' scale. If not, binary decisions have no cut.
        seed: For random bundles of sources where there are many.

    Raises:
        InputError: The decisions are about pairs, and a group does not have two candidates.
    """
    results = {}
    for name, groups in scores.items():
        if name in decision_rules:
            rule = decision_rules[name]
            rule = rule if on_scale or rule.kind == "pairs" else replace(rule, cut=None)
            if result := _decision_result(groups, rule, seed):
                results[name] = result
    return results


def _decision_result(groups: Sequence[GroupScores], rule: DecisionRule, seed: int) -> DecisionResult | None:
    index = GroupIndex.build({"": groups}, seed)
    ratings, scores, group = _labelled(groups, rule, index)
    if not len(ratings):
        return None
    all_labels, scored = _label_numbers(ratings, rule.kind, rule.threshold), ~np.isnan(scores)
    labels, scores, unit_group = all_labels[scored], scores[scored], group[scored]

    def figure(
        measure: Callable[[Any, Any], float],
        x: NDArray[Any],
        y: NDArray[Any],
        kept: Mask | slice = slice(None),
        value_range: tuple[float, float] = SHARE_RANGE,
    ) -> Figure:
        return jackknife(measure, x[kept], y[kept], unit_group[kept], index).figure(value_range)

    def one_label(labelled: Mask, decided: Mask) -> dict[str, Figure]:
        """Each over the decisions that it depends on: sources without any tell nothing of it."""
        return {
            "precision": figure(_accuracy, labelled, decided, decided),
            "recall": figure(_accuracy, labelled, decided, labelled),
            "f1": figure(_f1, labelled, decided, labelled | decided),
        }

    measures: dict[str, Figure] = {}
    lower_label: dict[str, Figure] = {}
    decisions: dict[str, int] = {}
    if rule.cut is not None:
        decided = _label_numbers(scores, rule.kind, rule.cut)
        decisions = _counts(decided, rule.kind)
        measures["accuracy"] = figure(_accuracy, labels, decided)
        measures["kappa"] = figure(_kappa, labels, decided, value_range=CORRELATION_RANGE)
        measures["balanced_accuracy"] = figure(_mean_recall, labels, decided)
        if rule.kind == "binary":
            measures |= one_label(labels == 1, decided == 1)
            lower_label = one_label(labels == 0, decided == 0)
    if rule.kind == "pairs":
        # The differences of better texts minus worse ones, against worse minus better: each pair in both orders.
        untied = labels != 1
        wins, differences = labels[untied] == 2, scores[untied]
        labels, scores = np.concatenate([wins, ~wins]).astype(np.intp), np.concatenate([differences, -differences])
        unit_group = np.tile(unit_group[untied], 2)
    measures["auroc"] = figure(_area_under_roc, labels == 1, scores)
    by_label = _counts(all_labels, rule.kind)
    return DecisionResult(
        **asdict(rule),
        measures=measures,
        lower_label=lower_label,
        labels=by_label,
        decisions=decisions,
        undecided=int((~scored).sum()),
        sources=len(np.unique(index.source[group])),
        ties=sum(r == rule.threshold for g in groups for r in g.ratings) if rule.kind == "binary" else 0,
        majority_accuracy=max(by_label.values()) / len(all_labels),
    )


def _labelled(groups: Sequence[GroupScores], rule: DecisionRule, index: GroupIndex) -> tuple[Floats, Floats, Indices]:
    """Ratings, scores and group numbers of the candidates that have a label, arrays of shape (candidates,); of pairs
    the differences, first minus second. A missing score is NaN."""
    rows: list[tuple[float, float, int]] = []
    for g in groups:
        ratings, scores = np.array([g.ratings, g.scores], dtype=float)
        if rule.kind == "pairs":
            if len(g.candidates) != 2:
                found = str(len(g.candidates))
                raise InputError(f"group {g.group!r} is not a pair", expected="two candidates", found=found)
            ratings, scores = -np.diff(ratings), -np.diff(scores)
        rows += zip(ratings, scores, [index.number_of_group[g.group]] * len(ratings), strict=True)
    ratings, scores, group = np.array(rows, dtype=float).reshape(-1, 3).T
    # Raters who are evenly split give no label.
    labelled = ~np.isnan(ratings) & ((ratings != rule.threshold) | (rule.kind == "pairs"))
    return ratings[labelled], scores[labelled], group[labelled].astype(np.intp)


def _label_numbers(values: Floats, kind: DecisionKind, cut: float) -> Indices:
    """0 for negative and 1 for positive values; of pairs 0 for a loss, 1 for a tie and 2 for a win."""
    if kind == "binary":
        return (values >= cut).astype(np.intp)
    return (np.sign(values) + 1).astype(np.intp)


def _counts(numbers: Indices, kind: DecisionKind) -> dict[str, int]:
    """Label -> its frequency."""
    names = LABELS[kind]
    return dict(zip(names, np.bincount(numbers, minlength=len(names))[::-1].tolist(), strict=True))


# --- measures of arrays of shape (decisions,); undefined is NaN ---


def _accuracy(labels: NDArray[Any], decided: NDArray[Any]) -> float:
    return float(np.mean(labels == decided)) if len(labels) else math.nan


def _kappa(labels: Indices, decided: Indices) -> float:
    """Cohen's kappa; where all labels and decisions are equal, chance agreement is 1 and kappa is 0 / 0."""
    chance = sum(np.mean(labels == label) * np.mean(decided == label) for label in np.unique(labels))
    return float((_accuracy(labels, decided) - chance) / (1 - chance)) if chance < 1 else math.nan


def _mean_recall(labels: Indices, decided: Indices) -> float:
    """The balanced accuracy: over the labels that occur."""
    recalls = [_accuracy(labels[labels == label], decided[labels == label]) for label in np.unique(labels)]
    return float(np.mean(recalls)) if recalls else math.nan


def _f1(labelled: Mask, decided: Mask) -> float:
    marked = np.count_nonzero(labelled) + np.count_nonzero(decided)
    return 2 * np.count_nonzero(labelled & decided) / marked if marked else math.nan


def _area_under_roc(positive: Mask, scores: Floats) -> float:
    """The probability that a positive candidate scores higher than a negative one; equal scores count half."""
    from scipy.stats import rankdata

    positives, negatives = np.count_nonzero(positive), np.count_nonzero(~positive)
    if not positives or not negatives:
        return math.nan
    return float((rankdata(scores)[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


# --- absolute agreement ---


@dataclass(frozen=True, slots=True)
class AbsoluteAgreement:
    """The measures of one judge in one aspect, or averaged over aspects."""

    cut: float | None
    """Cut of the decision; None for the average."""
    candidates: int
    """Number of candidates that have a score and a rating."""
    measures: Mapping[str, Figure]
    """By name. The average error is undefined where the aspects have different scales."""
    change: Mapping[str, Figure]
    """By name: this judge's measure minus the first judge's; empty for the first."""


def decision_cuts(
    aspects: Sequence[Aspect], decision_rules: Mapping[str, DecisionRule], cut: float | None = None
) -> dict[str, float]:
    """Aspect name -> cut: values at or above it are a yes.

    Args:
        aspects: Of the judge.
        decision_rules: Aspect name -> the decision that its ratings define.
        cut: The user's cut for all aspects; None for the threshold of binary ratings, else three quarters of the scale.

    Raises:
        InputError: The user's cut is not inside the scale of an aspect.
    """
    cuts = {}
    for aspect in aspects:
        scale, rule = aspect.scale, decision_rules.get(aspect.name)
        if cut is not None and not scale.low < cut <= scale.high:
            raise InputError(
                f"no decision about {aspect.name}: every rating is on one side of the cut",
                field="cut",
                expected=f"a number above {scale.low:g} and up to {scale.high:g}",
                found=f"{cut:g}",
            )
        default = scale.low + _DEFAULT_CUT * (scale.high - scale.low)
        if rule is not None and rule.kind == "binary":
            default = rule.threshold
        cuts[aspect.name] = default if cut is None else cut
    return cuts


def absolute_agreement(
    judges: Mapping[str, ScoresByAspect], cuts: Mapping[str, float], *, same_scale: bool, seed: int
) -> dict[str, dict[str, AbsoluteAgreement]]:
    """Judge -> aspect or `AVERAGE` -> measures with 95 % intervals over sources.

    Args:
        judges: Judge -> aspect -> scores on the raters' scale by group, the same groups for all; all judges are
            compared with the first.
        cuts: Aspect -> its cut (`decision_cuts`).
        same_scale: Whether all aspects have the same scale; else the average error is undefined.
        seed: For random bundles of sources where there are many.
    """
    first, aspects = next(iter(judges)), list(next(iter(judges.values())))
    index = GroupIndex.build(judges[first], seed)
    pairs = {(j, a): Pairs.of(groups, index) for j, scores in judges.items() for a, groups in scores.items()}
    estimates = {
        (j, a, name): jackknife(partial(_absolute, name, cuts[a]), p.ratings, p.scores, p.group, index)
        for (j, a), p in pairs.items()
        for name in ABSOLUTE_MEASURES
    }

    def of(judge: str, averaged: Sequence[str], cut: float | None) -> AbsoluteAgreement:
        measures: dict[str, Figure] = {}
        change: dict[str, Figure] = {}
        for name in ABSOLUTE_MEASURES:
            ours, theirs = (Estimate.mean([estimates[j, a, name] for a in averaged]) for j in (judge, first))
            if name == "mae" and cut is None and not same_scale:
                ours = replace(ours, value=math.nan)
            measures[name] = ours.figure(None if name == "mae" else CORRELATION_RANGE)
            if judge != first:
                change[name] = (ours - theirs).figure()
        if (low := measures["mae"].low) is not None:
            measures["mae"] = replace(measures["mae"], low=max(0.0, low))
        count = sum(len(pairs[judge, a].ratings) for a in averaged)
        return AbsoluteAgreement(cut, count, measures, change)

    return {
        judge: {**{a: of(judge, [a], cuts[a]) for a in aspects}, AVERAGE: of(judge, aspects, None)} for judge in judges
    }


@dataclass(frozen=True, slots=True)
class AbsoluteScale:
    """The scale and cut of one aspect, for absolute measures."""

    width: float
    """Highest minus lowest point of the scale."""
    cut: float
    """Of the decision."""


def objective_value(measure: AbsoluteMeasure, ratings: Floats, scores: Floats, scale: AbsoluteScale) -> float:
    """A measure in a form to be maximized, at most 1; NaN where undefined.

    The error is divided by the width of the scale and subtracted from 1. Ratings and scores have shape (candidates,).
    """
    value = _absolute(measure, scale.cut, ratings, scores)
    return 1 - value / scale.width if measure == "mae" else value


def _absolute(measure: AbsoluteMeasure, cut: float, ratings: Floats, scores: Floats) -> float:
    if measure == "mae":
        return float(np.abs(scores - ratings).mean()) if len(ratings) else math.nan
    if measure == "ccc":
        return concordance(ratings, scores)
    rated_yes = ratings >= cut
    return math.nan if rated_yes.all() or not rated_yes.any() else concordance(rated_yes, scores >= cut)


def concordance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """The concordance correlation coefficient of two sequences (Lin 1989).

    1 - mean (x - y)^2 / its expectation by chance, mean x^2 + mean y^2 - 2 mean x mean y. Of zeros and ones it is
    Cohen's kappa. NaN where both sides have the same single value, or are empty.
    """
    if not len(x):
        return math.nan
    # From the lowest value of x, so that equal values of both sides are exactly 0.
    x, y = (np.asarray(side, dtype=float) - float(x.min()) for side in (x, y))
    by_chance = np.mean(x**2) + np.mean(y**2) - 2 * np.mean(x) * np.mean(y)
    return float(1 - np.mean((x - y) ** 2) / by_chance) if by_chance > 0 else math.nan
