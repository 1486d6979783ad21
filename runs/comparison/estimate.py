"""What a comparison would take, judge by judge, before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from debate_judge.programs.compiled import AspectJudge
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import corpus_items
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.comparison.scoring import score_all
from debate_judge.runs.estimates.dry_run import NOTHING, Estimate, Ledger, Stage, Target, dry_run_all
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.display import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLED = 96
"""Items that each judge scores in the dry run, over all aspects."""


def estimate_comparison(target: Target, setup: EvalSetup, entrants: Sequence[Entrant]) -> Estimate:
    """Estimate a comparison; a call that an earlier judge makes too is counted there alone.

    Args:
        target: The LM that would be asked.
        setup: What would be scored.
        entrants: The judges, in the order in which they are run.

    Raises:
        InputError: The spec names no LM, or the prices cannot be read.
    """
    few = sampled_groups(setup.corpus.groups, max(1, SAMPLED // len(setup.aspects)))
    sample = replace(setup, corpus=replace(setup.corpus, groups=few))
    # All aspects have the same texts, so one of them tells how the sample stands for all items.
    extents = [extent(corpus_items(corpus, setup.aspects[0])) for corpus in (setup.corpus, sample.corpus)]
    steps = StepProgress("dry run", 3 * len(entrants))

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        for entrant in entrants:
            # One after the other, so that shared calls are the first one's.
            with stage(entrant.name):
                score_all(runner, sample, [_dry_run_copy(entrant)])
            steps.advance()

    with steps:
        found = dry_run_all(target, {one.name: Stage.of(one.name, *extents) for one in entrants}, work)
    # A judge that asks no LM has its row too.
    return replace(found, rows={one.name: found.rows.get(one.name, NOTHING) for one in entrants})


def _dry_run_copy(entrant: Entrant) -> Entrant:
    aspects = {name: AspectJudge(one.judge.dry_run_copy(), one.granularity) for name, one in entrant.aspects.items()}
    return replace(entrant, aspects=aspects)
