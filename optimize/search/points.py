"""What a search may choose: points, some of which tell at no further LM call what others are worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from debate_judge.data.schema import GRANULARITIES, Granularity

NO_KNOWLEDGE = "none"
"""The value of `knowledge` where nothing was learnt about the raters."""

LEARNT = "learnt"
"""Name of the persona that was written for the raters, one for each unit, beside those that all units have."""

Reading = Literal["alone", "side by side", "joint"]
"""Whether a call is about one candidate, about several of one source, or about these in all aspects."""


@dataclass(frozen=True, order=True)
class JudgeVariant:
    """One judge among those that a search chooses from."""

    knowledge: str
    """What it knows of the raters: the name of a kind (`optimize.search.knowledge`), or `NO_KNOWLEDGE`."""
    persona: str
    """Of its Critic."""
    reading: Reading = "alone"
    """How it reads the candidates of a source."""


@dataclass(frozen=True, order=True)
class Point:
    """One thing to choose. Persona and Tie-breaker say nothing where there are no rounds."""

    knowledge: str
    persona: str
    rounds: int
    tie_breaker: bool
    granularity: Granularity
    """That the scores are rounded to."""
    reading: Reading = "alone"
    """How the candidates of a source are read."""

    @property
    def variant(self) -> JudgeVariant:
        return JudgeVariant(self.knowledge, self.persona, self.reading)


@dataclass(frozen=True)
class Space:
    """What may be chosen."""

    knowledge: tuple[str, ...]
    """Kinds of knowledge, none first: the untuned judge is always a choice."""
    personas: tuple[str, ...]
    """The judge's own first. Every one is tried under every kind of knowledge."""
    rounds: tuple[int, ...]
    tie_breakers: tuple[bool, ...]
    granularities: tuple[Granularity, ...] = GRANULARITIES
    rewritten: tuple[JudgeVariant, ...] = ()
    """Judges whose roles were all rewritten by a tuner, which have a Critic of their own."""
    not_exportable: tuple[str, ...] = ()
    """Kinds of knowledge that are measured and never chosen."""
    readings: tuple[Reading, ...] = ("alone",)
    """How the candidates of a source may be read, the judge's own way first; every judge may read them in each."""
    joint: bool = False
    """Whether what aspects have chosen may be tried with all of them in a call."""

    @property
    def longest(self) -> int:
        """Rounds of the longest debate."""
        return max(self.rounds)

    @property
    def variants(self) -> tuple[JudgeVariant, ...]:
        """All judges, those with the judge's own reading and persona first."""
        judge_reading = (
            *(JudgeVariant(k, p, self.readings[0]) for p in self.personas for k in self.knowledge),
            *self.rewritten,
        )
        return judge_reading + self.in_other_readings(*judge_reading)

    @property
    def scorers(self) -> tuple[JudgeVariant, ...]:
        """One variant for each Scorer that is told something else. A persona is the Critic's alone: variants that
        differ in nothing else share their first turn, and so their single call."""
        return (*(JudgeVariant(k, self.personas[0], self.readings[0]) for k in self.knowledge), *self.rewritten)

    def in_other_readings(self, *variants: JudgeVariant) -> tuple[JudgeVariant, ...]:
        """The variants, reading the candidates in another way than the judge's own."""
        return tuple(replace(variant, reading=reading) for reading in self.readings[1:] for variant in variants)

    def point(self, variant: JudgeVariant, rounds: int, tie_breaker: bool = False) -> Point:
        """The point of a variant, with scores as they are given."""
        granularity = self.granularities[0]
        return Point(variant.knowledge, variant.persona, rounds, tie_breaker, granularity, variant.reading)

    def debates(self, variant: JudgeVariant, rounds: int) -> list[Point]:
        """The points that tell what the variant's debates of up to so many rounds are worth."""
        rounds_held = [n for n in self.rounds if 0 < n <= rounds]
        if False in self.tie_breakers:
            return [self.point(variant, max(rounds_held))] if rounds_held else []
        # A judge that always has a Tie-breaker is told by its tie-breaks alone.
        return [self.point(variant, n, True) for n in rounds_held]

    def covered(self, point: Point) -> list[Point]:
        """The points that are read off a point's debates, its own first: every smaller n and every granularity."""
        # What asks most comes first: all else is read off it.
        rounds = sorted((n for n in self.rounds if 0 < n <= point.rounds), reverse=True)
        lengths = [(n, False) for n in rounds if False in self.tie_breakers]
        if not point.rounds:
            lengths = [(0, False)]
        elif point.tie_breaker:
            lengths = [(point.rounds, True), *lengths]
        return [
            replace(point, rounds=n, tie_breaker=tie, granularity=g) for n, tie in lengths for g in self.granularities
        ]

    def points(self) -> list[Point]:
        """Every distinct point: first single calls, then debates, then Tie-breakers."""
        evaluated = [self.point(scorer, 0) for scorer in (*self.scorers, *self.in_other_readings(*self.scorers))]
        for variant in self.variants:
            evaluated += self.debates(variant, self.longest)
        if self.tie_breakers == (False, True):
            evaluated += [self.point(v, n, True) for n in self.rounds if n for v in self.variants]
        return list(dict.fromkeys(point for each in evaluated for point in self.covered(each)))

    def complexity(self, point: Point) -> tuple[int | bool, ...]:
        """Sort key: of two points that are worth the same for as many calls, the simpler is the first."""
        personas = (*self.personas, *(v.persona for v in self.rewritten))
        kinds = (*self.knowledge, *(v.knowledge for v in self.rewritten))
        return (
            point.tie_breaker,
            kinds.index(point.knowledge),
            point.reading != self.readings[0],
            point.persona != personas[0],
            point.rounds,
            GRANULARITIES.index(point.granularity),
            personas.index(point.persona),
        )
