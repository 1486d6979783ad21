"""The results of the points of a search for every aspect, and the choice among them.

Judges share a call where they have the same persona, rounds and Tie-breaker (`programs.compiled.shared_judges`). A
joint point is evaluated with all aspects in the call; where only some of them choose it, these share the call in use.
An aspect whose joint choice fits that of no other is not left with it: it would have the calls for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.tables import GroupScores, Level
from debate_judge.data.inference.absolute_agreement import AbsoluteScale, Objective
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.points import LEARNT, NO_KNOWLEDGE, JudgeVariant, Point, Space
from debate_judge.optimize.search.pooling import Evaluated, group_values, pooled, pooled_means


@dataclass(frozen=True)
class Outcome:
    """Agreement and calls of a point on train and dev, for the aspects of one unit."""

    point: Point
    agreement: float
    """Mean over the aspects. Biased upwards for the chosen point, which is the best of many."""
    calls: float
    """LM calls per item, whether or not they had to be made."""
    scores: Mapping[str, Sequence[GroupScores]]
    """Aspect name -> scores by group."""
    values: Mapping[str, Floats]
    """Aspect name -> agreement in each group of the choice (`pooling.group_values`)."""

    @property
    def unscored(self) -> float:
        """Share of the texts that have no score."""
        scores = [score for groups in self.scores.values() for group in groups for score in group.scores]
        return scores.count(None) / len(scores) if scores else 0.0


@dataclass(frozen=True)
class PrunedPoint:
    """A point that was pruned: it was asked about some of the groups only."""

    groups: int
    """That it was asked about."""
    of: int
    """Groups of the choice."""
    behind: float
    """Its value less that of the best trial so far, as a mean over the groups that it was asked about and aspects."""


@dataclass(frozen=True)
class SearchResult:
    """A finished search, as it concerns one unit."""

    chosen: Outcome
    outcomes: tuple[Outcome, ...]
    """Every distinct point that was asked about all groups, in the order of the study."""
    scores: ChoiceScores
    """What the outcomes were read off."""
    dropped: Mapping[Point, PrunedPoint] = field(default_factory=dict)
    """The points that were pruned. No mean over a part of the groups is compared with one over all of them."""
    importances: Mapping[str, float] = field(default_factory=dict)
    """Parameter -> its share in what makes trials of the search differ."""

    @property
    def front(self) -> list[Outcome]:
        """The Pareto front: no other outcome agrees at least as well for fewer calls."""
        ranked = sorted(self.outcomes, key=lambda o: (o.calls, -o.agreement))
        front: list[Outcome] = []
        for outcome in ranked:
            if not front or outcome.agreement > front[-1].agreement:
                front.append(outcome)
        return front


@dataclass(frozen=True)
class Criterion:
    """What makes one choice better than another."""

    objective: Objective
    level: Level
    max_unscored: float = 1.0
    """Share of the texts that a chosen point may leave without a score, where others leave fewer."""
    absolute_scales: Mapping[str, AbsoluteScale] = field(default_factory=dict)
    """Aspect -> what absolute agreement is measured against; empty where the objective is a correlation."""


class Outcomes:
    """Evaluates points for all units, which are the aspects that get one judge together, and chooses one for each."""

    def __init__(self, units: Mapping[str, ChoiceScores], space: Space, criterion: Criterion) -> None:
        self.units = units
        self.space = space
        self.by_point: dict[Point, dict[str, Outcome]] = {}
        self.dropped: dict[Point, PrunedPoint] = {}
        self.criterion = criterion

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Ids of the groups that any unit is chosen by."""
        return tuple(dict.fromkeys(name for scores in self.units.values() for name in scores.groups))

    def prefetch(self, points: Iterable[Point], only: Collection[str] | None = None) -> None:
        """Ask the LM at once for what is not known yet, about these groups (by default all), for all units.

        Of the `points` of a variant those with the longest debates come first.
        """
        of_variant: dict[JudgeVariant, list[Point]] = {}
        for point in points:
            of_variant.setdefault(point.variant, []).append(point)
        units = list(self.units.values())
        for joint in (False, True):
            # In a joint call the first unit asks for all of them.
            asking = units[:1] if joint else units
            units[0].runner.run_concurrently(
                [
                    partial(unit.prefetch, points_of_variant, only)
                    for variant, points_of_variant in of_variant.items()
                    if (variant.reading == "joint") == joint
                    for unit in asking
                ]
            )

    def evaluate(self, point: Point) -> dict[str, Outcome]:
        """What a point does, by unit; asks the LM for what is not known yet."""
        if point not in self.by_point:
            self.by_point[point] = {label: self._evaluated(label, point) for label in self.units}
        return self.by_point[point]

    def worth(self, points: Sequence[Point]) -> dict[Point, list[float]]:
        """Posterior mean agreement of evaluated points on each aspect (`pooling.pooled_means`)."""
        posterior = pooled_means(self._evaluation(points).values)
        return {point: list(posterior[:, number]) for number, point in enumerate(points)}

    def chosen(self, among: Callable[[Point], bool] = lambda point: True) -> dict[str, Point]:
        """The choice for each unit, by partial pooling, among these of the points that may be chosen."""
        allowed = [
            point for point in self.by_point if point.knowledge not in self.space.not_exportable and among(point)
        ]
        # Where no judge ranks as the raters do, one that says nothing would be the best.
        points = sorted(filter(self._scores_enough, allowed), key=self.space.complexity)
        points = points or sorted(allowed, key=self.space.complexity)
        numbers = pooled(self._evaluation(points))
        return {label: points[number] for label, number in zip(self.units, numbers, strict=True)}

    def _scores_enough(self, point: Point) -> bool:
        return all(outcome.unscored <= self.criterion.max_unscored for outcome in self.by_point[point].values())

    def results(self, chosen: Mapping[str, Point], importances: Mapping[str, float]) -> dict[str, SearchResult]:
        """The finished search for each unit."""
        results = {}
        for label, scores in self.units.items():
            outcomes = tuple(by_unit[label] for by_unit in self.by_point.values())
            point = chosen[label]
            given = replace(point, granularity="given")
            if all(scores.granularity(a.name, point) == scores.granularity(a.name, given) for a in scores.aspects):
                # Equal scores; where other aspects are rounded, their lead may have decided between the two.
                point = given
            results[label] = SearchResult(self.by_point[point][label], outcomes, scores, self.dropped, importances)
        return results

    def _evaluation(self, points: Sequence[Point]) -> Evaluated:
        values: list[Floats] = []
        calls, units = [], []
        for label, scores in self.units.items():
            outcomes = [self.by_point[point][label] for point in points]
            units.append(range(len(values), len(values) + len(scores.aspects)))
            for aspect in scores.aspects:
                values.append(np.array([outcome.values[aspect.name] for outcome in outcomes]))
                calls.append([outcome.calls for outcome in outcomes])
        return Evaluated(values, np.array(calls), [list(unit) for unit in units])

    def _evaluated(self, label: str, point: Point) -> Outcome:
        scores, calls = self.units[label].scores(point)
        untuned = self.untuned(point)
        base = None if untuned is None else self.by_point[untuned][label]
        values = {
            name: self._values(name, groups, None if base is None else (base.scores[name], base.values[name]))
            for name, groups in scores.items()
        }
        agreement = sum(float(v.mean()) for v in values.values()) / len(values)
        return Outcome(point, agreement, calls, scores, values)

    def _values(
        self, aspect: str, groups: Sequence[GroupScores], untuned: tuple[Sequence[GroupScores], Floats] | None
    ) -> Floats:
        """Agreement by group. Groups that the point may not be judged by are filled in from the untuned judge: what
        that does there, and by how much the point differs from it in the groups that both are judged by."""
        known = self.by_group(aspect, groups)
        if untuned is None or len(groups) == len(untuned[0]):
            return np.array(list(known.values()) or [0.0])
        everywhere, values = untuned
        ids = {group.group for group in groups}
        same = self.by_group(aspect, [group for group in everywhere if group.group in ids])
        gain = float(np.mean(list(known.values())) - np.mean(list(same.values()))) if known else 0.0
        if self.criterion.level == "sample":
            return values + gain
        names = self.by_group(aspect, everywhere)
        return np.array([known.get(name, value + gain) for name, value in zip(names, values, strict=True)])

    def by_group(self, aspect: str, groups: Sequence[GroupScores]) -> dict[str, float]:
        """What each group contributes to the agreement (`pooling.group_values`)."""
        criterion = self.criterion
        return group_values(groups, criterion.objective, criterion.level, criterion.absolute_scales.get(aspect))

    def untuned(self, point: Point) -> Point | None:
        """The evaluated point that has learnt nothing and is otherwise most like this one; None for such a point."""
        if point.knowledge == NO_KNOWLEDGE:
            return None
        judge_persona = self.space.personas[0]
        same = replace(point, knowledge=NO_KNOWLEDGE)
        plain = replace(same, persona=judge_persona)
        usual = replace(plain, reading=self.space.readings[0])
        near = (same, plain, replace(plain, tie_breaker=False), usual, replace(usual, tie_breaker=False))
        return next((other for other in near if other in self.by_point), replace(usual, rounds=0, tie_breaker=False))


