"""`evaluate`: several judges on the same items in one pass, the items as they are and manipulated.

Calls that several judges need are made once, by the store of replies: a debate of two rounds is the beginning of the
one of three, and debates of all personas open in the same way.

A judge that reads several candidates at once is asked about the same ones in the same places when they are manipulated.
Of every two neighbours, one is manipulated in a first question and the other in a second one, so that a manipulated
candidate is among unchanged ones. If all were manipulated, a judge that compares candidates would show no effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.compiled import SharedGrouping, group_by_aspect
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.grouping import Grouping, ItemPosition, Question
from debate_judge.programs.judge import Judgement, Unscored, corpus_items
from debate_judge.runs.estimates.dry_run import NOTHING, Estimate, EstimateTarget, Ledger, Stage, dry_run_all
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.evaluation.perturbations import Perturbation
from debate_judge.runs.evaluation.rows import EvaluatedJudge, JudgementRow
from debate_judge.runs.runner.billing import JudgeUsage, stage
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner, PassJob, run_shared_pass

SAMPLED = 96
"""Items that each judge scores in the dry run, over all aspects."""

_TURNS = 2
"""Number of questions that the manipulated candidates of one table are divided among."""

_Moved = Mapping[ItemPosition, tuple[Question, int]]
"""Place of an unchanged item -> the question with the manipulated item, and its place in that question."""

_Moves = Iterator[tuple[ItemPosition, tuple[Question, int]]]


@dataclass(frozen=True)
class Evaluation:
    """What the judges made of the items."""

    judges: Mapping[str, EvaluatedJudge]
    """Name -> its rows, in the order in which the judges were given."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Name -> why it cannot score anything at all."""


@dataclass(frozen=True)
class _EntrantQuestions:
    """The questions to one judge in the aspects that share its calls."""

    entrant: Entrant
    shared: SharedGrouping
    """The questions about unchanged candidates."""
    moved: Mapping[str, _Moved]
    """Manipulation -> the questions about manipulated candidates."""

    def jobs(self, runner: JudgeRunner, usage: JudgeUsage) -> list[PassJob[Sequence[Judgement]]]:
        """About the candidates as they are, and about the manipulated ones, which are no cost of the judge."""
        name, lm = self.entrant.name, self.entrant.lm(runner.lm)
        altered = {table.key: table for moved in self.moved.values() for table, _ in moved.values()}

        def ask(table: Question) -> Awaitable[Sequence[Judgement]]:
            return self.shared.judge.judge(table.items)

        return [
            PassJob(name, ask, self.shared.grouping.questions, usage, lm),
            PassJob(name, ask, tuple(altered.values()), None, lm),
        ]

    def rows(self, corpus: Corpus, judged: Mapping[str, Sequence[Judgement]]) -> Iterator[JudgementRow]:
        """Of the candidates as they are, then manipulation by manipulation."""
        ratings = {(g.id, c.id): c.ratings for g in corpus.groups for c in g.candidates}
        sources = {g.id: g.source_id for g in corpus.groups}
        grouping = self.shared.grouping
        plain = {place: (grouping.questions[place[0]], place[1]) for place in grouping.positions}
        for probe, moved in {"": plain, **self.moved}.items():
            for item, unchanged in zip(self.shared.items, grouping.positions, strict=True):
                if unchanged not in moved:
                    continue
                table, place = moved[unchanged]
                judgement, name = judged[table.key][place], item.aspect.name
                score = self.entrant.aspects[name].reported_score(judgement, item.aspect)
                raters = tuple(ratings[item.group, item.candidate].get(name, ()))
                where = (self.entrant.name, item.group, item.candidate, name)
                yield JudgementRow(*where, raters, score, judgement, probe, place, sources[item.group])


