"""The order in which a search spends its calls: what costs least and tells most comes first.

Single calls of every kind of knowledge, in the cheaper reading first, and asked for in steps; debates with the judge's
own persona for the kinds that are worth it, for the best of them in the other reading as well where its single calls
are not out of the race; one round with every other persona, and whole debates with the best of them; the Tie-breaker
where the debates are best. All aspects follow one course, decided by all of them together: what is worth a try is
learnt from every aspect, and every point is known for every aspect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from debate_judge.optimize.search.points import JudgeVariant, Point, Probe, Space


@dataclass(frozen=True)
class Breadth:
    """How much of a space is tried."""

    kinds: int
    """Kinds of knowledge that are debated with, the judge without any among them."""
    others: int
    """Other personas that are heard for more than one round."""
    ties: int
    """Points at which the Tie-breaker is heard before the sampler may ask for more."""
    probes: int
    """What may be tried altogether, the sampler's choices included; what the course and the end of a search try in
    another reading than the judge's own comes on top, at a share of the calls."""
    candidates: int
    """Candidates of each aspect that are chosen by, at most."""
    sampled: bool = True
    """Whether a sampler spends what the course leaves of the probes."""
    thrifty: bool = False
    """Whether in the dearer reading only single calls of the judge as it comes are tried, which held-out asks for
    anyway; no prompt asks for scores in steps; and other personas argue only from what was learnt."""


BREADTHS: Mapping[str, Breadth] = MappingProxyType(
    {
        "light": Breadth(kinds=2, others=0, ties=1, probes=12, candidates=512, sampled=False, thrifty=True),
        "medium": Breadth(kinds=3, others=2, ties=6, probes=28, candidates=2048),
        "heavy": Breadth(kinds=99, others=99, ties=99, probes=99, candidates=1_000_000),
    }
)
"""Effort -> how much is tried."""


def breadth_of(effort: str, trials: int | None) -> Breadth:
    """How much is tried at an effort, or as many probes as the user wants."""
    return BREADTHS[effort] if trials is None else replace(BREADTHS[effort], probes=trials, sampled=True)


Worth = Callable[[Sequence[Point]], dict[Point, list[float]]]
"""From points that were tried to what each is worth, aspect by aspect; those that lost their race are left out."""


def course(space: Space, breadth: Breadth, worth: Worth) -> Iterator[Sequence[Probe]]:
    """The probes that a search makes whatever its sampler says, in their order, by stages.

    What a stage covers has to be evaluated before the next one is asked for. Each decision rests on the points of the
    stages so far, and on no others, so that the course is the same when it is run again over a study that holds more.

    Args:
        space: What may be chosen.
        breadth: How much of it is tried.
        worth: Of points that were evaluated.
    """
    covered: list[Point] = []

    def tried(probes: Sequence[Probe]) -> Iterator[Sequence[Probe]]:
        yield probes
        for probe in probes:
            covered.extend(point for point in space.covered(probe) if point not in covered)

    def ranked(variants: Sequence[JudgeVariant]) -> list[JudgeVariant]:
        """The best first, by the best point that each has for each aspect."""
        of = worth(covered)
        return sorted(variants, key=lambda v: -_best([found for point, found in of.items() if point.variant == v]))

    def kept(variant: JudgeVariant) -> bool:
        """Whether anything of it is known for all groups, and so not lost in a race."""
        return any(point.variant == variant for point in worth(covered))

    otherwise_read = space.in_other_readings(*(space.heads[:1] if breadth.thrifty else space.heads))
    yield from tried([Probe(head, 0) for head in space.heads + otherwise_read])
    if not space.longest:
        return
    plain, *learnt = space.heads
    # What was learnt shows in a debate that argues from it more than in a single call: some of it is always tried.
    heads = [plain, *ranked(learnt)[: max(1, breadth.kinds - 1)]]
    yield from tried(_debates(space, heads, space.longest))
    may_have = [head for head in heads if head not in space.rewritten and head.knowledge not in space.barred]
    best = ranked(may_have[1:] if breadth.thrifty and len(may_have) > 1 else may_have)[0]
    if not breadth.thrifty:
        again = space.in_other_readings(ranked(heads)[0])
        yield from tried(_debates(space, [v for v in again if kept(v)], space.longest))
    others = [replace(best, persona=persona) for persona in space.personas[1:]]
    yield from tried(_debates(space, others, min(n for n in space.rounds if n)))
    yield from tried(_debates(space, ranked([v for v in others if kept(v)])[: breadth.others], space.longest))
    if space.tie_breakers == (False, True):
        yield from tried(_ties([p for p in covered if p.reading == space.readings[0]], worth)[: breadth.ties])


def _debates(space: Space, variants: Sequence[JudgeVariant], rounds: int) -> list[Probe]:
    return [probe for variant in variants for probe in space.debates(variant, rounds)]


def _best(found: Sequence[Sequence[float]]) -> float:
    """What points are worth together, where each aspect may have another one of them."""
    aspects = [max(values) for values in zip(*found, strict=True)]
    return sum(aspects) / len(aspects) if aspects else float("-inf")


def _ties(covered: Sequence[Point], worth: Worth) -> list[Probe]:
    """The Tie-breaker at every debate that was held, the most promising first.

    The variants that are the best for most aspects come first, each after one round, where the Tie-breaker stands for
    all further rounds at a fraction of their calls, then after as many as were best without it.
    """
    of = {point: found for point, found in worth(covered).items() if point.rounds}
    if not of:
        # Every debate was dropped before it had seen all sources.
        return []
    aspects = range(len(next(iter(of.values()))))
    wins = [max(of, key=lambda point: of[point][aspect]) for aspect in aspects]
    mean = {point: sum(found) / len(found) for point, found in of.items()}

    def key(probe: Probe) -> tuple[int, float, bool, float]:
        own = [mean[p] for p in of if (p.variant, p.rounds) == (probe.variant, probe.rounds)]
        variant = max(mean[p] for p in of if p.variant == probe.variant)
        won = sum(win.variant == probe.variant for win in wins)
        return -won, -variant, probe.rounds > 1, -max(own)

    return sorted(dict.fromkeys(Probe(p.variant, p.rounds, True) for p in of), key=key)