def joint_points(outcomes: Outcomes, chosen: Mapping[str, Point]) -> list[Point]:
    """The choices so far, by unit, that could share calls with those of other aspects, as joint points."""
    space = outcomes.space
    fitting = [point for label, point in chosen.items() if len(_sharing(outcomes, chosen, label)) > 1]
    joint = {replace(point, reading="joint", granularity=space.granularities[0]) for point in fitting}
    return sorted(joint) if space.joint else []


def keep_shareable(outcomes: Outcomes, chosen: Mapping[str, Point]) -> dict[str, Point]:
    """The choices, as far as joint ones fit others.

    Where every point is joint, persona, rounds and Tie-breaker are chosen for all aspects at once; elsewhere a joint
    choice that fits no other gives way to the best that is not joint.
    """
    if outcomes.space.readings == ("joint",) and len({_config(outcomes, p) for p in chosen.values()}) > 1:
        return _choose_shared_config(outcomes)
    joint = {label: point for label, point in chosen.items() if point.reading == "joint"}
    unshared = [label for label in joint if len(_sharing(outcomes, joint, label)) < 2]
    if not outcomes.space.joint or not unshared:
        return dict(chosen)
    others = outcomes.chosen(lambda point: point.reading != "joint")
    return {label: others[label] if label in unshared else point for label, point in chosen.items()}


