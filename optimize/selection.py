"""Tuning on train, and choosing on train and dev, for one aspect or for several that share a judge."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from debate_judge.data.schema import GRANULARITIES, Aspect, Granularity
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.examples import examples
from debate_judge.optimize.measures.calibrating import calibrations
from debate_judge.optimize.search.choice_scores import PARTS, ChoiceScores, CrossFitted, Place
from debate_judge.optimize.search.knowledge import (
    TUNED,
    Knowledge,
    both,
    groups_of,
    kinds_of,
    rated_examples,
    space_axes,
    variants_of,
)
from debate_judge.optimize.search.outcomes import Criterion, Dropped, SearchResult
from debate_judge.optimize.search.points import LEARNT, JudgeVariant, Point, Space
from debate_judge.optimize.search.storage import FORMAT, Found
from debate_judge.optimize.search.study import SearchPlan
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import Effort, GuideLimits, Tuning, as_tuned
from debate_judge.programs import named
from debate_judge.programs.compiled import AspectJudge, CompiledJudge, usual_granularity
from debate_judge.programs.devset import group_feedback
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import require_scored
from debate_judge.runs.tracking.values import CHOICE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TunedJudges:
    """The judges to choose from, tuned on train; folds with the same train share them."""

    variants: Mapping[str, Mapping[JudgeVariant, CrossFitted]]
    """Label of a unit (aspects that share a judge) -> its judges."""
    space: Space
    """What the search may choose from."""


def learn(run: Run) -> TunedJudges:
    """Tune on train, for every aspect.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    plan = run.plan
    # Tuning uses the cheapest reading. On a copy, because a judge may keep what it has derived, and the uncompiled
    # judge is measured without that.
    base = plan.read(plan.readings[0])
    found = run.tuned([partial(_learnt, run, base, unit) for unit in plan.units])
    learnt = {label_of(unit): own for unit, own in zip(plan.units, found, strict=True)}
    personas = _judges(plan, base, _personas(plan))
    names = [*personas, *([LEARNT] if any(own.persona for own in found) else [])]
    space = _space(plan, base, names, [kind for own in found for kind in own.kinds])
    return TunedJudges(
        {
            label: variants_of(
                personas | ({} if own.persona is None else base.variants({LEARNT: own.persona})),
                own.kinds,
                space,
                {LEARNT: own.seen_by_persona},
            )
            for label, own in learnt.items()
        },
        space,
    )


@dataclass(frozen=True)
class _Learnt:
    """What was learnt of the raters for a unit."""

    kinds: list[Knowledge]
    persona: str | None = None
    """Text of a persona of the Critic that was written for them."""
    seen_by_persona: frozenset[Place] = frozenset()
    """The train groups that it was learnt from."""


@dataclass(frozen=True)
class Selected:
    """The chosen judge, and the searches that chose it."""

    judge: CompiledJudge
    searches: Mapping[str, SearchResult]
    """Aspect -> the search that chose its judge."""


def choose(run: Run, learnt: TunedJudges) -> Selected:
    """Choose on train and dev, for every aspect.

    Args:
        run: The run, whose plan has the parts to choose by.
        learnt: The judges to choose from, tuned on this plan's train.

    Raises:
        InputError: Too many of the items to choose by have no score.
        dspy.LMError: The LM failed for good.
    """
    plan, settings = run.plan, run.plan.settings
    units = {
        label_of(unit): ChoiceScores(
            learnt.variants[label_of(unit)],
            plan.choice(unit),
            unit,
            run.runner,
            label=label_of(unit),
            fixed=_fixed(plan, unit),
        )
        for unit in plan.units
    }
    for scores in units.values():
        scores.share_calls(units.values())
    logger.info("searching knowledge, reading, rounds, persona, tie-breaker and granularity on train and dev")
    search_plan = SearchPlan(
        criterion=Criterion(plan.statistic, plan.data.level, settings.max_unscored),
        breadth=plan.breadth,
        seed=settings.seed,
        study=f"{plan.identity}-{FORMAT}",
        storage=plan.study,
    )
    found = run.search(units, learnt.space, search_plan, partial(_log, run))
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


def _learnt(run: Run, base: Judge, aspects: tuple[Aspect, ...]) -> _Learnt:
    """All that train tells of the raters: the tuner's results, rated examples, and both together."""
    found, plan, wanted = _tuned(run, base, aspects), run.plan, run.plan.settings.wanted_examples
    if wanted is None:
        return found
    shown = rated_examples(plan.data.splits.train, aspects, wanted, plan.settings.seed)
    return replace(found, kinds=[*found.kinds, shown, *(both(k, shown) for k in found.kinds if k.name != TUNED)])


