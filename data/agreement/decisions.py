"""Decisions that ratings define, such as factual or hallucinated, and how well a judge's scores reproduce them.

Which decisions exist follows from the ratings alone, not from the name of the data set:

- `binary`: every rater gave one of two values, e.g. factual or hallucinated. The midpoint between the two is the
  threshold for ratings and scores; a candidate whose raters are evenly split has no label.
- `pairs`: every group has two candidates, and some groups have unequal ratings. The decision is which one is better:
  win, tie or loss.

Other ratings define no decision; for them there are the correlations of `data/agreement/tables.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from debate_judge.data.agreement.classification import (
    LOSS,
    NEGATIVE,
    POSITIVE,
    TIE,
    WIN,
    Classification,
    Decision,
    Measure,
    binary_decisions,
    classify,
    pair_auroc,
    pair_decisions,
)
from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, RatedGroup

DecisionKind = Literal["binary", "pairs"]

MARGIN = 0.0
"""Scores of a pair that differ by no more than this are a tie. 0 needs no tuning, but a judge with continuous scores
then never ties."""

LABELS: Mapping[DecisionKind, tuple[str, ...]] = {"binary": (POSITIVE, NEGATIVE), "pairs": (WIN, TIE, LOSS)}
"""Labels in the order of tables. Win and loss are those of the first candidate."""


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """How ratings and scores of an aspect become labels and decisions."""

    kind: DecisionKind
    threshold: float = 0.0
    """Binary: ratings of this value or more are positive."""
    cut: float | None = 0.0
    """Binary: scores of this value or more are positive; equal to the threshold unless it was tuned. None where scores
    are on another scale and no cut was tuned; AUROC is then the only measure."""
    chosen_on: str = ""
    """Name of the part that the cut was tuned on, e.g. `dev`; empty if it was not tuned."""
    margin: float = MARGIN
    """Pairs: scores that differ by no more than this are a tie."""


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """One judge's decisions about one aspect, compared with the raters' labels."""

    rule: DecisionRule
    upper: Classification | None
    """The measures; if binary, values from the cut on are the positive label. None if the judge made no decision."""
    lower: Classification | None
    """Binary: the same where values below the cut are the positive label, e.g. hallucinated."""
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

    @property
    def measures(self) -> dict[str, Measure]:
        """By name, measures without a positive label first; empty without decisions."""
        return {} if self.upper is None else self.upper.measures


def find_decision_rules(groups: Iterable[RatedGroup], aspects: Sequence[Aspect]) -> dict[str, DecisionRule]:
    """Find the decisions that the ratings of a corpus define.

    Args:
        groups: All groups of the corpus; in a subset, ratings of more than two values could by chance have only two.
        aspects: The aspects to look at.

    Returns:
        Aspect name -> decision rule, for the aspects whose ratings define a decision.
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
            rules[name] = _binary_rule(scale.low, scale.high)
        elif all(len(g.candidates) == 2 for g in groups) and any(g.has_distinct_ratings(name) for g in groups):
            rules[name] = DecisionRule("pairs")
    return rules


def decision_rules_from_scores(
    aspects: Mapping[str, Sequence[GroupScores]], kind: DecisionKind | None = None
) -> dict[str, DecisionRule]:
    """`find_decision_rules` without a corpus: from mean ratings of two values, or groups of two candidates.

    Args:
        aspects: Aspect name -> groups.
        kind: The kind of decision; None to infer it. Given `binary`, the threshold is the midpoint of the lowest and
            the highest rating.

    Raises:
        InputError: The ratings do not define decisions of this kind.
    """
    rules: dict[str, DecisionRule] = {}
    for name, groups in aspects.items():
        values = {r for g in groups for r in g.ratings if r is not None}
        paired = all(len(g.ratings) == 2 for g in groups) and any(_has_distinct_ratings(g) for g in groups)
        if kind == "binary" and len(values) < 2:
            raise InputError(f"all ratings of {name} are equal, so there are no two classes", field=name, found=values)
        if kind == "pairs" and not paired:
            problem = f"the groups of {name} are not pairs with ratings that differ"
            raise InputError(problem, field=name, expected="two candidates of a group, one rated higher")
        if kind == "binary" or (kind is None and len(values) == 2):
            rules[name] = _binary_rule(min(values), max(values))
        elif kind == "pairs" or paired:
            rules[name] = DecisionRule("pairs")
    return rules


