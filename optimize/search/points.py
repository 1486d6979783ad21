"""The search space: configurations of the judge, and which scores are read off which debates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from debate_judge.data.schema import GRANULARITIES, Granularity

NO_KNOWLEDGE = "none"
"""The value of `knowledge` where nothing was learnt about the raters."""

LEARNT = "learnt"
"""Name of the persona that was written for the raters, one for each aspect, besides those that all aspects have."""

TUNED = "tuned"
"""Name of the knowledge and the persona of a judge whose instructions were all rewritten."""


@dataclass(frozen=True, order=True)
class JudgeVariant:
    """One judge among those that a search chooses from."""

    knowledge: str
    """Name of its `Knowledge` about the raters, or `NO_KNOWLEDGE`."""
    persona: str
    """Of its Critic."""


@dataclass(frozen=True, order=True)
class Point:
    """A configuration of the judge. In a single call (no rounds) persona and Tie-breaker have no effect."""

    knowledge: str
    persona: str
    rounds: int
    tie_breaker: bool
    granularity: Granularity
    """What the scores are rounded to."""

    @property
    def variant(self) -> JudgeVariant:
        return JudgeVariant(self.knowledge, self.persona)


@dataclass(frozen=True)
class SearchSpace:
    """The values of each parameter."""

    knowledge: tuple[str, ...]
    """Kinds of knowledge, none first: the untuned judge is always a choice. `TUNED` takes no other persona."""
    personas: tuple[str, ...]
    """The judge's default persona first."""
    rounds: tuple[int, ...]
    tie_breakers: tuple[bool, ...]
    granularities: tuple[Granularity, ...] = GRANULARITIES
    untuned_variants: bool = True
    """Whether other personas than the default one and a Tie-breaker are tried without knowledge, too, where there is
    any."""

    @property
    def parameters(self) -> dict[str, tuple[Any, ...]]:
        """Name -> values of the parameters that a trial suggests; roundings follow from its scores."""
        return {
            "knowledge": self.knowledge,
            "persona": self.personas,
            "rounds": self.rounds,
            "tie_breaker": self.tie_breakers,
        }

    def point(self, params: Mapping[str, Any]) -> Point:
        """The point of these parameters, with unrounded scores. Those without effect have one value: persona and
        Tie-breaker of a single call, and the persona of a judge whose roles were all rewritten."""
        knowledge, rounds = params["knowledge"], params["rounds"]
        varied = rounds and (self.untuned_variants or knowledge != NO_KNOWLEDGE or len(self.knowledge) == 1)
        persona = params["persona"] if varied else self.personas[0]
        persona = TUNED if knowledge == TUNED else persona
        tie_breaker = params["tie_breaker"] if varied else bool(rounds) and self.tie_breakers[0]
        return Point(knowledge, persona, rounds, tie_breaker, self.granularities[0])

    def starting_points(self) -> list[Point]:
        """What is tried before the sampler suggests anything: single calls; one round with each kind of knowledge, and
        by each other persona."""
        learnt = self.knowledge[1:]
        best = learnt[0] if learnt else NO_KNOWLEDGE
        default, tie = self.personas[0], self.tie_breakers[0]
        shortest = min((n for n in self.rounds if n), default=0)
        params = [
            *((knowledge, default, 0, tie) for knowledge in self.knowledge),
            *((knowledge, default, shortest, tie) for knowledge in learnt or self.knowledge),
            *((best, persona, shortest, tie) for persona in self.personas[1:]),
        ]
        points = [self.point(dict(zip(self.parameters, values, strict=True))) for values in params]
        return list(dict.fromkeys(points))

    def derived_points(self, point: Point) -> list[Point]:
        """The points whose scores follow from this point's debates without an LM call: it and every smaller n, each in
        every granularity; the point itself comes first."""
        shorter = [n for n in sorted(self.rounds, reverse=True) if 0 < n <= point.rounds and False in self.tie_breakers]
        unrounded = [point, *(replace(point, rounds=n, tie_breaker=False) for n in shorter)]
        return list(
            dict.fromkeys(replace(p, granularity=granularity) for p in unrounded for granularity in self.granularities)
        )

    def points(self) -> list[Point]:
        """Every distinct point."""
        values = self.parameters
        unrounded = [
            self.point({"knowledge": k, "persona": p, "rounds": n, "tie_breaker": t})
            for n in sorted(self.rounds, reverse=True)
            for k in values["knowledge"]
            for p in values["persona"]
            for t in values["tie_breaker"]
        ]
        return list(dict.fromkeys(derived for point in unrounded for derived in self.derived_points(point)))

    def complexity(self, point: Point) -> tuple[int | bool, ...]:
        """Sort key: of two points with equal agreement and calls, the simpler comes first."""
        personas = (*self.personas, TUNED)
        return (
            point.tie_breaker,
            self.knowledge.index(point.knowledge),
            point.persona != personas[0],
            point.rounds,
            GRANULARITIES.index(point.granularity),
            personas.index(point.persona),
        )
