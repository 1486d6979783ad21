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

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import (
    Estimate,
    GroupIndex,
    RatingScorePairs,
    area_under_roc,
    concordance,
    rated_pairs,
)
from debate_judge.data.agreement.figures import (
    AVERAGE,
    CORRELATION_RANGE,
    SHARE_RANGE,
    Figure,
    Floats,
    GroupScores,
    Indices,
    Mask,
    Statistic,
    bundle,
    range_interval,
    standard_errors,
    t_interval,
    without_each,
)
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, RatedGroup

DecisionKind = Literal["binary", "pairs"]

POSITIVE, NEGATIVE = "positive", "negative"
WIN, TIE, LOSS = "win", "tie", "loss"

LABELS: Mapping[DecisionKind, tuple[str, ...]] = {"binary": (POSITIVE, NEGATIVE), "pairs": (WIN, TIE, LOSS)}
"""Labels in the order of tables. Win and loss are those of the first candidate."""

LABEL_MEASURES = ("precision", "recall", "f1")
"""Measures of one label as the positive one."""

DECISION_MEASURES = ("accuracy", "kappa", "balanced_accuracy", *LABEL_MEASURES, "auroc")


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
    measures: Mapping[str, Figure]
    """By name in `DECISION_MEASURES`; if binary, values from the cut on are the positive label.
    AUROC alone without a cut."""
    lower: Mapping[str, Figure]
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
        if len(values) == 2:
            rules[name] = _binary_rule(values)
        elif all(len(g.ratings) == 2 for g in groups) and any(len({*g.ratings} - {None}) > 1 for g in groups):
            rules[name] = DecisionRule("pairs")
    return rules