def evaluate_decisions(
    scores: Mapping[str, Sequence[GroupScores]],
    decision_rules: Mapping[str, DecisionRule],
    *,
    on_scale: bool = True,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, DecisionResult]:
    """Compare a judge's decisions, derived from its scores, with the labels derived from ratings.

    Args:
        scores: Aspect name -> groups, of one judge.
        decision_rules: From `find_decision_rules`; aspects without a rule, or with no label, are left out.
        on_scale: Whether scores are on the raters' scale. If not, binary decisions need a tuned cut.
        resamples: Number of draws from the posterior for intervals, see `classify`; 0 gives no intervals.
        seed: For the draws.
    """
    if not on_scale:
        decision_rules = {
            name: replace(rule, cut=None) if rule.kind == "binary" and not rule.chosen_on else rule
            for name, rule in decision_rules.items()
        }
    results = {
        name: _decision_result(groups, decision_rules[name], resamples, seed)
        for name, groups in scores.items()
        if name in decision_rules
    }
    return {name: decided for name, decided in results.items() if decided is not None}


def with_tuned_cut(rule: DecisionRule, groups: Sequence[GroupScores], part: str) -> DecisionRule:
    """The decision rule with the cut on scores that has the best balanced accuracy on `groups`.

    Possible cuts are the threshold and the midpoints between neighbouring scores; of equally good ones the nearest to
    the threshold is taken. The rule is returned unchanged for pairs, where all scored candidates have the same label,
    and where no cut is better than the threshold.

    Args:
        rule: The decision rule.
        groups: Ratings and scores to tune on, e.g. of the dev sources; results must be reported on others.
        part: Name of this part of the corpus, e.g. `dev`.
    """
    if rule.kind != "binary":
        return rule
    rated = [
        (r, s) for g in _without_evenly_split(groups, rule) for r, s in zip(g.ratings, g.scores, strict=True)
        if r is not None and s is not None
    ]  # fmt: skip
    yes = np.sort([s for r, s in rated if r >= rule.threshold])
    no = np.sort([s for r, s in rated if r < rule.threshold])
    if not len(yes) or not len(no):
        return rule
    values = np.unique([s for _, s in rated])
    cuts = np.array([rule.threshold, *((values[1:] + values[:-1]) / 2)])
    recall = 1 - np.searchsorted(yes, cuts, side="left") / len(yes)
    balanced = (recall + np.searchsorted(no, cuts, side="left") / len(no)) / 2
    best = cuts[np.isclose(balanced, balanced.max(), rtol=0, atol=1e-12)]
    cut = float(best[np.argmin(np.abs(best - rule.threshold))])
    return rule if cut == rule.threshold else replace(rule, cut=cut, chosen_on=part)


def _binary_rule(low: float, high: float) -> DecisionRule:
    middle = (low + high) / 2
    return DecisionRule("binary", middle, middle)


def _has_distinct_ratings(group: GroupScores) -> bool:
    return len({r for r in group.ratings if r is not None}) > 1


def _decision_result(
    groups: Sequence[GroupScores], rule: DecisionRule, resamples: int, seed: int
) -> DecisionResult | None:
    lower: Classification | None = None
    cut = rule.threshold if rule.cut is None else rule.cut
    ties = sum(r == rule.threshold for g in groups for r in g.ratings) if rule.kind == "binary" else 0
    if rule.kind == "pairs":
        decisions = pair_decisions(groups, rule.margin)
        upper = _classify(decisions, None, resamples, seed)
        if upper is not None:
            auroc = pair_auroc(decisions, intervals=resamples > 0, seed=seed)
            upper = replace(upper, measures={**upper.measures, "auroc": auroc})
    else:
        groups = _without_evenly_split(groups, rule)
        decisions = binary_decisions(groups, rule.threshold, cut)
        upper = _classify(decisions, POSITIVE, resamples, seed)
        if rule.cut is not None:
            lower = _classify(binary_decisions(groups, rule.threshold, cut, below=True), POSITIVE, resamples, seed)
        elif upper is not None:
            upper = replace(upper, measures={"auroc": upper.measures["auroc"]})
    if not decisions:
        return None
    names = LABELS[rule.kind]
    labels, decided = Counter(d.label for d in decisions), Counter(d.decided for d in decisions)
    return DecisionResult(
        rule,
        upper,
        lower,
        {name: labels[name] for name in names},
        {} if rule.cut is None else {name: decided[name] for name in names},
        decided[None],
        len({d.source for d in decisions}),
        ties,
    )


def _without_evenly_split(groups: Sequence[GroupScores], rule: DecisionRule) -> list[GroupScores]:
    """The groups, with no rating for candidates whose raters are evenly split."""
    return [replace(g, ratings=tuple(None if r == rule.threshold else r for r in g.ratings)) for g in groups]


def _classify(decisions: Sequence[Decision], positive: str | None, resamples: int, seed: int) -> Classification | None:
    if all(decision.decided is None for decision in decisions):
        return None
    return classify(decisions, positive, resamples=resamples, seed=seed)
