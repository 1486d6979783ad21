"""The results of evaluated points for every aspect, and the choice among them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from debate_judge.data.agreement.absolute_agreement import AbsoluteScale, Objective
from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.tables import GroupScores, Level
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, SearchSpace
from debate_judge.optimize.search.pooling import EvaluatedPoints, choose_points, group_values


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
    """Aspect name -> agreement in each group (`pooling.group_values`)."""

    @property
    def unscored(self) -> float:
        """Share of the texts that have no score."""
        scores = [score for groups in self.scores.values() for group in groups for score in group.scores]
        return scores.count(None) / len(scores) if scores else 0.0


@dataclass(frozen=True)
class PrunedPoint:
    """A point that was pruned, after some of the groups; its fields are user attributes of the stored trial."""

    groups: int
    """Number of groups that it was evaluated on, of `total_groups`."""
    total_groups: int
    difference_to_best: float
    """Its value less that of the best trial then, as a mean over aspects and the groups that it was evaluated on."""


@dataclass(frozen=True)
class SearchResult:
    """The result of a search for one unit."""

    chosen: Outcome
    outcomes: tuple[Outcome, ...]
    """Every distinct point that was evaluated on all groups, in the order of the study."""
    scores: ChoiceScores
    """The scores that the outcomes were computed from."""
    pruned: Mapping[Point, PrunedPoint] = field(default_factory=dict)
    """The points that were pruned. Means over some groups are never compared with means over all of them."""

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
    """What points are chosen by."""

    objective: Objective
    level: Level
    max_unscored: float = 1.0
    """Share of the texts that a chosen point may leave without a score, if other points leave fewer."""
    absolute_scales: Mapping[str, AbsoluteScale] = field(default_factory=dict)
    """Aspect -> what absolute agreement is measured against; empty where the objective is a correlation."""


class Outcomes:
    """Evaluates points for all units, each the aspects that share a judge, and chooses one for each unit."""

    def __init__(self, units: Mapping[str, ChoiceScores], space: SearchSpace, criterion: Criterion) -> None:
        self.units = units
        self.space = space
        self.by_point: dict[Point, dict[str, Outcome]] = {}
        self.pruned: dict[Point, PrunedPoint] = {}
        self.criterion = criterion

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Ids of the groups to choose by, of all units."""
        return tuple(dict.fromkeys(name for scores in self.units.values() for name in scores.groups))

    def prefetch(self, points: Iterable[Point], group_ids: Collection[str] | None = None) -> None:
        """Make concurrently the LM calls that the points still need, on these groups (by default all), for all units.

        Of the `points` of a variant those with the longest debates come first.
        """
        by_variant: dict[JudgeVariant, list[Point]] = {}
        for point in points:
            by_variant.setdefault(point.variant, []).append(point)
        units = list(self.units.values())
        units[0].runner.run_concurrently(
            [partial(unit.prefetch, of_variant, group_ids) for of_variant in by_variant.values() for unit in units]
        )

    def evaluate(self, point: Point) -> dict[str, Outcome]:
        """The outcome of a point by unit; makes the LM calls that it still needs."""
        if point not in self.by_point:
            self.by_point[point] = {unit: self._outcome(unit, point) for unit in self.units}
        return self.by_point[point]

    def choose(self) -> dict[str, Point]:
        """The choice for each unit by partial pooling."""
        candidates = list(self.by_point)
        # If all judges agree negatively with the raters, one that scores nothing would be the best.
        points = sorted(filter(self._scores_enough, candidates), key=self.space.complexity)
        points = points or sorted(candidates, key=self.space.complexity)
        numbers = choose_points(self._evaluated_points(points))
        return {unit: points[number] for unit, number in zip(self.units, numbers, strict=True)}

    def _scores_enough(self, point: Point) -> bool:
        return all(outcome.unscored <= self.criterion.max_unscored for outcome in self.by_point[point].values())

    def results(self, chosen: Mapping[str, Point]) -> dict[str, SearchResult]:
        """The finished search for each unit."""
        results = {}
        for unit, scores in self.units.items():
            outcomes = tuple(by_unit[unit] for by_unit in self.by_point.values())
            point = chosen[unit]
            unrounded = replace(point, granularity="given")
            if all(scores.granularity(a.name, point) == scores.granularity(a.name, unrounded) for a in scores.aspects):
                # For this unit both give equal scores; the pooled choice between them rests on the other aspects.
                point = unrounded
            results[unit] = SearchResult(self.by_point[point][unit], outcomes, scores, self.pruned)
        return results

    def _evaluated_points(self, points: Sequence[Point]) -> EvaluatedPoints:
        values: list[Floats] = []
        calls, units = [], []
        for name, scores in self.units.items():
            outcomes = [self.by_point[point][name] for point in points]
            units.append(range(len(values), len(values) + len(scores.aspects)))
            for aspect in scores.aspects:
                values.append(np.array([outcome.values[aspect.name] for outcome in outcomes]))
                calls.append([outcome.calls for outcome in outcomes])
        return EvaluatedPoints(values, np.array(calls), [list(unit) for unit in units])

    def _outcome(self, unit: str, point: Point) -> Outcome:
        scores, calls = self.units[unit].scores(point)
        untuned = self.untuned_counterpart(point)
        base = None if untuned is None else self.by_point[untuned][unit]
        values = {
            name: self._values(name, groups, None if base is None else (base.scores[name], base.values[name]))
            for name, groups in scores.items()
        }
        agreement = sum(float(v.mean()) for v in values.values()) / len(values)
        return Outcome(point, agreement, calls, scores, values)

    def _values(
        self, aspect: str, groups: Sequence[GroupScores], untuned: tuple[Sequence[GroupScores], Floats] | None
    ) -> Floats:
        """Agreement by group. For groups that the judge was tuned on it is imputed: the untuned judge's agreement there
        plus the mean difference from it on the other groups."""
        measured = self.group_values(aspect, groups)
        if untuned is None or len(groups) == len(untuned[0]):
            return np.array(list(measured.values()) or [0.0])
        all_groups, base_values = untuned
        ids = {group.group for group in groups}
        base = self.group_values(aspect, [group for group in all_groups if group.group in ids])
        gain = float(np.mean(list(measured.values())) - np.mean(list(base.values()))) if measured else 0.0
        if self.criterion.level == "sample":
            return base_values + gain
        names = self.group_values(aspect, all_groups)
        return np.array([measured.get(name, value + gain) for name, value in zip(names, base_values, strict=True)])

    def group_values(self, aspect: str, groups: Sequence[GroupScores]) -> dict[str, float]:
        """What each group contributes to the agreement (`pooling.group_values`)."""
        criterion = self.criterion
        return group_values(groups, criterion.objective, criterion.level, criterion.absolute_scales.get(aspect))

    def untuned_counterpart(self, point: Point) -> Point | None:
        """The evaluated point without knowledge that is otherwise most like this one; None for a point without."""
        if point.knowledge == NO_KNOWLEDGE:
            return None
        untuned = replace(point, knowledge=NO_KNOWLEDGE)
        plain = replace(untuned, persona=self.space.personas[0])
        nearest = (untuned, plain, replace(plain, tie_breaker=False))
        return next((p for p in nearest if p in self.by_point), replace(plain, rounds=0, tie_breaker=False))