def _choose_shared_config(outcomes: Outcomes) -> dict[str, Point]:
    """For each unit the choice among the points of one configuration, that which is worth the most to all aspects."""
    groups: dict[_SharedConfig, dict[Point, None]] = {}
    for point in outcomes.by_point:
        if point.knowledge not in outcomes.space.not_exportable:
            groups.setdefault(_config(outcomes, point), {})[point] = None
    worth = outcomes.worth([point for points in groups.values() for point in points])
    totals = []
    for points in groups.values():
        chosen = outcomes.chosen(points.__contains__)
        by_aspect = [chosen[label] for label, scores in outcomes.units.items() for _ in scores.aspects]
        values = [worth[point][number] for number, point in enumerate(by_aspect)]
        calls = sum(outcomes.by_point[point][label].calls for label, point in chosen.items())
        totals.append((round(sum(values) / len(values), 9), -calls, chosen))
    return max(totals, key=lambda entry: entry[:2])[2]


def _sharing(outcomes: Outcomes, chosen: Mapping[str, Point], label: str) -> list[str]:
    """The aspects of the units whose choices could share calls with that of one unit, its own among them."""
    config = _config(outcomes, chosen[label])
    # Roles that were rewritten for one unit are no other unit's.
    units = [
        u for u, point in chosen.items() if u == label or (_config(outcomes, point) == config and not config.rewritten)
    ]
    return [aspect.name for unit in units for aspect in outcomes.units[unit].aspects]


class _SharedConfig(NamedTuple):
    """What judges that share a call have in common."""

    rounds: int
    persona: str
    tie_breaker: bool
    rewritten: bool


def _config(outcomes: Outcomes, point: Point) -> _SharedConfig:
    rewritten = point.knowledge in {variant.knowledge for variant in outcomes.space.rewritten}
    # A persona that was learnt is another one for each unit.
    rewritten = rewritten or (point.persona == LEARNT and point.rounds > 0)
    # Of a single call no persona is heard.
    return _SharedConfig(point.rounds, point.persona if point.rounds else "", point.tie_breaker, rewritten)
