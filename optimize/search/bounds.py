"""Searches that ask as little, or as much, as they can: what an estimate puts in place of what it cannot know."""

from __future__ import annotations

from collections.abc import Sequence

from debate_judge.optimize.search.outcomes import Outcomes
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, Probe, Space
from debate_judge.optimize.search.study import Strategy


def _calls(outcomes: Outcomes, point: Point) -> float:
    return sum(outcome.calls for outcome in outcomes.by_point[point].values())


def _choosable(outcomes: Outcomes) -> list[Point]:
    return [point for point in outcomes.by_point if point.knowledge not in outcomes.space.barred]


def _least_called(outcomes: Outcomes) -> dict[str, Point]:
    point = min(_choosable(outcomes), key=lambda p: (_calls(outcomes, p), outcomes.space.plainness(p)))
    return dict.fromkeys(outcomes.units, point)


def _most_called(outcomes: Outcomes) -> dict[str, Point]:
    # Of equally long debates those that know something ask more: they share no first turn with the uncompiled judge.
    point = max(_choosable(outcomes), key=lambda p: (round(_calls(outcomes, p), 6), p.knowledge != NO_KNOWLEDGE))
    return dict.fromkeys(outcomes.units, point)


def _most_promising_if_long(outcomes: Outcomes, points: Sequence[Point]) -> dict[Point, list[float]]:
    """What asks most is worth most."""
    return {point: [_calls(outcomes, point)] for point in points}


def _most_promising_if_short(outcomes: Outcomes, points: Sequence[Point]) -> dict[Point, list[float]]:
    """What asks least is worth most."""
    return {point: [-_calls(outcomes, point)] for point in points}


def _most_called_variants(outcomes: Outcomes, points: Sequence[Point]) -> list[Point]:
    """As many as there are aspects, no two of the same variant."""
    aspects = sum(len(scores.aspects) for scores in outcomes.units.values())
    found: dict[JudgeVariant, Point] = {}
    for point in sorted(points, key=lambda point: -_calls(outcomes, point)):
        found.setdefault(point.variant, point)
    return list(found.values())[:aspects]


def _longest_first(study: object, space: Space, seed: int, left: Sequence[Probe]) -> Probe:
    """Debates before Tie-breakers, which are heard about open debates only."""
    return max(left, key=lambda probe: (not probe.tie_breaker, probe.rounds))


def _nothing(study: object, space: Space, seed: int, left: Sequence[Probe]) -> None:
    return None


CHEAPEST = Strategy(
    _most_promising_if_short,
    _nothing,
    lambda outcomes, points: [],
    may_win=lambda challenge, point, asked: False,
    chosen=_least_called,
)
"""A search that tries nothing beyond what every search tries, drops it at once, and chooses what asks least."""

DEAREST = Strategy(
    _most_promising_if_long,
    _longest_first,
    _most_called_variants,
    may_win=lambda challenge, point, asked: True,
    chosen=_most_called,
)
"""A search whose further trials ask as much as they can, which drops nothing, and chooses what asks most."""
