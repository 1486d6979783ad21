"""What an evaluation would take, judge by judge, before anything is spent: a dry run of it on a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import corpus_items
from debate_judge.runs.estimates.dry_run import NOTHING, Estimate, Ledger, Stage, Target, dry_run_all
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.evaluation.evaluate import evaluate
from debate_judge.runs.evaluation.perturbations import Manipulation
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.display import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLED = 96
"""Items that each judge scores in the dry run, over all aspects."""


def estimate_evaluation(
    target: Target,
    corpus: Corpus,
    aspects: Sequence[Aspect],
    entrants: Sequence[Entrant],
    probes: Sequence[Manipulation] = (),
    seed: int = 0,
) -> Estimate:
    """Estimate an evaluation: a row for each judge, and one for each manipulation by all judges together. A call that
    an earlier row needs too is counted there alone.
    """
    sample = replace(corpus, groups=sampled_groups(corpus.groups, max(1, SAMPLED // len(aspects))))
    # All aspects have the same texts, so one of them tells how the sample stands for all items.
    extents = [extent(corpus_items(one, aspects[0])) for one in (corpus, sample)]
    # One after the other, so that shared calls are those of the first.
    rows: list[tuple[str, Sequence[Entrant], Sequence[Manipulation]]] = [(one.name, [one], []) for one in entrants]
    rows += [(f"probe {probe.name}", entrants, [probe]) for probe in probes]
    steps = StepProgress("dry run", 3 * len(rows))

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        for name, judges, applied in rows:
            with stage(name):
                evaluate(runner, [one.dry_run_copy() for one in judges], sample, aspects, applied, seed)
            steps.advance()

    with steps:
        found = dry_run_all(target, {name: Stage.of(name, *extents) for name, _, _ in rows}, work)
    # A judge that asks no LM has its row too.
    return replace(found, rows={name: found.rows.get(name, NOTHING) for name, _, _ in rows})