def evaluate_decisions(
    scores: Mapping[str, Sequence[GroupScores]],
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
    if not on_scale:
        decision_rules = {
            name: replace(rule, cut=None) if rule.kind == "binary" else rule for name, rule in decision_rules.items()
        }
    results = {
        name: _decision_result(groups, decision_rules[name], seed)
        for name, groups in scores.items()
        if name in decision_rules
    }
    return {name: result for name, result in results.items() if result is not None}


def _binary_rule(values: Set[float]) -> DecisionRule:
    middle = (min(values) + max(values)) / 2
    return DecisionRule("binary", middle, middle)


def _decision_result(groups: Sequence[GroupScores], rule: DecisionRule, seed: int) -> DecisionResult | None:
    ratings, scores, source = _labelled(groups, rule)
    if not len(ratings):
        return None
    scored = ~np.isnan(scores)
    labels = _label_numbers(ratings, rule.kind, rule.threshold)
    scored_labels, unit = labels[scored], bundle(source, seed)[scored]
    measures = {"auroc": _auroc(scored_labels, scores[scored], unit, rule.kind)}
    lower: dict[str, Figure] = {}
    decisions: dict[str, int] = {}
    if rule.cut is not None:
        decided = _label_numbers(scores[scored], rule.kind, rule.cut)
        decisions = _counts(decided, rule.kind)
        measures |= _all_labels(scored_labels, decided, unit)
        if rule.kind == "binary":
            measures |= _one_label(scored_labels == 1, decided == 1, unit)
            lower = _one_label(scored_labels == 0, decided == 0, unit)
    ties = sum(r == rule.threshold for g in groups for r in g.ratings) if rule.kind == "binary" else 0
    undecided, sources = int((~scored).sum()), len(np.unique(source))
    return DecisionResult(rule, measures, lower, _counts(labels, rule.kind), decisions, undecided, sources, ties)


def _labelled(groups: Sequence[GroupScores], rule: DecisionRule) -> tuple[Floats, Floats, Indices]:
    """Ratings, scores and numbers of the sources of the candidates that have a label, arrays of shape (candidates,); of
    pairs the differences, first minus second. A missing score is NaN.

    Raises:
        InputError: The decisions are about pairs, and a group does not have two candidates.
    """
    if rule.kind == "pairs":
        for group in groups:
            if len(group.candidates) != 2:
                raise InputError(
                    f"group {group.group!r} is not a pair", expected="two candidates", found=f"{len(group.candidates)}"
                )
        ratings, scores = (
            side[:, 0] - side[:, 1]
            for side in np.array([(g.ratings, g.scores) for g in groups], dtype=float).reshape(-1, 2, 2).swapaxes(0, 1)
        )
        sources = [g.source_id for g in groups]
        labelled = ~np.isnan(ratings)
    else:
        rows = [pair for g in groups for pair in zip(g.ratings, g.scores, strict=True)]
        ratings, scores = np.array(rows, dtype=float).reshape(-1, 2).T
        sources = [g.source_id for g in groups for _ in g.candidates]
        # Raters who are evenly split give no label.
        labelled = ~np.isnan(ratings) & (ratings != rule.threshold)
    return ratings[labelled], scores[labelled], np.unique(sources, return_inverse=True)[1][labelled]


def _label_numbers(values: Floats, kind: DecisionKind, cut: float) -> Indices:
    """0 for negative and 1 for positive values; of pairs 0 for a loss, 1 for a tie and 2 for a win."""
    if kind == "binary":
        return (values >= cut).astype(np.intp)
    return (np.sign(values) + 1).astype(np.intp)


def _counts(numbers: Indices, kind: DecisionKind) -> dict[str, int]:
    """Label -> its frequency."""
    names = LABELS[kind]
    return dict(zip(names, np.bincount(numbers, minlength=len(names))[::-1].tolist(), strict=True))


# --- measures of decisions, arrays of shape (decisions,); undefined is NaN ---


def _all_labels(labels: Indices, decided: Indices, unit: Indices) -> dict[str, Figure]:
    return {
        "accuracy": _figure(_accuracy, labels, decided, unit),
        "kappa": _figure(_kappa, labels, decided, unit, CORRELATION_RANGE),
        "balanced_accuracy": _figure(_mean_recall, labels, decided, unit),
    }


def _one_label(labelled: Mask, decided: Mask, unit: Indices) -> dict[str, Figure]:
    """Precision, recall and F1, each over the decisions that it depends on: sources without any tell nothing of it."""

    def over(relevant: Mask, measure: Callable[[Any, Any], float]) -> Figure:
        return _figure(measure, labelled[relevant], decided[relevant], unit[relevant])

    return {
        "precision": over(decided, _accuracy),
        "recall": over(labelled, _accuracy),
        "f1": over(labelled | decided, _f1),
    }


def _auroc(labels: Indices, scores: Floats, unit: Indices, kind: DecisionKind) -> Figure:
    """The AUROC of positive against negative candidates. Of pairs, that of the differences of scores, better text minus
    worse, against worse minus better: each pair without a tie counts in both orders."""
    if kind == "pairs":
        untied = labels != 1
        wins, differences = labels[untied] == 2, scores[untied]
        labels, scores = np.concatenate([wins, ~wins]).astype(np.intp), np.concatenate([differences, -differences])
        unit = np.tile(unit[untied], 2)
    return _figure(area_under_roc, labels == 1, scores, unit)


def _figure(
    measure: Callable[[Any, Any], float],
    labels: NDArray[Any],
    decided: NDArray[Any],
    unit: Indices,
    value_range: tuple[float, float] = SHARE_RANGE,
) -> Figure:
    occurring, number = np.unique(unit, return_inverse=True)
    value = measure(labels, decided)
    if len(occurring) < 2:
        return range_interval(value, np.nan, 1, value_range)
    without = without_each(lambda kept: np.array([measure(labels[kept], decided[kept])]), number, len(occurring))
    error = float(standard_errors(np.array([value]), without)[0])
    return range_interval(value, error, len(occurring), value_range)


def _accuracy(labels: NDArray[Any], decided: NDArray[Any]) -> float:
    return float(np.mean(labels == decided)) if len(labels) else np.nan


def _kappa(labels: Indices, decided: Indices) -> float:
    """Cohen's kappa; where all labels and decisions are equal, chance agreement is 1 and kappa is 0 / 0."""
    chance = sum(np.mean(labels == label) * np.mean(decided == label) for label in np.unique(labels))
    return (_accuracy(labels, decided) - chance) / (1 - chance) if chance < 1 else np.nan


def _mean_recall(labels: Indices, decided: Indices) -> float:
    """The balanced accuracy: over the labels that occur."""
    recalls = [_accuracy(labels[labels == label], decided[labels == label]) for label in np.unique(labels)]
    return float(np.mean(recalls)) if recalls else np.nan


def _f1(labelled: Mask, decided: Mask) -> float:
    marked = np.count_nonzero(labelled) + np.count_nonzero(decided)
    return 2 * np.count_nonzero(labelled & decided) / marked if marked else np.nan


AbsoluteMeasure = Literal["mae", "ccc", "kappa"]
ABSOLUTE_MEASURES: tuple[AbsoluteMeasure, ...] = ("mae", "ccc", "kappa")

Objective = Statistic | AbsoluteMeasure
"""What a compile maximizes: a correlation, or an absolute measure in its increasing form (`objective_value`)."""

OBJECTIVE_DESCRIPTIONS: Mapping[AbsoluteMeasure, str] = {
    "mae": "1 less the mean absolute error as a share of the scale",
    "ccc": "concordance (CCC) of all texts",
    "kappa": "Cohen's kappa of all decisions at the cut",
}
"""Measure -> what is maximized where it is the objective."""

POOLED = ("ccc", "kappa")
"""Measures that are defined on all texts together only; an error can also be averaged over sources."""


_DEFAULT_CUT = 0.75
"""Default cut of the decision as a share of the scale: 4 on a scale from 1 to 5."""


@dataclass(frozen=True, slots=True)
class AbsoluteAgreement:
    """The measures of one judge in one aspect, or averaged over aspects."""

    cut: float | None
    """Cut of the decision; None for the average."""
    candidates: int
    """Number of candidates that have a score and a rating."""
    measures: Mapping[str, Figure]
    """By name. The average error is undefined where the aspects have different scales."""
    changes: Mapping[str, Figure]
    """By name: this judge's measure minus the first judge's."""

    def to_json(self) -> dict[str, Any]:
        return {
            "cut": self.cut,
            "candidates": self.candidates,
            **{name: measure.to_json() for name, measure in self.measures.items()},
            "change": {name: measure.to_json() for name, measure in self.changes.items()},
        }


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
        binary = rule is not None and rule.kind == "binary"
        cuts[aspect.name] = cut if cut is not None else rule.threshold if rule and binary else default
    return cuts


def absolute_agreement(
    judges: Mapping[str, Mapping[str, Sequence[GroupScores]]], cuts: Mapping[str, float], *, same_scale: bool, seed: int
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
    pairs = {(j, a): rated_pairs(groups, index) for j, scores in judges.items() for a, groups in scores.items()}
    estimates = {(judge, aspect): _estimate(p, cuts[aspect]) for (judge, aspect), p in pairs.items()}
    by_judge: dict[str, dict[str, AbsoluteAgreement]] = {judge: {} for judge in judges}
    for judge in judges:
        for name, averaged in [*((aspect, [aspect]) for aspect in aspects), (AVERAGE, aspects)]:
            estimate, baseline = (Estimate.mean([estimates[j, a] for a in averaged]) for j in (judge, first))
            if name == AVERAGE and not same_scale:
                estimate = replace(estimate, values=np.array([np.nan, *estimate.values[1:]]))
            count = sum(len(pairs[judge, a].ratings) for a in averaged)
            changes = {} if judge == first else _figures(estimate - baseline, ranges=False)
            by_judge[judge][name] = AbsoluteAgreement(cuts.get(name), count, _figures(estimate), changes)
    return by_judge


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
    error, ccc, kappa = _values(ratings, scores, scale.cut).tolist()
    return {"mae": 1 - error / scale.width, "ccc": ccc, "kappa": kappa}[measure]


def _values(ratings: Floats, scores: Floats, cut: float) -> Floats:
    """The three measures."""
    error = np.abs(scores - ratings).mean() if len(ratings) else np.nan
    rated_yes = ratings >= cut
    kappa = np.nan if rated_yes.all() or not rated_yes.any() else concordance(rated_yes, scores >= cut)
    return np.array([error, concordance(ratings, scores), kappa])


def _estimate(pairs: RatingScorePairs, cut: float) -> Estimate:
    def of(kept: Mask) -> Floats:
        return _values(pairs.ratings[kept], pairs.scores[kept], cut)

    values = of(np.full(len(pairs.ratings), True))
    return Estimate(values, without_each(of, pairs.unit, pairs.index.units), pairs.groups_with_pairs, pairs.index)


def _figures(estimate: Estimate, *, ranges: bool = True) -> dict[str, Figure]:
    """The measures, concordance and kappa with intervals within their ranges unless they are differences."""
    units = estimate.without_included.shape[1]
    values = list(zip(estimate.values.tolist(), estimate.standard_errors.tolist(), strict=True))
    figures = [range_interval(*v, units) if ranges and i else t_interval(*v, units) for i, v in enumerate(values)]
    if ranges and figures[0].low is not None:
        figures[0] = replace(figures[0], low=max(0.0, figures[0].low))
    return dict(zip(ABSOLUTE_MEASURES, figures, strict=True))
