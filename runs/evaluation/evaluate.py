"""`evaluate`: several judges score the same items in one pass, original and perturbed.

Calls that several judges need are made once, because they share the store of replies: a debate of two rounds begins
like one of three rounds, and debates with different personas begin with the same call of the Scorer.

For a judge that reads several candidates at once, a perturbed question has the same candidates in the same positions.
Every other candidate is perturbed in a first question and the rest in a second one, so that perturbed candidates are
among original ones. If all were perturbed, a judge that compares candidates would show no effect.
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
from debate_judge.runs.estimates.dry_run import (
    NO_CALLS,
    DryRunStore,
    Estimate,
    EstimateTarget,
    Stage,
    estimate_by_dry_run,
)
from debate_judge.runs.estimates.items import sampled_groups, text_totals
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.evaluation.perturbations import Perturbation
from debate_judge.runs.evaluation.rows import EvaluatedJudge, JudgementRow
from debate_judge.runs.runner.judge_usage import JudgeUsage, stage
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner, PassJob, run_shared_pass

_SAMPLED_ITEMS = 96
"""Items that each judge scores in the dry run, over all aspects."""

_PERTURBED_PER_QUESTION = 2
"""Perturbed questions for each original one: each perturbs every second candidate."""

_ItemInQuestion = tuple[Question, int]
"""A question and the index of an item in it."""


@dataclass(frozen=True)
class Evaluation:
    """The rows of all judges."""

    judges: Mapping[str, EvaluatedJudge]
    """Name -> its rows, in the order of the entrants."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Name -> why the judge cannot score any item."""


@dataclass(frozen=True)
class _EntrantQuestions:
    """The questions to one entrant, in aspects that share calls."""

    entrant: Entrant
    shared: SharedGrouping
    """The questions about original candidates."""
    perturbed: Mapping[str, Mapping[ItemPosition, _ItemInQuestion]]
    """Perturbation -> position of the original item -> the perturbed item in its question."""

    def jobs(self, runner: JudgeRunner, usage: JudgeUsage) -> list[PassJob[Sequence[Judgement]]]:
        """One job for the original candidates, and one for the perturbed ones, whose calls do not count as `usage`."""
        name, lm = self.entrant.name, self.entrant.lm(runner.lm)
        perturbed = {question.key: question for items in self.perturbed.values() for question, _ in items.values()}

        def ask(question: Question) -> Awaitable[Sequence[Judgement]]:
            return self.shared.judge.judge(question.items)

        return [
            PassJob(name, ask, self.shared.grouping.questions, usage, lm),
            PassJob(name, ask, tuple(perturbed.values()), None, lm),
        ]

    def rows(self, corpus: Corpus, judgements: Mapping[str, Sequence[Judgement]]) -> Iterator[JudgementRow]:
        """The rows of the original candidates, then those of each perturbation; `judgements` are by question."""
        ratings = {(g.id, c.id): c.ratings for g in corpus.groups for c in g.candidates}
        sources = {g.id: g.source_id for g in corpus.groups}
        grouping = self.shared.grouping
        original = {(number, index): (grouping.questions[number], index) for number, index in grouping.positions}
        for perturbation, items in {"": original, **self.perturbed}.items():
            for item, original_position in zip(self.shared.items, grouping.positions, strict=True):
                if original_position not in items:
                    continue
                question, position = items[original_position]
                judgement, name = judgements[question.key][position], item.aspect.name
                score = self.entrant.aspect_judges[name].reported_score(judgement, item.aspect)
                raters = tuple(ratings[item.group, item.candidate].get(name, ()))
                key = (self.entrant.name, item.group, item.candidate, name)
                yield JudgementRow(*key, raters, score, judgement, perturbation, position, sources[item.group])


def evaluate(
    runner: JudgeRunner,
    entrants: Sequence[Entrant],
    corpus: Corpus,
    aspects: Sequence[Aspect],
    perturbations: Sequence[Perturbation] = (),
    seed: int = 0,
) -> Evaluation:
    """Score all candidates with all entrants.

    Args:
        runner: Its LM's store must be a `runs.runner.judge_usage.UsageByJudge`, or no usage is counted.
        entrants: The judges.
        corpus: The candidates and their ratings.
        aspects: The aspects to score.
        perturbations: Perturbations under which the candidates are scored as well.
        seed: Seed of the choice among templates.

    Raises:
        dspy.LMError: The LM cannot be used; replies so far are in its store.
        InputError: No judge can score anything.
    """
    items = {aspect.name: corpus_items(corpus, aspect) for aspect in aspects}
    usages = {entrant.name: JudgeUsage() for entrant in entrants}
    all_questions = [
        _EntrantQuestions(
            entrant,
            shared,
            {each.name: dict(_perturbed_items(shared.grouping, each, seed)) for each in perturbations},
        )
        for entrant in entrants
        for shared in group_by_aspect({name: member.judge for name, member in entrant.aspect_judges.items()}, items)
    ]
    jobs = [job for questions in all_questions for job in questions.jobs(runner, usages[questions.entrant.name])]
    shared_pass = run_shared_pass(runner, jobs, "judges")
    if entrants and len(shared_pass.failed) == len(entrants):
        raise next(iter(shared_pass.failed.values()))
    judgements: dict[str, dict[str, Sequence[Judgement]]] = {entrant.name: {} for entrant in entrants}
    for job, results in zip(jobs, shared_pass.results, strict=True):
        # A judge that failed has no results.
        judgements[job.judge] |= dict(zip((question.key for question in job.items), results, strict=False))
    judges: dict[str, EvaluatedJudge] = {}
    for entrant in entrants:
        if entrant.name not in shared_pass.failed:
            own_questions = [questions for questions in all_questions if questions.entrant is entrant]
            rows = [row for questions in own_questions for row in questions.rows(corpus, judgements[entrant.name])]
            distinct_items = sum(len({item.key for item in questions.shared.items}) for questions in own_questions)
            judges[entrant.name] = _evaluated_judge(entrant, rows, aspects, usages[entrant.name], distinct_items)
    if judges and all(judge.note for judge in judges.values()):
        name, first = next(iter(judges.items()))
        raise InputError(f"no judge could score anything; {name} {first.note}")
    return Evaluation(judges, {name: one_line(error) for name, error in shared_pass.failed.items()})


