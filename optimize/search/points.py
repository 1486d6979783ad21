"""The search space: points, variants of the judge, and which points are derived from others at no LM call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from debate_judge.data.schema import GRANULARITIES, Granularity

NO_KNOWLEDGE = "none"
"""The value of `knowledge` where nothing was learnt about the raters."""

LEARNT = "learnt"
"""Name of the persona that was written for the raters, one for each unit, besides those that all units have."""


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
    """The values of each parameter, and what excludes some of their combinations."""

    knowledge: tuple[str, ...]
    """Kinds of knowledge, none first: the untuned judge is always a choice."""
    personas: tuple[str, ...]
    """The judge's default persona first. Each may be combined with every kind of knowledge."""
    rounds: tuple[int, ...]
    tie_breakers: tuple[bool, ...]
    granularities: tuple[Granularity, ...] = GRANULARITIES
    rewritten: tuple[JudgeVariant, ...] = ()
    """Judges whose roles were all rewritten by a tuner. Their Critic was rewritten, too, and takes no other persona."""

    @property
    def unrounded(self) -> Granularity:
        """The granularity in which scores are as the judge gave them, unless that of all aspects is fixed."""
        return self.granularities[0]

    @property
    def max_rounds(self) -> int:
        """Rounds of the longest debate."""
        return max(self.rounds)

    @property
    def variants(self) -> tuple[JudgeVariant, ...]:
        """All variants, those with the default persona first."""
        return (*(JudgeVariant(k, p) for p in self.personas for k in self.knowledge), *self.rewritten)

    @property
    def scorer_variants(self) -> tuple[JudgeVariant, ...]:
        """One variant for each distinct Scorer. Variants that differ in the Critic's persona alone have the same first
        turn, and so the same single call."""
        return (*(JudgeVariant(k, self.personas[0]) for k in self.knowledge), *self.rewritten)

    def point(self, variant: JudgeVariant, rounds: int, tie_breaker: bool = False) -> Point:
        """The point of a variant, with unrounded scores."""
        return Point(variant.knowledge, variant.persona, rounds, tie_breaker, self.unrounded)

    def debate_points(self, variant: JudgeVariant, rounds: int) -> list[Point]:
        """The points from which all points of the variant's debates of up to so many rounds are derived."""
        rounds_debated = [n for n in self.rounds if 0 < n <= rounds]
        if False in self.tie_breakers:
            return [self.point(variant, max(rounds_debated))] if rounds_debated else []
        # A judge that always has a Tie-breaker has no score without it.
        return [self.point(variant, n, True) for n in rounds_debated]

    def derived_points(self, point: Point) -> list[Point]:
        """The points whose scores follow from this point's debates without an LM call: it and every smaller n, each in
        every granularity; what takes the most calls comes first."""
        rounds = sorted((n for n in self.rounds if 0 < n <= point.rounds), reverse=True)
        endings = [(n, False) for n in rounds if False in self.tie_breakers]
        if not point.rounds:
            endings = [(0, False)]
        elif point.tie_breaker:
            endings = [(point.rounds, True), *endings]
        unrounded = [replace(point, rounds=n, tie_breaker=tie) for n, tie in endings]
        return [replace(p, granularity=granularity) for p in unrounded for granularity in self.granularities]

    def points(self) -> list[Point]:
        """Every distinct point: first single calls, then debates, then Tie-breakers."""
        roots = [self.point(variant, 0) for variant in self.scorer_variants]
        for variant in self.variants:
            roots += self.debate_points(variant, self.max_rounds)
        if self.tie_breakers == (False, True):
            roots += [self.point(v, n, True) for n in self.rounds if n for v in self.variants]
        return list(dict.fromkeys(derived for point in roots for derived in self.derived_points(point)))

    def complexity(self, point: Point) -> tuple[int | bool, ...]:
        """Sort key: of two points with equal agreement and calls, the simpler comes first."""
        personas = (*self.personas, *(v.persona for v in self.rewritten))
        knowledge = (*self.knowledge, *(v.knowledge for v in self.rewritten))
        return (
            point.tie_breaker,
            knowledge.index(point.knowledge),
            point.persona != personas[0],
            point.rounds,
            GRANULARITIES.index(point.granularity),
            personas.index(point.persona),
        )
