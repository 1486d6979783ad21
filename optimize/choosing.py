"""The search over the judges that were tuned, and the choice among them, on train and dev."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from debate_judge.data.inference.closeness import POOLED
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.measures.calibrating import calibrations
from debate_judge.optimize.optimizer import TunedJudges, fixed_granularities
from debate_judge.optimize.search.choice_scores import PARTS, ChoiceScores
from debate_judge.optimize.search.outcomes import Criterion, Dropped, SearchResult
from debate_judge.optimize.search.points import Point
from debate_judge.optimize.search.storage import FORMAT, Found
from debate_judge.optimize.search.study import SearchPlan, Study
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.runner import require_scored
from debate_judge.runs.tracking.values import CHOICE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selected:
    """The chosen judge, and the searches that chose it."""

    judge: CompiledJudge
    searches: Mapping[str, SearchResult]
    """Aspect -> the search that chose its judge."""


def study_of(run: Run, tuned: TunedJudges) -> Study:
    """The search for the judges of all aspects, among those that were tuned on the train part of the run's plan.

    Raises:
        InputError: The study cannot be stored.
    """
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
            plan.bounds,
        ),
        breadth=plan.breadth,
        seed=settings.seed,
        study=f"{plan.identity}-{FORMAT}",
        storage=plan.study,
    )
    run.runner.progress.measure = settings.chosen_by.closest or "agreement"
    where = f"fold {plan.fold}" if plan.fold else "the judge that is exported"
    parts = plan.data.splits
    sources = f"{len(parts.train.groups)} train, {len(parts.dev.groups)} dev, {len(parts.held_out.groups)} held-out"
    logger.info("%s: searching knowledge, reading, rounds, persona and Tie-breaker (sources: %s)", where, sources)
    return run.study(units, tuned.space, search_plan, partial(_log, run))


def choose(run: Run, study: Study) -> Selected:
    """Choose the judge of every aspect, and calibrate it.

    Raises:
        InputError: Too many of the items to choose by have no score.
        dspy.LMError: The LM failed for good.
    """
    plan, found = run.plan, study.results()
    searches, judges = {}, {}
    chosen = {label_of(unit): _compiled(plan, found[label_of(unit)]) for unit in plan.units}
    calibrated = run.runner.at_once([partial(calibrations, run, found[label_of(unit)]) for unit in plan.units])
    for unit, maps in zip(plan.units, calibrated, strict=True):
        one, judge = found[label_of(unit)], chosen[label_of(unit)]
        for aspect in unit:
            searches[aspect.name] = one
            granularity = one.scores.granularity(aspect.name, one.chosen.point)
            judges[aspect.name] = AspectJudge(judge, granularity, maps.get(aspect.name))
    return Selected(CompiledJudge(plan.data.corpus.task, judges), searches)


def _compiled(plan: CompilePlan, found: SearchResult) -> Judge:
    """The chosen judge, after a check that it scored enough of the items.

    Raises:
        InputError: Too many have no score.
    """
    point = found.chosen.point
    judgements = [j for part in PARTS for j in found.scores.judgements(point, part) if j is not None]
    label = label_of(found.scores.aspects)
    require_scored(judgements, plan.settings.max_unscored, f"items to choose by ({label})")
    judge = found.scores.variants[point.variant].judge
    return judge.with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)


def _log(run: Run, point: Point, found: Found) -> None:
    name = f"n={point.rounds}, knowledge: {point.knowledge}"
    if point.rounds:
        name += f", {point.persona}" + (" + tie-breaker" if point.tie_breaker else "")
    if point.reading != "alone":
        name += f", {point.reading}"
    params = {
        "knowledge": point.knowledge,
        "persona": point.persona if point.rounds else "none",
        "rounds": point.rounds,
        "tie_breaker": point.tie_breaker,
        "granularity": point.granularity,
        "reading": point.reading,
        "pruned": isinstance(found, Dropped),
    }
    metrics = _metrics(found)
    if (agreement := metrics.get(CHOICE)) is not None:
        shown = run.runner.progress
        shown.agreement = max(agreement, -1.0 if shown.agreement is None else shown.agreement)
    if run.tracker is not None:
        run.tracker.trial(f"{name}, {point.granularity}", params, metrics)
    if isinstance(found, Dropped) and point.granularity == "given":
        logger.info("pruned after %d of %d sources: %s", found.groups, found.of, name)


def _metrics(found: Found) -> dict[str, float | None]:
    """The metrics of a point in MLflow. A point that was pruned was measured on a part of the sources, so it has
    no agreement, but its distance to the best point on this part."""
    if isinstance(found, Dropped):
        return {"sources_asked": found.groups, "behind": found.behind}
    metrics: dict[str, float | None] = {
        "sources_asked": len({g.group for o in found.values() for groups in o.scores.values() for g in groups}),
        CHOICE: sum(o.agreement for o in found.values()) / len(found),
        "calls_per_item": sum(o.calls for o in found.values()) / len(found),
    }
    for label, outcome in found.items():
        metrics[f"{CHOICE}/{label}"] = outcome.agreement
        metrics[f"calls_per_item/{label}"] = outcome.calls
    return metrics
