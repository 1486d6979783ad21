"""Who is asked about which items of a search: each judge about its own, or one about several aspects of a source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.judge import Item, Judge

if TYPE_CHECKING:
    from debate_judge.optimize.search.choice_scores import ChoiceScores

ChoicePart = Literal["dev", "train"]


@dataclass(frozen=True)
class Spot:
    """An item that a unit is chosen by, and the judge that is to be asked about it."""

    unit: ChoiceScores
    part: ChoicePart
    place: int
    """Among the unit's items of the part."""
    item: Item
    judge: Judge


def by_judge(spots: Iterable[Spot]) -> list[tuple[Judge, list[Spot]]]:
    """Each judge with its items."""
    found: dict[int, tuple[Judge, list[Spot]]] = {}
    for spot in spots:
        found.setdefault(id(spot.judge), (spot.judge, []))[1].append(spot)
    return list(found.values())


def shared(spots: Sequence[Spot]) -> list[tuple[Judge, list[Spot]]]:
    """The same where aspects share calls: groups go together that have the same judge as each other in every aspect."""
    of_group: dict[str, dict[str, Judge]] = {}
    for spot in spots:
        of_group.setdefault(spot.item.group, {})[spot.item.aspect.name] = spot.judge
    alike: dict[tuple[tuple[str, int], ...], tuple[dict[str, Judge], set[str]]] = {}
    for group, judges in of_group.items():
        key = tuple((aspect, id(judge)) for aspect, judge in judges.items())
        alike.setdefault(key, (judges, set()))[1].add(group)
    return [
        (one.judge, [s for s in spots if s.item.group in groups and s.item.aspect.name in one.aspects])
        for judges, groups in alike.values()
        for one in shared_judges(judges)
    ]
