"""Tuning on train, for every aspect."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from debate_judge.data.schema import GRANULARITIES, Aspect, Corpus, Granularity
from debate_judge.optimize.examples import examples
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.search.choice_scores import CrossFittedJudge
from debate_judge.optimize.search.knowledge import (
    Knowledge,
    VariantJudges,
    combine,
    examples_knowledge,
    learnt_knowledge,
)
from debate_judge.optimize.search.points import LEARNT, NO_KNOWLEDGE, TUNED, JudgeVariant, SearchSpace
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import LearntPersona, TunerContext, TuningResult, tuning_result
from debate_judge.optimize.tuners.persona import CRITIC
from debate_judge.programs import find_preset
from debate_judge.programs.judge import Judge, default_granularity
from debate_judge.runs.runner.judge_usage import stage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TunedJudges:
    """The judges to choose from, tuned on train; folds with the same train part share them."""

    variants: Mapping[str, Mapping[JudgeVariant, CrossFittedJudge]]
    """Aspect -> its judges."""
    space: SearchSpace


def tune(run: CompileRun, train: Corpus) -> TunedJudges:
    """Tune the judge of every aspect on train, by the DSPy optimizer of `--tuner`."""
    plan = run.plan
    # A copy, because a judge may cache what it derives.
    base = plan.judge.deepcopy()
    learnt = run.each(partial(_learn, base=base, train=train), plan.data.aspects, concurrent=run.tunes_concurrently)
    personas = _judges_by_persona(plan, base, _searched_personas(plan))
    names = [*personas, *([LEARNT] if any(persona for _, persona in learnt) else [])]
    space = _search_space(plan, base, names, [kind for kinds, _ in learnt for kind in kinds])
    variants = {}
    for aspect, (kinds, persona) in zip(plan.data.aspects, learnt, strict=True):
        aspect_personas, seen = dict(personas), {}
        if persona is not None:
            aspect_personas |= base.variants({LEARNT: persona.text})
            seen = {LEARNT: persona.seen}
        variants[aspect.name] = VariantJudges(aspect_personas, kinds, seen)
    return TunedJudges(variants, space)


_LearntOnTrain = tuple[list[Knowledge], LearntPersona | None]
"""The knowledge about the raters that an aspect's train part gives, and a persona of the Critic written for them."""


def _learn(run: CompileRun, aspect: Aspect, *, base: Judge, train: Corpus) -> _LearntOnTrain:
    """The tuner's results, rated texts in the prompts, and each of both together."""
    (kinds, persona), plan, count = _run_tuner(run, aspect, base, train), run.plan, run.plan.settings.examples
    if count is None:
        return kinds, persona
    rated = examples_knowledge(base, train, [aspect], count, plan.settings.seed)
    return [*kinds, *rated, *(combine(kind, shown) for kind in kinds if kind.name != TUNED for shown in rated)], persona


def _run_tuner(run: CompileRun, aspect: Aspect, base: Judge, train: Corpus) -> _LearntOnTrain:
    """The results of the optimizer that `--tuner` names on train."""
    plan, settings, label = run.plan, run.plan.settings, aspect.name
    if not base.tunable():
        logger.info("%s: %s has no instructions, so there is nothing to tune", label, settings.judge)
        return [], None
    logger.info("%s: tuning instructions on train (%s)", label, settings.tuner)
    trainset = examples(train, [aspect], grouped=plan.data.level == "summary", seed=settings.seed)
    proposals, trials = EFFORTS[settings.effort]
    context = TunerContext(
        statistic=plan.statistic,
        objective=plan.objective,
        absolute_scales=plan.absolute_scales,
        runner=run.runner,
        reflection_lm=run.reflection_lm,
        proposals=proposals,
        trials=trials,
        seed=settings.seed,
        label=label,
    )
    optimizer = run.make_tuner(context)
    with stage(f"{label}: tuning"):
        tuned = tuning_result(optimizer.compile(base, trainset=trainset))
    if run.at_most:
        tuned = _as_if_rewritten(base, tuned)
    searched = "persona" in find_preset(settings.judge).dimensions
    return learnt_knowledge(base, tuned), tuned.persona if searched else None


def _as_if_rewritten(judge: Judge, tuned: TuningResult) -> TuningResult:
    """A tuner's result with a persona, or if it changed no instructions, as if it had changed those of all roles."""
    if tuned.judge is judge:
        return tuned
    if tuned.judge.instructions() != judge.instructions():
        learnt = LearntPersona("Be thorough.") if CRITIC in judge.tunable() else None
        return replace(tuned, persona=tuned.persona or learnt)
    copied = tuned.judge.deepcopy()
    for name, predictor in copied.named_predictors():
        if name in copied.tunable():
            signature = predictor.signature
            predictor.signature = signature.with_instructions(f"{signature.instructions} Be thorough.")
    return TuningResult(copied)


def _searched_personas(plan: CompilePlan) -> Mapping[str, str]:
    """The personas of the search space: all, or only the judge's default one if personas are not searched."""
    if "persona" in find_preset(plan.settings.judge).dimensions:
        return plan.personas
    name = str(plan.judge.config().get("persona", ""))
    return {name: plan.personas[name]} if name in plan.personas else {}


def _judges_by_persona(plan: CompilePlan, base: Judge, personas: Mapping[str, str]) -> dict[str, Judge]:
    """The untuned judge with each of these personas, the default one first."""
    variants = base.variants(personas)
    judge_persona = str(base.config().get("persona", ""))
    return {name: variants[name] for name in sorted(variants, key=lambda name: name != judge_persona)}


def _search_space(plan: CompilePlan, base: Judge, personas: Sequence[str], kinds: Sequence[Knowledge]) -> SearchSpace:
    """The search space; the single call of the untuned judge is always part of it."""
    searched = find_preset(plan.settings.judge).dimensions
    rounds = range(base.debate_config.rounds + 1) if "rounds" in searched else (0, base.debate_config.rounds)
    tie_breakers = (False, True) if "tie_breaker" in searched else (base.debate_config.tie_breaker,)
    knowledge = tuple(dict.fromkeys((NO_KNOWLEDGE, *(kind.name for kind in kinds))))
    fixed = all(fixed_granularity(plan, aspect) for aspect in plan.data.aspects)
    return SearchSpace(
        knowledge=knowledge,
        personas=tuple(personas),
        rounds=tuple(dict.fromkeys(rounds)),
        tie_breakers=tie_breakers,
        granularities=("given",) if fixed else GRANULARITIES,
    )


def fixed_granularity(plan: CompilePlan, aspect: Aspect) -> Granularity | None:
    """The granularity of an aspect for which it is not searched: the scale's steps, or none."""
    if aspect.scale.on_steps or not _searches_rounding(plan, aspect):
        return default_granularity(plan.judge, aspect)
    return None


def _searches_rounding(plan: CompilePlan, aspect: Aspect) -> bool:
    """Whether rounding is searched for an aspect.

    Not for metrics, whose values are not on the scale, and not for binary decisions: rounding to half points would move
    scores onto the threshold, and to whole points would remove all differences on the same side of it.
    """
    rule = plan.data.decision_rules.get(aspect.name)
    return plan.judge.on_scale and (rule is None or rule.kind != "binary")
