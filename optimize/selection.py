"""The search over the judges that were tuned, and the choice among them, on train and dev."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from functools import partial

from debate_judge.data.calibration import Calibration, fit_calibration
from debate_judge.data.inference.absolute_agreement import POOLED
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.optimizer import TunedJudges, fixed_granularities
from debate_judge.optimize.search.choice_scores import ChoiceScores, CrossFitted
from debate_judge.optimize.search.outcomes import Criterion, PrunedPoint, SearchResult
from debate_judge.optimize.search.points import Point
from debate_judge.optimize.search.storage import FORMAT, TrialOutcome, agreement_and_calls
from debate_judge.optimize.search.study import SearchPlan, Study
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.runner import require_scored
from debate_judge.runs.tracking.values import CHOICE_METRIC

logger = logging.getLogger(__name__)


def study_of(run: Run, tuned: TunedJudges) -> Study:
    """The search for the judges of all aspects, among those that were tuned on the train part of the run's plan."""
    plan, settings = run.plan, run.plan.settings
    units = {
        label_of(unit): ChoiceScores(
            tuned.variants[label_of(unit)],
            plan.choice(unit),
            unit,
            run.runner,
            label=label_of(unit),
            fixed=fixed_granularities(plan, unit),
        )
        for unit in plan.units
    }
    for scores in units.values():
        scores.share_calls(units.values())
    search_plan = SearchPlan(
        criterion=Criterion(
            plan.objective,
            "sample" if plan.objective in POOLED else plan.data.level,
            settings.max_unscored,
            plan.absolute_scales,
        ),
        breadth=plan.breadth,
        seed=settings.seed,
        study=f"{plan.identity}-{FORMAT}",
        storage=plan.study,
    )
    run.runner.progress.measure = settings.chosen_by.absolute_measure or "agreement"
    where = f"fold {plan.fold}" if plan.fold else "the judge that is exported"
    parts = plan.data.splits
    sources = f"{parts.train.sources} train, {parts.dev.sources} dev, {parts.held_out.sources} held-out"
    logger.info("%s: searching knowledge, reading, rounds, persona and Tie-breaker (sources: %s)", where, sources)
    return run.study(units, tuned.space, search_plan, partial(_log, run))


def choose(run: Run, study: Study) -> tuple[CompiledJudge, dict[str, SearchResult]]:
    """The chosen and calibrated judge, and for each aspect the search that chose its judge.

    Raises:
        InputError: Too many of the items to choose by have no score.
        dspy.LMError: The LM failed for good.
    """
    plan, by_unit = run.plan, study.results()
    searches, judges = {}, {}
    chosen = {label_of(unit): _compiled(plan, by_unit[label_of(unit)]) for unit in plan.units}
    calibrated = run.runner.run_concurrently(
        [partial(_calibrations, run, by_unit[label_of(unit)]) for unit in plan.units]
    )
    for unit, maps in zip(plan.units, calibrated, strict=True):
        search, judge = by_unit[label_of(unit)], chosen[label_of(unit)]
        for aspect in unit:
            searches[aspect.name] = search
            granularity = search.scores.granularity(aspect.name, search.chosen.point)
            judges[aspect.name] = AspectJudge(judge, granularity, maps.get(aspect.name))
    return CompiledJudge(plan.data.corpus.task, judges), searches


def _compiled(plan: CompilePlan, searches: SearchResult) -> Judge:
    """The chosen judge, after a check that it scored enough of the items."""
    point = searches.chosen.point
    judgements = [j for j in searches.scores.judgements(point) if j is not None]
    label = label_of(searches.scores.aspects)
    require_scored(judgements, plan.settings.max_unscored, f"items to choose by ({label})")
    judge = searches.scores.variants[point.variant].judge
    return judge.with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)


def _calibrations(run: Run, searches: SearchResult) -> dict[str, Calibration]:
    """Aspect -> the map from the chosen judge's scores to the raters' scale, for the aspects of one unit; none for a
    judge of pairs, whose outcomes do not rate single texts.

    It is fitted on train and dev, with the scores that the judge was chosen by. Those of a train source come from
    judges tuned without it: a judge is closer to ratings that it has seen, and a map fitted to such scores would be too
    steep. Sources whose ratings are all equal cannot serve for choosing, because they rank nothing; for the map they
    are as good as others, and are scored here.
    """
    point, aspects, plan = searches.chosen.point, searches.scores.aspects, run.plan
    chosen = searches.scores.variants[point.variant]
    if chosen.judge.compares:
        return {}
    parts = plan.choice(aspects, ranked=False)
    # No judge was tuned on these groups, because examples are groups whose ratings differ.
    places = [(aspect.name, group.id) for aspect in aspects for group in parts["train"].groups]
    others = CrossFitted(chosen.judge, {place: chosen.at("train", place) or chosen.judge for place in places})
    fixed = {aspect.name: searches.scores.granularity(aspect.name, point) for aspect in aspects}
    unranked = ChoiceScores(
        {point.variant: others}, parts, aspects, run.runner, label=calibration_label(label_of(aspects)), fixed=fixed
    )
    more, _ = unranked.scores(point)
    fitted = {
        aspect.name: fit_calibration(
            [*searches.chosen.scores[aspect.name], *more[aspect.name]], aspect.scale, on_scale=chosen.judge.on_scale
        )
        for aspect in aspects
    }
    return {name: calibration for name, calibration in fitted.items() if calibration is not None}


def calibration_label(label: str) -> str:
    """The name of a unit's calibration in stages and progress."""
    return f"{label}: calibration"


def _log(run: Run, point: Point, trial_outcome: TrialOutcome) -> None:
    """Log a point as a trial. One that was pruned was measured on a part of the sources, so that it has no agreement,
    but its distance to the best point on this part."""
    shown = replace(point, persona=point.persona if point.rounds else "none")
    name = f"n={point.rounds}, knowledge: {point.knowledge}"
    if point.rounds:
        name += f", {point.persona}" + (" + tie-breaker" if point.tie_breaker else "")
    if point.reading != "alone":
        name += f", {point.reading}"
    if isinstance(trial_outcome, PrunedPoint):
        metrics: dict[str, float | None] = {"sources_asked": trial_outcome.groups, "behind": trial_outcome.behind}
        if point.granularity == "given":
            logger.info("pruned after %d of %d sources: %s", trial_outcome.groups, trial_outcome.of, name)
    else:
        sources = {group.group for o in trial_outcome.values() for groups in o.scores.values() for group in groups}
        agreement, calls = agreement_and_calls(trial_outcome)
        metrics = {"sources_asked": len(sources), CHOICE_METRIC: agreement, "calls_per_item": calls}
        for label, outcome in trial_outcome.items():
            metrics |= {f"{CHOICE_METRIC}/{label}": outcome.agreement, f"calls_per_item/{label}": outcome.calls}
        progress = run.runner.progress
        progress.agreement = agreement if progress.agreement is None else max(agreement, progress.agreement)
    if run.tracker is not None:
        pruned = isinstance(trial_outcome, PrunedPoint)
        run.tracker.log_trial(f"{name}, {point.granularity}", {**asdict(shown), "pruned": pruned}, metrics)
