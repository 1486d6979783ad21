"""The search over the tuned judges, and the choice among them, on train and dev."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from functools import partial

from debate_judge.data.agreement.absolute_agreement import POOLED
from debate_judge.data.calibration import Calibration, fit_calibration
from debate_judge.optimize.plan import CompilePlan, CompileRun, unit_name
from debate_judge.optimize.search.choice_scores import ChoiceScores, CrossFittedJudge
from debate_judge.optimize.search.outcomes import Criterion, PrunedPoint, SearchResult
from debate_judge.optimize.search.points import Point
from debate_judge.optimize.search.storage import FORMAT_VERSION, TrialOutcome, agreement_and_calls
from debate_judge.optimize.search.study import SearchSettings, Study
from debate_judge.optimize.tuning import TunedJudges, fixed_granularities
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.runner import require_scored
from debate_judge.runs.tracking.values import CHOICE_METRIC

logger = logging.getLogger(__name__)


def create_study(run: CompileRun, tuned: TunedJudges) -> Study:
    """The search for the judges of all aspects, among those tuned on the train part of the run's plan."""
    plan, settings = run.plan, run.plan.settings
    units = {
        unit_name(unit): ChoiceScores(
            tuned.variants[unit_name(unit)],
            plan.choice_corpora(unit),
            unit,
            run.runner,
            label=unit_name(unit),
            fixed_granularities=fixed_granularities(plan, unit),
        )
        for unit in plan.units
    }
    search_settings = SearchSettings(
        criterion=Criterion(
            plan.objective,
            "sample" if plan.objective in POOLED else plan.data.level,
            settings.max_unscored,
            plan.absolute_scales,
        ),
        limits=plan.search_limits,
        seed=settings.seed,
        study_name=f"{plan.identity}-{FORMAT_VERSION}",
        storage=plan.study_storage,
    )
    run.runner.progress.objective = settings.metric_choice.absolute_measure or "agreement"
    purpose = f"fold {plan.fold_number}" if plan.fold_number else "the judge that is exported"
    splits = plan.data.splits
    sources = f"{splits.train.sources} train, {splits.dev.sources} dev, {splits.held_out.sources} held-out"
    logger.info("%s: searching knowledge, rounds, persona and Tie-breaker (sources: %s)", purpose, sources)
    return run.study_factory(units, tuned.space, search_settings, partial(_log_trial, run))


def choose(run: CompileRun, study: Study) -> tuple[CompiledJudge, dict[str, SearchResult]]:
    """The chosen and calibrated judge, and for each aspect the search that chose its judge.

    Raises:
        dspy.LMError: The LM failed for good, or too many of the train and dev items have no score.
    """
    plan, by_unit = run.plan, study.results()
    searches, judges = {}, {}
    chosen = {unit_name(unit): _chosen_judge(plan, by_unit[unit_name(unit)]) for unit in plan.units}
    calibrations = run.runner.run_concurrently(
        [partial(_calibrations, run, by_unit[unit_name(unit)]) for unit in plan.units]
    )
    for unit, by_aspect in zip(plan.units, calibrations, strict=True):
        search, judge = by_unit[unit_name(unit)], chosen[unit_name(unit)]
        for aspect in unit:
            searches[aspect.name] = search
            granularity = search.scores.granularity(aspect.name, search.chosen.point)
            judges[aspect.name] = AspectJudge(judge, granularity, by_aspect.get(aspect.name))
    return CompiledJudge(plan.data.corpus.task, judges), searches


def _chosen_judge(plan: CompilePlan, search: SearchResult) -> Judge:
    """The chosen judge, after a check that it scored enough of the items."""
    point = search.chosen.point
    judgements = [j for j in search.scores.judgements(point) if j is not None]
    label = unit_name(search.scores.aspects)
    require_scored(judgements, plan.settings.max_unscored, f"train and dev items ({label})")
    judge = search.scores.variants[point.variant].judge
    return judge.with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)


def _calibrations(run: CompileRun, search: SearchResult) -> dict[str, Calibration]:
    """Aspect -> the map from the chosen judge's scores to the raters' scale, for the aspects of one unit; empty for a
    judge of pairs, whose outcomes do not rate single texts.

    It is fitted on train and dev, with the scores that the judge was chosen by. Those of a train source come from
    judges tuned without it: a judge is closer to ratings that it has seen, and a map fitted to such scores would be too
    steep. Sources whose ratings are all equal rank nothing, so that judges cannot be chosen by them; for the map they
    are as good as others, and are scored here.
    """
    point, aspects, plan = search.chosen.point, search.scores.aspects, run.plan
    chosen = search.scores.variants[point.variant]
    if chosen.judge.compares_pairs:
        return {}
    parts = plan.choice_corpora(aspects, discriminating=False)
    # No judge was tuned on these groups: only groups whose ratings differ are examples.
    keys = [(aspect.name, group.id) for aspect in aspects for group in parts["train"].groups]
    cross_fitted = CrossFittedJudge(chosen.judge, {key: chosen.judge_for("train", key) or chosen.judge for key in keys})
    fixed = {aspect.name: search.scores.granularity(aspect.name, point) for aspect in aspects}
    label = calibration_label(unit_name(aspects))
    equally_rated, _ = ChoiceScores(
        {point.variant: cross_fitted}, parts, aspects, run.runner, label=label, fixed_granularities=fixed
    ).scores(point)
    scores, on_scale = search.chosen.scores, chosen.judge.on_scale
    calibrations = {
        a.name: fit_calibration([*scores[a.name], *equally_rated[a.name]], a.scale, on_scale=on_scale) for a in aspects
    }
    return {name: calibration for name, calibration in calibrations.items() if calibration is not None}


def calibration_label(label: str) -> str:
    """The name of a unit's calibration in stages and progress."""
    return f"{label}: calibration"


def _log_trial(run: CompileRun, point: Point, trial_outcome: TrialOutcome) -> None:
    """Log a point as a trial. A pruned one was evaluated on some of the sources: instead of an agreement it has its
    distance to the best point on these."""
    params = replace(point, persona=point.persona if point.rounds else "none")
    name = f"n={point.rounds}, knowledge: {point.knowledge}"
    if point.rounds:
        name += f", {point.persona}" + (" + tie-breaker" if point.tie_breaker else "")
    if isinstance(trial_outcome, PrunedPoint):
        metrics: dict[str, float | None] = {
            "sources_evaluated": trial_outcome.groups,
            "difference_to_best": trial_outcome.difference_to_best,
        }
        if point.granularity == "given":
            logger.info("pruned after %d of %d sources: %s", trial_outcome.groups, trial_outcome.total_groups, name)
    else:
        sources = {group.group for o in trial_outcome.values() for groups in o.scores.values() for group in groups}
        agreement, calls = agreement_and_calls(trial_outcome)
        metrics = {"sources_evaluated": len(sources), CHOICE_METRIC: agreement, "calls_per_item": calls}
        for label, outcome in trial_outcome.items():
            metrics |= {f"{CHOICE_METRIC}/{label}": outcome.agreement, f"calls_per_item/{label}": outcome.calls}
        progress = run.runner.progress
        progress.best_value = agreement if progress.best_value is None else max(agreement, progress.best_value)
    if run.tracker is not None:
        pruned = isinstance(trial_outcome, PrunedPoint)
        run.tracker.log_trial(f"{name}, {point.granularity}", {**asdict(params), "pruned": pruned}, metrics)
