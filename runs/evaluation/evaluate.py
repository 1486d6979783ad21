"""`evaluate`: several judges score the same items in one pass.

Calls that several judges need are made once, because they share the store of replies: a debate of two rounds begins
like one of three rounds, and debates with different personas begin with the same call of the Scorer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.grouping import Grouping, Question, group_into_questions
from debate_judge.programs.judge import Item, Judgement, Unscored, corpus_items
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
from debate_judge.runs.evaluation.rows import EvaluatedJudge, JudgementRow
from debate_judge.runs.runner.judge_usage import JudgeUsage, stage
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner, PassJob, run_shared_pass

_SAMPLED_ITEMS = 96
"""Items that each judge scores in the dry run, over all aspects."""


@dataclass(frozen=True)
class Evaluation:
    """The rows of all judges."""

    judges: Mapping[str, EvaluatedJudge]
    """Name -> its rows, in the order of the entrants."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Name -> why the judge cannot score any item."""


@dataclass(frozen=True)
class _EntrantQuestions:
    """The questions to one entrant in one aspect."""

    entrant: Entrant
    aspect: str
    items: Sequence[Item]
    grouping: Grouping

    def job(self, usage: JudgeUsage) -> PassJob[Sequence[Judgement]]:
        """The questions, whose calls count as `usage`."""

        def ask(question: Question) -> Awaitable[Sequence[Judgement]]:
            return self.entrant.aspect_judges[self.aspect].judge.judge(question.items)

        return PassJob(self.entrant.name, ask, self.grouping.questions, usage)

    def rows(self, corpus: Corpus, judgements: Mapping[str, Sequence[Judgement]]) -> Iterator[JudgementRow]:
        """The rows of all candidates; `judgements` are by question."""
        ratings = {(g.id, c.id): c.ratings for g in corpus.groups for c in g.candidates}
        sources = {g.id: g.source_id for g in corpus.groups}
        for item, (number, index) in zip(self.items, self.grouping.positions, strict=True):
            judgement, name = judgements[self.grouping.questions[number].key][index], item.aspect.name
            score = self.entrant.aspect_judges[name].reported_score(judgement, item.aspect)
            raters = tuple(ratings[item.group, item.candidate].get(name, ()))
            key = (self.entrant.name, item.group, item.candidate, name)
            yield JudgementRow(*key, raters, score, judgement, sources[item.group])


def evaluate(
    runner: JudgeRunner,
    entrants: Sequence[Entrant],
    corpus: Corpus,
    aspects: Sequence[Aspect],
) -> Evaluation:
    """Score all candidates with all entrants.

    Args:
        runner: Its LM's store must be a `runs.runner.judge_usage.UsageByJudge`, or no usage is counted.
        entrants: The judges.
        corpus: The candidates and their ratings.
        aspects: The aspects to score.

    Raises:
        dspy.LMError: The LM cannot be used; replies so far are in its store.
        InputError: No judge can score anything.
    """
    items = {aspect.name: corpus_items(corpus, aspect) for aspect in aspects}
    usages = {entrant.name: JudgeUsage() for entrant in entrants}
    all_questions = [
        _EntrantQuestions(entrant, name, items[name], group_into_questions(member.judge, items[name]))
        for entrant in entrants
        for name, member in entrant.aspect_judges.items()
        if name in items
    ]
    jobs = [questions.job(usages[questions.entrant.name]) for questions in all_questions]
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
            distinct_items = sum(len({item.key for item in questions.items}) for questions in own_questions)
            judges[entrant.name] = _evaluated_judge(
                entrant, rows, corpus, aspects, usages[entrant.name], distinct_items
            )
    if judges and all(judge.note for judge in judges.values()):
        name, first = next(iter(judges.items()))
        raise InputError(f"no judge could score anything; {name} {first.note}")
    return Evaluation(judges, {name: one_line(error) for name, error in shared_pass.failed.items()})


def one_line(error: Exception) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split())


def _evaluated_judge(
    entrant: Entrant,
    rows: Sequence[JudgementRow],
    corpus: Corpus,
    aspects: Sequence[Aspect],
    usage: JudgeUsage,
    items: int,
) -> EvaluatedJudge:
    # The rows are in the order of shared calls, not in that of the aspects.
    order = {aspect.name: number for number, aspect in enumerate(aspects)}
    rows = sorted(rows, key=lambda row: order[row.aspect])
    unscored = [row.judgement for row in rows if isinstance(row.judgement, Unscored)]
    note = f"scored nothing: {unscored[0].detail}" if unscored and len(unscored) == len(rows) else None
    on_scale = all(aspect_judge.judge.on_scale for aspect_judge in entrant.aspect_judges.values())
    together = max(1, *(aspect_judge.judge.together for aspect_judge in entrant.aspect_judges.values()))
    return EvaluatedJudge(
        tuple(rows), usage, items, note, on_scale, together, entrant.lm.spec, compiled_on=entrant.overlap(corpus)
    )


# --- cost estimate ---


def estimate_evaluation(
    target: EstimateTarget, corpus: Corpus, aspects: Sequence[Aspect], entrants: Sequence[Entrant]
) -> Estimate:
    """Estimate an evaluation, with a row for each entrant. A call that several need is counted in the first of them."""
    sample = replace(corpus, groups=sampled_groups(corpus.groups, max(1, _SAMPLED_ITEMS // len(aspects))))
    # All aspects have the same texts, so the items of one say how the sample is scaled up.
    totals = [text_totals(corpus_items(part, aspects[0])) for part in (corpus, sample)]
    steps = StepProgress("dry run", 3 * len(entrants))

    def work(case: EstimateCase, runner: JudgeRunner, store: DryRunStore) -> None:
        # One after the other, so that a shared call is counted in the first row.
        for entrant in entrants:
            with stage(entrant.name):
                evaluate(runner, [entrant.dry_run_copy()], sample, aspects)
            steps.advance()

    names = [entrant.name for entrant in entrants]
    with steps:
        estimate = estimate_by_dry_run(target, {name: Stage.of(name, *totals) for name in names}, work)
    # A judge that makes no LM calls has a row, too.
    return replace(estimate, rows={name: estimate.rows.get(name, NO_CALLS) for name in names})
