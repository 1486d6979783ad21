"""`evaluate`: several judges score the same items in one pass.

Calls that several judges need are made once, because they share the store of replies: a debate of two rounds begins
like one of three rounds, and debates with different personas begin with the same call of the Scorer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.grouping import Grouping, Question, group_into_questions
from debate_judge.programs.judge import Judgement, Unscored, corpus_items
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.results import EvaluatedJudge
from debate_judge.runs.estimates import (
    NO_CALLS,
    Estimate,
    EstimateTarget,
    Stage,
    estimate_by_dry_run,
    sampled_groups,
    text_totals,
)
from debate_judge.runs.runner.judge_usage import JudgeUsage, stage
from debate_judge.runs.runner.progress import RunProgress
from debate_judge.runs.runner.runner import JudgeRunner, PassJob, group_scores, run_shared_pass

_SAMPLED_ITEMS = 96
"""Items that each judge scores in the dry run, over all aspects."""


def evaluate(
    runner: JudgeRunner,
    entrants: Sequence[Entrant],
    corpus: Corpus,
    aspects: Sequence[Aspect],
) -> tuple[dict[str, EvaluatedJudge], dict[str, str]]:
    """Score all candidates with all entrants.

    Args:
        runner: Its LM's store must be a `runs.runner.judge_usage.UsageByJudge`, or no usage is counted.
        entrants: The judges.
        corpus: The candidates and their ratings.
        aspects: The aspects to score.

    Returns:
        Name -> evaluated judge, in the order of the entrants; and name -> why a judge cannot score any item.

    Raises:
        dspy.LMError: The LM cannot be used; replies so far are in its store.
        InputError: No judge can score anything.
    """
    usages = {entrant.name: JudgeUsage() for entrant in entrants}
    asked = [(entrant, aspect) for entrant in entrants for aspect in aspects]
    items = {aspect.name: corpus_items(corpus, aspect) for aspect in aspects}
    groupings = [group_into_questions(e.aspect_judges[a.name].judge, items[a.name]) for e, a in asked]

    def job(entrant: Entrant, aspect: Aspect, grouping: Grouping) -> PassJob[Sequence[Judgement]]:
        def ask(question: Question) -> Awaitable[Sequence[Judgement]]:
            return entrant.aspect_judges[aspect.name].judge.judge(question.items)

        return PassJob(entrant.name, ask, grouping.questions, usages[entrant.name])

    jobs = [job(*pair, grouping) for pair, grouping in zip(asked, groupings, strict=True)]
    shared_pass = run_shared_pass(runner, jobs, "judges")
    if entrants and len(shared_pass.failed) == len(entrants):
        raise next(iter(shared_pass.failed.values()))
    judgements: dict[str, dict[str, list[Judgement]]] = {entrant.name: {} for entrant in entrants}
    for (entrant, aspect), grouping, answers in zip(asked, groupings, shared_pass.results, strict=True):
        if entrant.name not in shared_pass.failed:
            judgements[entrant.name][aspect.name] = grouping.by_item(answers)
    distinct = sum(len({item.key for item in items[aspect.name]}) for aspect in aspects)
    judges = {
        entrant.name: _evaluated_judge(
            entrant, judgements[entrant.name], corpus, aspects, usages[entrant.name], distinct
        )
        for entrant in entrants
        if entrant.name not in shared_pass.failed
    }
    if judges and all(judge.note for judge in judges.values()):
        name, first = next(iter(judges.items()))
        raise InputError(f"no judge could score anything; {name} {first.note}")
    return judges, {name: one_line(error) for name, error in shared_pass.failed.items()}


def one_line(error: Exception) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split())


def _evaluated_judge(
    entrant: Entrant,
    judgements: Mapping[str, Sequence[Judgement]],
    corpus: Corpus,
    aspects: Sequence[Aspect],
    usage: JudgeUsage,
    items: int,
) -> EvaluatedJudge:
    judges = entrant.aspect_judges
    answers = [judgement for of_aspect in judgements.values() for judgement in of_aspect]
    unscored = [judgement for judgement in answers if isinstance(judgement, Unscored)]
    return EvaluatedJudge(
        {a.name: group_scores(corpus, a, judgements[a.name], judges[a.name].granularity) for a in aspects},
        judgements,
        usage,
        items,
        note=f"scored nothing: {unscored[0].detail}" if unscored and len(unscored) == len(answers) else None,
        on_scale=all(member.judge.on_scale for member in judges.values()),
        together=max(1, *(member.judge.together for member in judges.values())),
        lm=entrant.lm.spec,
        compiled_on=entrant.overlap(corpus),
    )


# --- cost estimate ---


def estimate_evaluation(
    target: EstimateTarget, corpus: Corpus, aspects: Sequence[Aspect], entrants: Sequence[Entrant]
) -> Estimate:
    """Estimate an evaluation, with a row for each entrant. A call that several need is counted in the first of them."""
    sample = replace(corpus, groups=sampled_groups(corpus.groups, max(1, _SAMPLED_ITEMS // len(aspects))))
    # All aspects have the same texts, so the items of one say how the sample is scaled up.
    totals = [text_totals(corpus_items(part, aspects[0])) for part in (corpus, sample)]

    def work(case: EstimateCase, runner: JudgeRunner) -> None:
        # One after the other, so that a shared call is counted in the first row.
        for entrant in entrants:
            with stage(entrant.name):
                evaluate(runner, [entrant.dry_run_copy()], sample, aspects)
            steps.advance()

    names = [entrant.name for entrant in entrants]
    with RunProgress() as progress, progress.track("dry run", 2 * len(entrants)) as steps:
        estimate = estimate_by_dry_run(target, {name: Stage.of(name, *totals) for name in names}, work)
    # A judge that makes no LM calls has a row, too.
    return replace(estimate, rows={name: estimate.rows.get(name, NO_CALLS) for name in names})
