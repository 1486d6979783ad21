"""All aspects in one call, as the last thing that a search tries: what aspects chose alone, if it goes together.

Judges share a call where they have the same persona, rounds and Tie-breaker (`programs.compiled.shared_judges`). A
joint point is evaluated with all aspects in the call; where only some of them choose it, these share the call in use.
An aspect whose choice goes with that of no other is not left with a joint one: it would have the calls for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from debate_judge.optimize.search.outcomes import Outcomes
from debate_judge.optimize.search.points import Point, Probe


def joint_probes(outcomes: Outcomes, chosen: Mapping[str, Point]) -> list[Probe]:
    """The choices that go with those of other aspects, with all aspects in a call.

    Args:
        outcomes: What is known.
        chosen: Unit -> its choice so far.
    """
    space = outcomes.space
    if not space.joint:
        return []
    # Roles that were rewritten for one unit are no other unit's.
    own = {variant.knowledge for variant in space.rewritten} if len(outcomes.units) > 1 else set()
    found = {
        replace(point, reading="joint", granularity=space.granularities[0])
        for label, point in chosen.items()
        if point.knowledge not in own and len(_company(outcomes, chosen, label)) > 1
    }
    return [Probe(p.variant, p.rounds, p.tie_breaker) for p in sorted(found)]


def in_company(outcomes: Outcomes, chosen: Mapping[str, Point]) -> dict[str, Point]:
    """The choices, in which joint ones that go with no other give way to the best that are not joint."""
    joint = {label: point for label, point in chosen.items() if point.reading == "joint"}
    alone = [label for label in joint if len(_company(outcomes, joint, label)) < 2]
    if not outcomes.space.joint or not alone:
        return dict(chosen)
    others = outcomes.chosen(joint=False)
    return {label: others[label] if label in alone else point for label, point in chosen.items()}


def _company(outcomes: Outcomes, chosen: Mapping[str, Point], label: str) -> list[str]:
    """The aspects of the units whose choices go with that of one unit, its own among them."""
    units = [other for other, point in chosen.items() if _speakers(point) == _speakers(chosen[label])]
    return [aspect.name for unit in units for aspect in outcomes.units[unit].aspects]


def _speakers(point: Point) -> tuple[int, str, bool]:
    """What judges that share a call have in common."""
    return (point.rounds, point.persona, point.tie_breaker) if point.rounds else (0, "", False)
