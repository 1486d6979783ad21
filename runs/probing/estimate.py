"""Estimates the cost of a probe before any call is made, for each manipulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import corpus_items
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.estimates.dry_run import Estimate, Ledger, Stage, Target, dry_run_all
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.probing.measuring import probe_all
from debate_judge.runs.probing.perturbations import Manipulation
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.display import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLED = 48
"""Number of items, over all aspects, that each judge scores in the dry run with each manipulation."""

AS_THEY_ARE = "as they are"


def estimate_probe(
    target: Target, setup: EvalSetup, entrants: Sequence[Entrant], probes: Sequence[Manipulation]
) -> Estimate:
    """Estimate a probe.

    Args:
        target: The LM.
        setup: The data to score.
        entrants: The judges.
        probes: The manipulations.

    Raises:
        InputError: The spec names no LM, or the prices cannot be read.
    """
    few = sampled_groups(setup.corpus.groups, max(1, SAMPLED // len(setup.aspects)))
    sample = replace(setup, corpus=replace(setup.corpus, groups=few))
    extents = [extent(corpus_items(corpus, setup.aspects[0])) for corpus in (setup.corpus, sample.corpus)]
    names = [AS_THEY_ARE, *(probe.name for probe in probes)]
    steps = StepProgress("dry run", 3 * len(names))

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        copies = [_dry_run_copy(entrant) for entrant in entrants]
        # First without manipulation, so that calls in common are counted there.
        for name, these in [(AS_THEY_ARE, []), *((probe.name, [probe]) for probe in probes)]:
            with stage(name):
                probe_all(runner, sample, copies, these)
            steps.advance()

    with steps:
        return dry_run_all(target, {name: Stage.of(name, *extents) for name in names}, work)


def _dry_run_copy(entrant: Entrant) -> Entrant:
    aspects = {name: replace(one, judge=one.judge.dry_run_copy()) for name, one in entrant.aspects.items()}
    return replace(entrant, aspects=aspects)