def one_line(error: Exception) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split())


def _evaluated_judge(
    entrant: Entrant, rows: Sequence[JudgementRow], aspects: Sequence[Aspect], usage: JudgeUsage, items: int
) -> EvaluatedJudge:
    # The rows are in the order of shared calls, not in that of the aspects.
    order = {aspect.name: number for number, aspect in enumerate(aspects)}
    original = sorted((row for row in rows if not row.perturbation), key=lambda row: order[row.aspect])
    unscored = [row.judgement for row in original if isinstance(row.judgement, Unscored)]
    note = f"scored nothing: {unscored[0].detail}" if unscored and len(unscored) == len(original) else None
    on_scale = all(aspect_judge.judge.on_scale for aspect_judge in entrant.aspect_judges.values())
    perturbed = tuple(row for row in rows if row.perturbation)
    return EvaluatedJudge(tuple(original), perturbed, usage, items, note, on_scale)


# --- perturbed questions ---


def _perturbed_items(
    grouping: Grouping, perturbation: Perturbation, seed: int
) -> Iterator[tuple[ItemPosition, _ItemInQuestion]]:
    """The position of each original item that the perturbation changes, with the perturbed item in its question."""
    for number, question in enumerate(grouping.questions):
        if perturbation.edit is None:
            yield from _reversed_order(number, question)
            continue
        # In a question about several aspects, a candidate has the same text in all of them.
        first = {item.text: item for item in reversed(question.items)}
        edited = {text: perturbation.apply(first[text], seed).text for text in question.texts}
        for offset in range(_PERTURBED_PER_QUESTION):
            changed = {text for text in question.texts[offset::_PERTURBED_PER_QUESTION] if edited[text] != text}
            items = [replace(item, text=edited[item.text]) if item.text in changed else item for item in question.items]
            perturbed = Question(tuple(items))
            yield from (((number, i), (perturbed, i)) for i, item in enumerate(question.items) if item.text in changed)


def _reversed_order(number: int, question: Question) -> Iterator[tuple[ItemPosition, _ItemInQuestion]]:
    rank = {text: i for i, text in enumerate(question.texts)}
    order = sorted(range(len(question.items)), key=lambda i: -rank[question.items[i].text])
    perturbed = Question(tuple(question.items[i] for i in order))
    for new, old in enumerate(order):
        # The candidate in the middle keeps its position.
        if 2 * rank[question.items[old].text] != len(rank) - 1:
            yield (number, old), (perturbed, new)


# --- cost estimate ---


def estimate_evaluation(
    target: EstimateTarget,
    corpus: Corpus,
    aspects: Sequence[Aspect],
    entrants: Sequence[Entrant],
    perturbations: Sequence[Perturbation] = (),
    seed: int = 0,
) -> Estimate:
    """Estimate an evaluation: a row for each entrant, and one for each perturbation with all entrants.

    A call that several rows need is counted in the first of them.
    """
    sample = replace(corpus, groups=sampled_groups(corpus.groups, max(1, _SAMPLED_ITEMS // len(aspects))))
    # All aspects have the same texts, so the items of one say how the sample is scaled up.
    totals = [text_totals(corpus_items(part, aspects[0])) for part in (corpus, sample)]
    # One after the other, so that a shared call is counted in the first row.
    rows: list[tuple[str, Sequence[Entrant], Sequence[Perturbation]]] = [(e.name, [e], []) for e in entrants]
    rows += [(f"probe {perturbation.name}", entrants, [perturbation]) for perturbation in perturbations]
    steps = StepProgress("dry run", 3 * len(rows))

    def work(case: EstimateCase, runner: JudgeRunner, store: DryRunStore) -> None:
        for name, row_entrants, row_perturbations in rows:
            copies = [entrant.dry_run_copy() for entrant in row_entrants]
            with stage(name):
                evaluate(runner, copies, sample, aspects, row_perturbations, seed)
            steps.advance()

    with steps:
        estimate = estimate_by_dry_run(target, {name: Stage.of(name, *totals) for name, _, _ in rows}, work)
    # A judge that makes no LM calls has a row, too.
    return replace(estimate, rows={name: estimate.rows.get(name, NO_CALLS) for name, _, _ in rows})