def _tuned(run: Run, base: Judge, aspects: tuple[Aspect, ...]) -> _Learnt:
    """What the tuner found on train."""
    plan, settings, label = run.plan, run.plan.settings, label_of(aspects)
    if not base.tunable():
        logger.info("%s: %s has no instructions, so there is nothing to tune", label, settings.judge)
        return _Learnt([])
    logger.info("%s: tuning instructions on train (%s)", label, settings.tuner)
    rated = examples(plan.data.splits.train, aspects, grouped=plan.data.level == "summary", seed=settings.seed)
    tuning = Tuning(
        judge=base,
        examples=rated,
        statistic=plan.statistic,
        feedback=group_feedback,
        runner=run.runner,
        reflection=run.reflection,
        guide=GuideLimits(settings.guide_words, settings.guide_tokens),
        personas=_personas(plan),
        effort=Effort(*EFFORTS[settings.effort]),
        seed=settings.seed,
        label=label,
        folder=Path(settings.store) / "tuning" / f"{plan.identity}-{plan.data.splits.fingerprints['train']}-{label}",
    )
    with stage(f"{label}: tuning"):
        tuned = as_tuned(run.tuner(tuning))
    if not settings.export_examples and any(predictor.demos for predictor in tuned.judge.predictors()):
        logger.warning(
            "%s: demonstrations are left out, because they hold texts of the data; --config export-examples=true "
            "keeps them",
            label,
        )
        for predictor in tuned.judge.predictors():
            predictor.demos = []
    kinds = kinds_of(base, tuned, rated)
    # Aspects that share a call have one Critic, and a judge without search over personas keeps its own.
    if tuned.persona is None or base.joint or "persona" not in named(settings.judge).searched:
        return _Learnt(kinds)
    return _Learnt(kinds, tuned.persona.text, groups_of(rated, tuned.persona.seen))


def _personas(plan: CompilePlan) -> Mapping[str, str]:
    """The personas that the search may choose from: all, or only the judge's own if personas are not searched."""
    if "persona" in named(plan.settings.judge).searched:
        return plan.personas
    name = str(plan.judge.config().get("persona", ""))
    return {name: plan.personas[name]} if name in plan.personas else {}


def _judges(plan: CompilePlan, base: Judge, personas: Mapping[str, str]) -> dict[str, Judge]:
    """The untuned judge with each of these personas, its own first."""
    found = base.variants(personas)
    own = str(base.config().get("persona", ""))
    return {name: found[name] for name in sorted(found, key=lambda name: name != own)}


def _space(plan: CompilePlan, base: Judge, personas: Sequence[str], kinds: Sequence[Knowledge]) -> Space:
    """What the search may choose from; the single call of the untuned judge is always part of it."""
    searched = named(plan.settings.judge).searched
    rounds = range(base.debate_config.rounds + 1) if "rounds" in searched else (0, base.debate_config.rounds)
    ties = (False, True) if "tie_breaker" in searched else (base.debate_config.tie_breaker,)
    knowledge, rewritten = space_axes(kinds)
    fixed = len(_fixed(plan, plan.data.aspects)) == len(plan.data.aspects)
    return Space(
        knowledge=knowledge,
        personas=tuple(personas),
        rounds=tuple(dict.fromkeys(rounds)),
        tie_breakers=ties,
        granularities=("given",) if fixed else GRANULARITIES,
        rewritten=rewritten,
        readings=plan.readings,
        joint=plan.joint,
        # An export of a judge with examples contains texts of the data, which the user has to allow.
        barred=() if plan.settings.export_examples else tuple(k for k in knowledge if k in ("examples", "both")),
    )


def _fixed(plan: CompilePlan, aspects: Sequence[Aspect]) -> dict[str, Granularity]:
    """Aspect -> its granularity, for aspects whose granularity is not searched: that of its steps, or as given."""
    usual = {aspect.name: usual_granularity(plan.judge, aspect) for aspect in aspects}
    return {a.name: usual[a.name] for a in aspects if a.scale.on_steps or not _rounded(plan, a)}


def _rounded(plan: CompilePlan, aspect: Aspect) -> bool:
    """Whether rounding is searched for an aspect.

    Not for metrics, whose values are not on the scale, and not for binary decisions: half points would move scores onto
    the threshold, and whole points would remove all differences between scores on the same side of it.
    """
    question = plan.data.questions.get(aspect.name)
    return plan.judge.on_scale and (question is None or question.kind != "binary")


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
