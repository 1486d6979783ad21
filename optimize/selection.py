"""Tuning on train and choosing on dev, for one aspect or for several that share a judge."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from debate_judge.data.schema import GRANULARITIES, Aspect, Granularity
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.examples import examples
from debate_judge.optimize.feedback import group_feedback
from debate_judge.optimize.search.dev_scores import DevScores, Outcome, Space
from debate_judge.optimize.search.study import FORMAT, Criterion, SearchPlan, SearchResult
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import Effort, GuideLimits, Tuning
from debate_judge.programs import named
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import require_scored

logger = logging.getLogger(__name__)

TUNED = "tuned"
"""Name of the variant whose instructions the tuner wrote."""


def select_all(run: Run) -> tuple[CompiledJudge, dict[str, SearchResult]]:
    """Tune and choose for every aspect; returns the compiled judge, and for each aspect the search that chose.

    Raises:
        InputError: Too many dev items have no score.
        dspy.LMError: The LM failed for good.
    """
    judges: dict[str, AspectJudge] = {}
    searches: dict[str, SearchResult] = {}
    for unit in run.plan.units:
        found, chosen = select(run, unit)
        for aspect in unit:
            searches[aspect.name], judges[aspect.name] = found, chosen
    return CompiledJudge(run.plan.data.corpus.task, judges), searches


def select(run: Run, aspects: tuple[Aspect, ...]) -> tuple[SearchResult, AspectJudge]:
    """Tune the instructions on train, then choose variant, rounds, Tie-breaker and granularity on dev."""
    plan, settings, label = run.plan, run.plan.settings, label_of(aspects)
    # A copy, for a judge may keep what it has derived, and the uncompiled one is to be measured as it comes.
    base = plan.judge.deepcopy()
    variants = base.variants(_personas(plan))
    tuned = _tuned(run, base, aspects, label)
    if all(tuned.instructions() != variant.instructions() for variant in variants.values()):
        variants[TUNED] = tuned
    logger.info("%s: searching rounds, persona, tie-breaker and granularity on dev", label)
    dev_scores = DevScores(variants, plan.data.splits.dev, aspects, run.runner, base.debate_config.rounds, label)
    search_plan = SearchPlan(
        criterion=Criterion(plan.statistic, plan.data.level, settings.tolerance),
        trials=settings.trials,
        seed=settings.seed,
        study=label,
        storage=Path(settings.store) / "studies" / f"{plan.identity}-{FORMAT}.log",
    )
    found = run.search(dev_scores, _space(plan, base, variants, aspects), search_plan, partial(_log, run, label))
    point = found.chosen.point
    on_dev = dev_scores.judgements(point.persona, point.rounds, point.tie_breaker)
    require_scored(on_dev, settings.max_unscored, f"dev items ({label})")
    judge = variants[point.persona].with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
    return found, AspectJudge(judge, point.granularity)


def _tuned(run: Run, base: Judge, aspects: tuple[Aspect, ...], label: str) -> Judge:
    """The judge with the instructions that the tuner found best on train."""
    plan, settings = run.plan, run.plan.settings
    if not base.tunable():
        logger.info("%s: %s has no instructions, so there is nothing to tune", label, settings.judge)
        return base
    logger.info("%s: tuning instructions on train (%s)", label, settings.tuner)
    grouped = plan.data.level == "summary"
    tuning = Tuning(
        judge=base,
        examples=examples(plan.data.splits.train, aspects, grouped=grouped, seed=settings.seed),
        statistic=plan.statistic,
        feedback=group_feedback,
        runner=run.runner,
        reflection=run.reflection,
        guide=GuideLimits(settings.guide_words, settings.guide_tokens),
        personas=_personas(plan),
        effort=Effort(*EFFORTS[settings.effort]),
        seed=settings.seed,
        label=label,
        folder=Path(settings.store) / "tuning" / f"{plan.identity}-{label}",
    )
    with stage(f"{label}: tuning"):
        return run.tuner(tuning)


def _personas(plan: CompilePlan) -> Mapping[str, str]:
    """The personas that the search may choose from: all, or the judge's own where that is not searched."""
    if "persona" in named(plan.settings.judge).searched:
        return plan.personas
    name = str(plan.judge.config().get("persona", ""))
    return {name: plan.personas[name]} if name in plan.personas else {}


def _space(plan: CompilePlan, base: Judge, variants: Mapping[str, Judge], aspects: tuple[Aspect, ...]) -> Space:
    """What the search may choose from for these aspects; the single call is always part of it."""
    searched = named(plan.settings.judge).searched
    rounds = tuple(range(base.debate_config.rounds + 1)) if "rounds" in searched else (0, base.debate_config.rounds)
    ties = (False, True) if "tie_breaker" in searched else (base.debate_config.tie_breaker,)
    # A tuned Scorer has another first turn than the untouched one that all other variants share.
    tuned = variants.get(TUNED)
    own = tuned is not None and tuned.instructions().get("scorer.predict") != base.instructions().get("scorer.predict")
    return Space(
        tuple(variants),
        tuple(dict.fromkeys(rounds)),
        ties,
        TUNED if own else None,
        _granularities(plan, base, aspects),
    )


def _granularities(plan: CompilePlan, base: Judge, aspects: tuple[Aspect, ...]) -> tuple[Granularity, ...]:
    """All, but for two cases: a metric's values have no place on the scale, and where scores become decisions, the cut
    does what rounding could: half points would move scores from one side of it onto it, and whole ones hide the grade.
    """
    questions = plan.data.questions
    binary = any(a.name in questions and questions[a.name].kind == "binary" for a in aspects)
    return GRANULARITIES if base.on_scale and not binary else ("given",)


def _log(run: Run, label: str, outcome: Outcome) -> None:
    point = outcome.point
    name = f"{label}: n={point.rounds}"
    if point.rounds:
        name += f" {point.persona}" + (" + tie-breaker" if point.tie_breaker else "")
    run.tracker.trial(
        f"{name}, {point.granularity}",
        {
            "aspect": label,
            "persona": point.persona if point.rounds else "none",
            "rounds": point.rounds,
            "tie_breaker": point.tie_breaker,
            "granularity": point.granularity,
        },
        {f"dev/{run.plan.statistic}": outcome.agreement, "lm_calls_per_item": outcome.calls},
    )
