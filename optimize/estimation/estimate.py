"""What a compile would take before anything is spent, by carrying out its plan on a sample of each part.

Executed are the compile's own tuning, search and held-out scoring, with an LM for dry runs (`programs.dry_run`). Two
more things decide what is asked and are not known beforehand: what the tuner writes, and which points the search
visits and chooses. In the expected case they are what comes of the sample; in the lower and the upper case they are
bounds, put in the place of tuner and search.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from debate_judge.optimize.context import Run
from debate_judge.optimize.estimation.cases import run_of
from debate_judge.optimize.estimation.sample import sample_of, stages_of
from debate_judge.optimize.job import compile_judge, split
from debate_judge.optimize.rated_data import load
from debate_judge.optimize.reflection import REFLECTION, reflection_lm
from debate_judge.optimize.search.study import breadth_of
from debate_judge.optimize.settings import Settings
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.estimates.dry_run import Estimate, Ledger, Target, dry_run_all, reply_tokens
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.runner.display import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner

NOTE = (
    "Search: the starting points and {suggestions} suggestions of the sampler, each for all aspects, on dev and train, "
    "{most} (--effort {effort}). "
    "All but the untuned single call is pruned after the first sources (lower), or nothing is (upper), or what is "
    "pruned on the sample (expected). The starting points are always tried; the rest is whatever takes most calls "
    "(upper), nothing (lower), or what the sampler suggests on the sample (expected). Held-out: chosen is the "
    "cheapest point (lower), the dearest (upper), or the one that the search chooses on the sample (expected)."
)

NOTE_ON_FOLDS = (
    "Folds (by default with few sources): the judge is tuned twice, once on each half of the sources, and searched for "
    "each fold and for the exported judge; what they ask alike is asked once. --folds 1 measures by a single split."
)

LEARNING_NOTE = "Tuning and held-out include the steps of the learning curve."


def estimate_compile(settings: Settings, personas: Mapping[str, str], lengths: str = "") -> Estimate:
    """Estimate a compile, stage by stage; nothing is written.

    Args:
        settings: As for the compile.
        personas: Name -> text of the personas that a debate may be given.
        lengths: The value of `--estimate`.

    Raises:
        InputError: Settings or data cannot be used.
    """
    plan = split(rated := load(settings), settings, personas)
    target = Target(
        settings.lm,
        settings.api_base,
        replies_folder(settings.store, settings.lm),
        {"temperature": settings.temperature, "max_tokens": settings.max_tokens},
        limits(settings),
        reply_tokens(lengths),
        {REFLECTION: settings.reflection_lm or settings.lm},
    )
    sample = sample_of(plan)
    stages = stages_of(plan, sample)
    steps = StepProgress("dry run", 3)

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        reflection = reflection_lm(settings, runner.lm, DryRunEngine(case))
        run = run_of(case, Run.of(sample, runner, None, reflection), ledger)
        compile_judge(settings, personas, rated, opened=lambda plan: nullcontext(run))
        steps.advance()

    with steps, _without_progress_lines():
        return dry_run_all(target, stages, work, _row, remember=plan.data.folds is not None)


def notes(settings: Settings) -> list[str]:
    """What the figures assume about the search."""
    breadth = breadth_of(settings.effort, settings.trials)
    most = f"at most {breadth.candidates:,} candidates of each aspect"
    search = NOTE.format(suggestions=breadth.suggestions, most=most, effort=settings.effort)
    folds = [NOTE_ON_FOLDS] if settings.folds != 1 else []
    return [search, *folds, *([LEARNING_NOTE] if settings.learning_curve else [])]


def _row(stage: str, role: str) -> str:
    return f"{stage}, {'proposals' if role == REFLECTION else 'evaluations'}" if stage.endswith("tuning") else stage


@contextmanager
def _without_progress_lines() -> Iterator[None]:
    """Keep back what a compile says about its progress: nothing of it happens."""
    logger = logging.getLogger("debate_judge.optimize")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
