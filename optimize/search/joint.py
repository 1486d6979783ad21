"""All aspects in one call, as the last thing that a search tries: what aspects chose alone, if it goes together.

Judges share a call where they have the same persona, rounds and Tie-breaker (`programs.compiled.shared_judges`). A
joint point is evaluated with all aspects in the call; where only some of them choose it, these share the call in use.
An aspect whose choice goes with that of no other is not left with a joint one: it would have the calls for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from debate_judge.optimize.search.outcomes import Outcomes
from debate_judge.optimize.search.points import LEARNT, Point, Probe


def joint_probes(outcomes: Outcomes, chosen: Mapping[str, Point]) -> list[Probe]:
    """The choices that go with those of other aspects, with all aspects in a call.

    Args:
        outcomes: What is known.
        chosen: Unit -> its choice so far.
    """
    space = outcomes.space
    if not space.joint:
        return []
    found = {
        replace(point, reading="joint", granularity=space.granularities[0])
        for label, point in chosen.items()
        if len(_company(outcomes, chosen, label)) > 1
    }
    return [Probe(p.variant, p.rounds, p.tie_breaker) for p in sorted(found)]


def in_company(outcomes: Outcomes, chosen: Mapping[str, Point]) -> dict[str, Point]:
    """The choices, as far as joint ones go with others.

    Where every point is joint, persona, rounds and Tie-breaker are chosen for all aspects at once; elsewhere a joint
    choice that goes with no other gives way to the best that is not joint.
    """
    if outcomes.space.readings == ("joint",) and len({_speakers(outcomes, p) for p in chosen.values()}) > 1:
        return _of_one_mind(outcomes)
    joint = {label: point for label, point in chosen.items() if point.reading == "joint"}
    alone = [label for label in joint if len(_company(outcomes, joint, label)) < 2]
    if not outcomes.space.joint or not alone:
        return dict(chosen)
    others = outcomes.chosen(lambda point: point.reading != "joint")
    return {label: others[label] if label in alone else point for label, point in chosen.items()}


def _of_one_mind(outcomes: Outcomes) -> dict[str, Point]:
    """For each unit the choice among the points of the same speakers, those that are worth the most to all aspects."""
    groups: dict[_Speakers, dict[Point, None]] = {}
    for point in outcomes.by_point:
        if point.knowledge not in outcomes.space.barred:
            groups.setdefault(_speakers(outcomes, point), {})[point] = None
    worth = outcomes.worth([point for points in groups.values() for point in points])
    found = []
    for points in groups.values():
        chosen = outcomes.chosen(points.__contains__)
        by_aspect = [chosen[label] for label, scores in outcomes.units.items() for _ in scores.aspects]
        values = [worth[point][number] for number, point in enumerate(by_aspect)]
        calls = sum(outcomes.by_point[point][label].calls for label, point in chosen.items())
        found.append((round(sum(values) / len(values), 9), -calls, chosen))
    return max(found, key=lambda one: one[:2])[2]


def _company(outcomes: Outcomes, chosen: Mapping[str, Point], label: str) -> list[str]:
    """The aspects of the units whose choices go with that of one unit, its own among them."""
    own = _speakers(outcomes, chosen[label])
    # Roles that were rewritten for one unit are no other unit's.
    units = [
        u for u, point in chosen.items() if u == label or (_speakers(outcomes, point) == own and not own.rewritten)
    ]
    return [aspect.name for unit in units for aspect in outcomes.units[unit].aspects]


class _Speakers(NamedTuple):
    """What judges that share a call have in common."""

    rounds: int
    persona: str
    tie_breaker: bool
    rewritten: bool


def _speakers(outcomes: Outcomes, point: Point) -> _Speakers:
    rewritten = point.knowledge in {variant.knowledge for variant in outcomes.space.rewritten}
    # A persona that was learnt is another one for each unit.
    rewritten = rewritten or (point.persona == LEARNT and point.rounds > 0)
    # Of a single call no persona is heard.
    return _Speakers(point.rounds, point.persona if point.rounds else "", point.tie_breaker, rewritten)
