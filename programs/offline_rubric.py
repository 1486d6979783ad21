"""From measurements to a score: which readings speak about which aspect, how much, and who looks at them.

A reading is mapped to a merit between 0 and 1 by a ramp from its worst to its best value; a score is a
weighted mean of merits, from which faults (a wrong number, a missing end) are subtracted. The Scorer's
first look takes only some readings; the Critic brings up the others, one a round, in the order given here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from programs.offline_summary import Reading

Kind = Literal["summary", "dialogue"]


@dataclass(frozen=True, slots=True)
class Feature:
    """How a reading is spoken of. The phrase is also the key by which a listener finds it in a debate."""

    phrase: str
    unit: Literal["share", "number"]


FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        "support": Feature("words known from the source", "share"),
        "passage": Feature("sentences backed by one passage", "share"),
        "weakest": Feature("the least backed sentence", "share"),
        "wording": Feature("the sentence furthest from the source's wording", "share"),
        "whole": Feature("source sentences kept whole", "share"),
        "joints": Feature("new joints between source words", "share"),
        "fragments": Feature("places where copied fragments are spliced", "number"),
        "numbers": Feature("numbers that the source does not have", "number"),
        "order": Feature("agreement with the order of the source", "number"),
        "opening": Feature("an opening on the main topic", "share"),
        "repeats": Feature("repeated word pairs", "share"),
        "overlap": Feature("overlap between two sentences", "share"),
        "echoes": Feature("words repeated within a sentence", "share"),
        "topic": Feature("closeness to the main topic", "share"),
        "lead": Feature("overlap with the first sentences of the source", "share"),
        "cuts": Feature("sentences cut short", "number"),
        "shortest": Feature("words in the shortest sentence", "number"),
        "slips": Feature("slips of grammar", "number"),
        "unfinished": Feature("a missing end", "number"),
        "specific": Feature("specific words", "number"),
        "sentences": Feature("sentences in the reply", "number"),
        "selftalk": Feature("clauses of the kind I think, I guess", "number"),
        "variety": Feature("variety of words", "share"),
        "runon": Feature("run-on clauses", "number"),
        "links": Feature("words taken up from the conversation", "number"),
        "fact": Feature("words shared with the fact", "number"),
        "newfact": Feature("words of the fact that are new to the conversation", "number"),
        "factrun": Feature("words in a row from the fact", "number"),
        "parroted": Feature("word triples repeated from the conversation", "share"),
    }
)


@dataclass(frozen=True, slots=True)
class Item:
    """One reading's say in an aspect."""

    name: str
    worst: float
    best: float
    weight: float
    fault: bool = False
    """A fault is subtracted where it occurs, its weight at most, and says nothing where it does not."""

    def merit(self, reading: Reading) -> float:
        share = (reading.value - self.worst) / (self.best - self.worst)
        return min(1.0, max(0.0, share))


@dataclass(frozen=True, slots=True)
class Rubric:
    """The evidence for one aspect."""

    first: tuple[Item, ...]
    """What the Scorer looks at by itself."""
    later: tuple[Item, ...]
    """What the Critic can raise, in this order."""
    ceiling: float = 1.0
    """The merit that already earns the top of the scale."""

    @property
    def items(self) -> tuple[Item, ...]:
        return self.first + self.later


def first_look(rubric: Rubric, readings: Mapping[str, Reading]) -> float:
    """Merit of what the Scorer sees by itself, 0 to 1."""
    return _mean(rubric.first, readings)


def weigh(rubric: Rubric, readings: Mapping[str, Reading], phrases: Collection[str]) -> float:
    """Merit of the first look and of what was raised. What nobody raised is presumed to be like the first look.

    With that presumption a reading that only confirms the first look need not be raised, and candidates
    that were judged on different evidence stay comparable.
    """
    start = first_look(rubric, readings)
    raised = [effect for item, effect in effects(rubric, readings) if FEATURES[item.name].phrase in phrases]
    return min(1.0, max(0.0, math.fsum((start, *raised))))


def effects(rubric: Rubric, readings: Mapping[str, Reading]) -> list[tuple[Item, float]]:
    """Each later item with the change of merit when it is raised.

    The changes add up and do not depend on what was raised before, so a lower threshold can only lengthen
    the list of what is worth raising.
    """
    start = first_look(rubric, readings)
    weights = math.fsum(i.weight for i in rubric.items if not i.fault)
    changes = []
    for item in rubric.later:
        merit = item.merit(readings[item.name])
        change = item.weight * (merit - 1) if item.fault else item.weight * (merit - start) / weights
        changes.append((item, change))
    return changes


def _mean(items: tuple[Item, ...], readings: Mapping[str, Reading]) -> float:
    return math.fsum(i.weight * i.merit(readings[i.name]) for i in items) / math.fsum(i.weight for i in items)


def _items(table: str) -> tuple[Item, ...]:
    """Parse `name worst>best weight`, one item a comma; a weight with a minus sign marks a fault."""
    items = []
    for entry in table.split(","):
        name, ramp, weight = entry.split()
        worst, best = ramp.split(">")
        items.append(Item(name, float(worst), float(best), abs(float(weight)), weight.startswith("-")))
    return tuple(items)
