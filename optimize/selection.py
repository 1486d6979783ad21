"""The search over the tuned judges, and the choice among them, on train and dev."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean

from debate_judge.data.agreement.decisions import POOLED
from debate_judge.data.calibration import Calibration, fit_calibration
from debate_judge.data.splits import Splits
from debate_judge.optimize.plan import CompileRun
from debate_judge.optimize.search import ChoiceScores, CrossFittedJudge, Outcome, Point, Search, describe_point
from debate_judge.optimize.tuning import TunedJudges, fixed_granularity
from debate_judge.programs.judge import AspectJudge, CompiledJudge
from debate_judge.runs.tracking import CHOICE_METRIC, Tracker

logger = logging.getLogger(__name__)


def search(run: CompileRun, tuned: TunedJudges, splits: Splits) -> Search:
    """The finished search on train and dev among the judges that were tuned on train.

    Raises:
        InputError: The study cannot be stored.
        dspy.LMError: The LM failed for good, or too many of the train and dev items have no score.
    """
    plan, settings = run.plan, run.plan.settings
    exported = splits is plan.splits
    run.runner.progress.objective = settings.metric_choice.absolute_measure or "agreement"
    purpose = "the judge that is exported" if exported else "a fold"
    sources = f"{splits.train.sources} train, {splits.dev.sources} dev, {splits.held_out.sources} held-out"
    logger.info("%s: searching knowledge, rounds, persona and Tie-breaker (sources: %s)", purpose, sources)
    return Search(
        aspects={
            aspect.name: ChoiceScores(
                tuned.variants[aspect.name],
                plan.choice_corpora(splits, aspect),
                aspect,
                run.runner,
                label=aspect.name,
                fixed_granularity=fixed_granularity(plan, aspect),
            )
            for aspect in plan.aspects
        },
        space=tuned.space,
        limits=plan.search_limits,
        objective=plan.objective,
        level="sample" if plan.objective in POOLED else plan.level,
        absolute_scales=plan.absolute_scales,
        max_unscored=settings.max_unscored,
        seed=settings.seed,
        study_name=plan.identity,
        # The study of a fold is in memory, and after a stop is repeated from the stored replies.
        storage=Path(settings.store) / "studies" / f"{plan.identity}.log" if exported and run.tracker else None,
        at_most=run.at_most,
        on_trial=partial(_log_trial, run, run.tracker if exported else None),
    ).optimize()


def choose(run: CompileRun, found: Search, splits: Splits) -> CompiledJudge:
    """The judges that a search chose, calibrated.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    calibrations = run.each(partial(_calibration, found=found, splits=splits), list(found.chosen))
    judges = {}
    for (aspect, chosen), calibration in zip(found.chosen.items(), calibrations, strict=True):
        point, scores = chosen.point, found.aspects[aspect]
        judge = scores.variants[point.variant].judge.with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
        judges[aspect] = AspectJudge(judge, scores.granularity(point), calibration)
    return CompiledJudge(run.plan.corpus.task, judges)


def _calibration(run: CompileRun, name: str, *, found: Search, splits: Splits) -> Calibration | None:
    """The map from the chosen judge's scores to the raters' scale; None for a judge of pairs, whose outcomes are not
    those of single texts.

    It is fitted on train and dev, with the scores that the judge was chosen by. Those of a train source come from
    judges tuned without it: a judge is closer to ratings that it has seen, and a map fitted to such scores would be too
    steep. Sources whose ratings are all equal rank nothing, so that judges cannot be chosen by them; for the map they
    are as good as others, and are scored here.
    """
    outcome, scores = found.chosen[name], found.aspects[name]
    point, aspect, chosen = outcome.point, scores.aspect, scores.variants[outcome.point.variant]
    if chosen.judge.compares_pairs:
        return None
    parts = run.plan.choice_corpora(splits, aspect, discriminating=False)
    # No judge was tuned on these groups: only groups whose ratings differ are examples.
    keys = [(name, group.id) for group in parts["train"].groups]
    cross_fitted = CrossFittedJudge(chosen.judge, {key: chosen.judge_for("train", key) or chosen.judge for key in keys})
    equally_rated, _ = ChoiceScores(
        {point.variant: cross_fitted},
        parts,
        aspect,
        run.runner,
        label=calibration_label(name),
        fixed_granularity=scores.granularity(point),
    ).scores(point)
    return fit_calibration([*outcome.scores, *equally_rated], aspect.scale, on_scale=chosen.judge.on_scale)


def calibration_label(aspect: str) -> str:
    """The name of an aspect's calibration in stages and progress."""
    return f"{aspect}: calibration"


def _log_trial(run: CompileRun, tracker: Tracker | None, point: Point, outcomes: Mapping[str, Outcome]) -> None:
    """Log a point as a trial, and show the best agreement so far."""
    agreement = fmean(outcome.agreement for outcome in outcomes.values())
    calls = fmean(outcome.calls for outcome in outcomes.values())
    metrics: dict[str, float | None] = {CHOICE_METRIC: agreement, "calls_per_item": calls}
    for aspect, outcome in outcomes.items():
        metrics |= {f"{CHOICE_METRIC}/{aspect}": outcome.agreement, f"calls_per_item/{aspect}": outcome.calls}
    progress = run.runner.progress
    progress.best_value = agreement if progress.best_value is None else max(agreement, progress.best_value)
    if tracker is not None:
        tracker.log_trial(describe_point(point, calls), point.params, metrics)
