"""Scores candidates with all judges, unchanged and with every manipulation, in one pass.

A judge that reads several candidates at once is always asked about the same ones in the same places. Of every two
neighbours, one is manipulated in a first question and the other in a second one, so that a manipulated candidate is
among unchanged ones. If all were manipulated, a judge that compares candidates would show no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from debate_judge.programs.compiled import SharedGrouping, grouped_by_aspect
from debate_judge.programs.grouping import CandidateTable, Grouping, TablePlace
from debate_judge.programs.judge import Item, Judgement, corpus_items
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.probing.perturbations import Manipulation
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.shared_pass import PassJob, run_together

TURNS = 2
"""Number of questions that the manipulated candidates of one table are divided among."""


@dataclass(frozen=True)
class ScoredTwice:
    """A candidate with its scores before and after a manipulation; None if it is unscored."""

    group: str
    before: float | None
    after: float | None


Scored = Mapping[str, Mapping[str, Sequence[ScoredTwice]]]
"""Manipulation -> aspect -> the candidates that it can be applied to, in corpus order."""


Moved = Mapping[TablePlace, tuple[CandidateTable, int]]
"""Place of an unchanged item -> the question with the manipulated item, and its place in that question."""


@dataclass(frozen=True)
class _Asked:
    """The questions to one judge in the aspects that share its calls."""

    entrant: Entrant
    shared: SharedGrouping
    """The questions about unchanged candidates."""
    items: Sequence[Item]
    """The items of one aspect after the other."""
    moved: Mapping[str, Moved]
    """Manipulation -> the questions about manipulated candidates."""


def probe_all(
    runner: JudgeRunner,
    setup: EvalSetup,
    entrants: Sequence[Entrant],
    probes: Sequence[Manipulation],
) -> tuple[dict[str, Scored], dict[str, Sequence[Judgement]]]:
    """Score all candidates with all judges, as they are and manipulated.

    Args:
        runner: The runner.
        setup: The data; its seed determines the wording of manipulations.
        entrants: The judges.
        probes: The manipulations.

    Returns:
        Judge -> its scores, and judge -> its judgements of the unchanged candidates.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: A judge cannot score anything at all.
    """
    items = {aspect.name: corpus_items(setup.corpus, aspect) for aspect in setup.aspects}
    asked = [
        _asked(entrant, shared, items, probes, setup.seed)
        for entrant in entrants
        for shared in grouped_by_aspect({name: one.judge for name, one in entrant.aspects.items()}, items)
    ]
    tables = [_tables(one) for one in asked]
    jobs = [_job(one, those) for one, those in zip(asked, tables, strict=True)]
    done = run_together(runner, jobs, "probes")
    for error in done.failed.values():
        raise error
    scored: dict[str, dict[str, dict[str, list[ScoredTwice]]]] = {}
    plain: dict[str, Sequence[Judgement]] = {}
    for one, those, results in zip(asked, tables, done.results, strict=True):
        told = {table.key: found for table, found in zip(those, results, strict=True)}
        own = scored.setdefault(one.entrant.name, {probe.name: {} for probe in probes})
        for probe in probes:
            own[probe.name] |= _twice(one, probe, told)
        grouping = one.shared.grouping
        as_they_are = [told[grouping.tables[table].key][place] for table, place in grouping.places]
        plain[one.entrant.name] = [*plain.get(one.entrant.name, ()), *as_they_are]
    return {name: own for name, own in scored.items()}, plain


def _asked(
    entrant: Entrant,
    shared: SharedGrouping,
    items: Mapping[str, Sequence[Item]],
    probes: Sequence[Manipulation],
    seed: int,
) -> _Asked:
    moved = {
        probe.name: dict(_reversed(shared.grouping) if probe.change is None else _changed(shared.grouping, probe, seed))
        for probe in probes
    }
    return _Asked(entrant, shared, [item for name in shared.aspects for item in items[name]], moved)


def _changed(
    grouping: Grouping, probe: Manipulation, seed: int
) -> Iterator[tuple[TablePlace, tuple[CandidateTable, int]]]:
    for number, table in enumerate(grouping.tables):
        texts = table.texts
        # In a question about several aspects, a candidate has the same text in all of them.
        first = {item.text: item for item in reversed(table.items)}
        new = {text: probe.applied(first[text], seed).text for text in texts}
        for turn in range(TURNS):
            mine = {text for text in texts[turn::TURNS] if new[text] != text}
            mixed = [replace(item, text=new[item.text]) if item.text in mine else item for item in table.items]
            question = CandidateTable(tuple(mixed))
            yield from (((number, place), (question, place)) for place, i in enumerate(table.items) if i.text in mine)


def _reversed(grouping: Grouping) -> Iterator[tuple[TablePlace, tuple[CandidateTable, int]]]:
    for number, table in enumerate(grouping.tables):
        stands = {text: place for place, text in enumerate(table.texts)}
        order = sorted(range(len(table.items)), key=lambda place: -stands[table.items[place].text])
        question = CandidateTable(tuple(table.items[place] for place in order))
        for new, old in enumerate(order):
            # The candidate in the middle keeps its place.
            if 2 * stands[table.items[old].text] != len(stands) - 1:
                yield (number, old), (question, new)


def _tables(one: _Asked) -> list[CandidateTable]:
    """All different questions."""
    tables = [*one.shared.grouping.tables, *(table for moved in one.moved.values() for table, _ in moved.values())]
    return list({table.key: table for table in tables}.values())


def _job(one: _Asked, tables: Sequence[CandidateTable]) -> PassJob[Sequence[Judgement]]:
    return PassJob(one.entrant.name, lambda table: one.shared.judge.judge(table.items), tables)


def _twice(one: _Asked, probe: Manipulation, told: Mapping[str, Sequence[Judgement]]) -> dict[str, list[ScoredTwice]]:
    """Aspect -> scores before and after; for a changed order, those at the later and at the earlier place."""
    found: dict[str, list[ScoredTwice]] = {name: [] for name in one.shared.aspects}
    moved, grouping = one.moved[probe.name], one.shared.grouping
    for item, unchanged in zip(one.items, grouping.places, strict=True):
        if unchanged not in moved:
            continue
        table, place = moved[unchanged]
        judge = one.entrant.aspects[item.aspect.name]
        before = judge.reported(told[grouping.tables[unchanged[0]].key][unchanged[1]], item.aspect)
        after = judge.reported(told[table.key][place], item.aspect)
        if probe.change is None and unchanged[1] < place:
            before, after = after, before
        found[item.aspect.name].append(ScoredTwice(item.group, before, after))
    return found