def evaluate(
    runner: JudgeRunner,
    entrants: Sequence[Entrant],
    corpus: Corpus,
    aspects: Sequence[Aspect],
    probes: Sequence[Perturbation] = (),
    seed: int = 0,
) -> Evaluation:
    """Judge all candidates with all judges.

    Args:
        runner: Its LM's store must be a `runs.runner.billing.UsageByJudge`, or nothing is charged.
        entrants: The judges.
        corpus: What is judged.
        aspects: In which aspects.
        probes: Manipulations under which the candidates are judged as well.
        seed: Of the wording of manipulations.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: No judge can score anything.
    """
    items = {aspect.name: corpus_items(corpus, aspect) for aspect in aspects}
    usages = {entrant.name: JudgeUsage() for entrant in entrants}
    requests = [
        _EntrantQuestions(
            entrant, shared, {probe.name: dict(_changed(shared.grouping, probe, seed)) for probe in probes}
        )
        for entrant in entrants
        for shared in group_by_aspect({name: request.judge for name, request in entrant.aspects.items()}, items)
    ]
    jobs = [job for request in requests for job in request.jobs(runner, usages[request.entrant.name])]
    done = run_shared_pass(runner, jobs, "judges")
    if entrants and len(done.failed) == len(entrants):
        raise next(iter(done.failed.values()))
    judged: dict[str, dict[str, Sequence[Judgement]]] = {entrant.name: {} for entrant in entrants}
    for job, results in zip(jobs, done.results, strict=True):
        # Of a judge that failed there are none.
        judged[job.owner] |= dict(zip((question.key for question in job.items), results, strict=False))
    judges: dict[str, EvaluatedJudge] = {}
    for entrant in entrants:
        if entrant.name not in done.failed:
            entrant_requests = [request for request in requests if request.entrant is entrant]
            rows = [row for request in entrant_requests for row in request.rows(corpus, judged[entrant.name])]
            different = sum(len({item.key for item in request.shared.items}) for request in entrant_requests)
            judges[entrant.name] = _evaluated(entrant, rows, aspects, usages[entrant.name], different)
    if judges and all(request.note for request in judges.values()):
        name, first = next(iter(judges.items()))
        raise InputError(f"no judge could score anything; {name} {first.note}")
    return Evaluation(judges, {name: problem(error) for name, error in done.failed.items()})


def problem(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())


def _evaluated(
    entrant: Entrant, rows: Sequence[JudgementRow], aspects: Sequence[Aspect], usage: JudgeUsage, items: int
) -> EvaluatedJudge:
    # Aspects that share calls stand beside each other.
    order = {aspect.name: number for number, aspect in enumerate(aspects)}
    plain_rows = sorted((row for row in rows if not row.probe), key=lambda row: order[row.aspect])
    missing = [row.judgement for row in plain_rows if isinstance(row.judgement, Unscored)]
    note = f"scored nothing: {missing[0].detail}" if missing and len(missing) == len(plain_rows) else None
    on_scale = all(judge.judge.on_scale for judge in entrant.aspects.values())
    return EvaluatedJudge(tuple(plain_rows), tuple(row for row in rows if row.probe), usage, items, note, on_scale)


# --- manipulated candidates ---


def _changed(grouping: Grouping, probe: Perturbation, seed: int) -> _Moves:
    for number, table in enumerate(grouping.questions):
        if probe.change is None:
            yield from _reversed(number, table)
            continue
        texts = table.texts
        # In a question about several aspects, a candidate has the same text in all of them.
        first = {item.text: item for item in reversed(table.items)}
        new = {text: probe.applied(first[text], seed).text for text in texts}
        for turn in range(_TURNS):
            mine = {text for text in texts[turn::_TURNS] if new[text] != text}
            mixed = [replace(item, text=new[item.text]) if item.text in mine else item for item in table.items]
            question = Question(tuple(mixed))
            yield from (((number, place), (question, place)) for place, i in enumerate(table.items) if i.text in mine)


def _reversed(number: int, table: Question) -> _Moves:
    place_of = {text: place for place, text in enumerate(table.texts)}
    order = sorted(range(len(table.items)), key=lambda place: -place_of[table.items[place].text])
    question = Question(tuple(table.items[place] for place in order))
    for new, old in enumerate(order):
        # The candidate in the middle keeps its place.
        if 2 * place_of[table.items[old].text] != len(place_of) - 1:
            yield (number, old), (question, new)


# --- before anything is spent ---


def estimate_evaluation(
    target: EstimateTarget,
    corpus: Corpus,
    aspects: Sequence[Aspect],
    entrants: Sequence[Entrant],
    probes: Sequence[Perturbation] = (),
    seed: int = 0,
) -> Estimate:
    """Estimate an evaluation: a row for each judge, and one for each manipulation by all judges together.

    A call that an earlier row needs too is counted there alone.
    """
    sample = replace(corpus, groups=sampled_groups(corpus.groups, max(1, SAMPLED // len(aspects))))
    # All aspects have the same texts, so one of them tells how the sample stands for all items.
    extents = [extent(corpus_items(each, aspects[0])) for each in (corpus, sample)]
    # One after the other, so that shared calls are those of the first.
    rows: list[tuple[str, Sequence[Entrant], Sequence[Perturbation]]] = [(each.name, [each], []) for each in entrants]
    rows += [(f"probe {probe.name}", entrants, [probe]) for probe in probes]
    steps = StepProgress("dry run", 3 * len(rows))

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        for name, judges, applied in rows:
            with stage(name):
                evaluate(runner, [each.dry_run_copy() for each in judges], sample, aspects, applied, seed)
            steps.advance()

    with steps:
        estimate = dry_run_all(target, {name: Stage.of(name, *extents) for name, _, _ in rows}, work)
    # A judge that asks no LM has its row too.
    return replace(estimate, rows={name: estimate.rows.get(name, NOTHING) for name, _, _ in rows})
