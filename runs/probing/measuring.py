"""One pass in which judges score candidates as they are and under every manipulation.

A judge that reads several candidates at once is asked about the same ones in the same places each time. Of every two
neighbours one is manipulated in a first question and the other in a second one, so that a manipulated candidate stands
among others that are as they were; were all manipulated, a judge that sets them against each other would show nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from debate_judge.data.schema import Aspect
from debate_judge.programs.judge import Item, Judgement, corpus_items
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.probing.perturbations import Manipulation
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.shared_pass import PassJob, run_together
from debate_judge.runs.runner.tables import CandidateTable, Seat, Seating, seated

TURNS = 2
"""Questions that share the manipulated candidates of one table."""


@dataclass(frozen=True)
class ScoredTwice:
    """A candidate with the two scores that are compared; None where it has no score."""

    group: str
    before: float | None
    after: float | None


Scored = Mapping[str, Mapping[str, Sequence[ScoredTwice]]]
"""Manipulation -> aspect -> candidates that it could be applied to, in corpus order."""


@dataclass(frozen=True)
class _Asked:
    """The questions to one judge in one aspect: as the candidates are, then for each manipulation."""

    entrant: Entrant
    aspect: Aspect
    items: Sequence[Item]
    seating: Seating
    changed: Mapping[str, Mapping[int, tuple[CandidateTable, int]]]
    """Manipulation -> number of an item -> where it is read manipulated: the question, and its place in it."""


def probe_all(
    runner: JudgeRunner,
    setup: EvalSetup,
    entrants: Sequence[Entrant],
    probes: Sequence[Manipulation],
    *,
    progress: bool = True,
) -> tuple[dict[str, Scored], dict[str, Sequence[Judgement]]]:
    """Score all candidates with all judges, as they are and manipulated.

    Args:
        runner: Asks.
        setup: What is scored; its seed decides the wording of manipulations.
        entrants: The judges.
        probes: The manipulations.
        progress: Whether to show progress on stderr.

    Returns:
        Judge -> its scores, and judge -> its judgements of the candidates as they are.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: A judge cannot score anything at all.
    """
    asked = [_asked(setup, entrant, aspect, probes) for entrant in entrants for aspect in setup.aspects]
    tables = [_tables(one) for one in asked]
    jobs = [_job(one, those) for one, those in zip(asked, tables, strict=True)]
    done = run_together(runner, jobs, "probes", progress=progress)
    for error in done.failed.values():
        raise error
    scored: dict[str, dict[str, dict[str, list[ScoredTwice]]]] = {}
    plain: dict[str, Sequence[Judgement]] = {}
    for one, those, results in zip(asked, tables, done.results, strict=True):
        told = {table.key: found for table, found in zip(those, results, strict=True)}
        own = scored.setdefault(one.entrant.name, {probe.name: {} for probe in probes})
        for probe in probes:
            own[probe.name][one.aspect.name] = list(_twice(one, probe, told))
        as_they_are = [told[one.seating.tables[table].key][place] for table, place in one.seating.seats]
        plain[one.entrant.name] = [*plain.get(one.entrant.name, ()), *as_they_are]
    return {name: own for name, own in scored.items()}, plain


def _asked(setup: EvalSetup, entrant: Entrant, aspect: Aspect, probes: Sequence[Manipulation]) -> _Asked:
    items = corpus_items(setup.corpus, aspect)
    seating = seated(entrant.aspects[aspect.name].judge, items)
    changed: dict[str, dict[int, tuple[CandidateTable, int]]] = {}
    for probe in probes:
        by_seat = dict(_reversed(seating) if probe.change is None else _manipulated(seating, probe, setup.seed))
        changed[probe.name] = {n: by_seat[seat] for n, seat in enumerate(seating.seats) if seat in by_seat}
    return _Asked(entrant, aspect, items, seating, changed)


def _manipulated(seating: Seating, probe: Manipulation, seed: int) -> Iterator[tuple[Seat, tuple[CandidateTable, int]]]:
    for number, table in enumerate(seating.tables):
        new = [probe.applied(item, seed) for item in table.items]
        for turn in range(TURNS):
            mine = [place for place in range(turn, len(new), TURNS) if new[place] is not table.items[place]]
            mixed = CandidateTable(tuple(new[p] if p in mine else item for p, item in enumerate(table.items)))
            yield from (((number, place), (mixed, place)) for place in mine)


def _reversed(seating: Seating) -> Iterator[tuple[Seat, tuple[CandidateTable, int]]]:
    for number, table in enumerate(seating.tables):
        last = len(table.items) - 1
        other = CandidateTable(table.items[::-1])
        # Who sits in the middle stays there.
        yield from (((number, place), (other, last - place)) for place in range(last + 1) if 2 * place != last)


def _tables(one: _Asked) -> list[CandidateTable]:
    """Every different question."""
    tables = [*one.seating.tables, *(table for by in one.changed.values() for table, _ in by.values())]
    return list({table.key: table for table in tables}.values())


def _job(one: _Asked, tables: Sequence[CandidateTable]) -> PassJob[Sequence[Judgement]]:
    judge = one.entrant.aspects[one.aspect.name].judge
    return PassJob(one.entrant.name, lambda table: judge.judge_table(table.items), tables)


def _twice(one: _Asked, probe: Manipulation, told: Mapping[str, Sequence[Judgement]]) -> Iterator[ScoredTwice]:
    """Scores before and after; of a changed order those at the later and at the earlier place."""
    judge = one.entrant.aspects[one.aspect.name]
    for number, (table, place) in one.changed[probe.name].items():
        old_table, old_place = one.seating.seats[number]
        before = judge.reported(told[one.seating.tables[old_table].key][old_place], one.aspect)
        after = judge.reported(told[table.key][place], one.aspect)
        if probe.change is None and old_place < place:
            before, after = after, before
        yield ScoredTwice(one.items[number].group, before, after)
