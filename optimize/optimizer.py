"""Tuning on train, for every aspect or for several that share a judge."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from debate_judge.data.schema import GRANULARITIES, Aspect, Granularity
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.examples import examples
from debate_judge.optimize.search.choice_scores import CrossFitted
from debate_judge.optimize.search.knowledge import (
    TUNED,
    Knowledge,
    Variants,
    combine,
    knowledge_kinds,
    rated_examples,
    space_axes,
)
from debate_judge.optimize.search.points import LEARNT, JudgeVariant, Space
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import GuideLimits, LearntPersona, Tuning, details_of
from debate_judge.programs import find_preset
from debate_judge.programs.compiled import default_granularity
from debate_judge.programs.grouping import corpus_items
from debate_judge.programs.judge import Judge, Verdict
from debate_judge.runs.runner.billing import stage

logger = logging.getLogger(__name__)


_NOT_LIGHT = ("blind-half", "blind-every")
"""Personas that a light search leaves out, for what it tries is much like them."""


@dataclass(frozen=True)
class TunedJudges:
    """The judges to choose from, tuned on train; folds with the same train share them."""

    variants: Mapping[str, Mapping[JudgeVariant, CrossFitted]]
    """Label of a unit (aspects that share a judge) -> its judges."""
    space: Space
    """What the search may choose from."""


def compile(run: Run) -> TunedJudges:
    """Tune the judge of every aspect on the train part of the run's plan, by the DSPy optimizer of `--tuner`."""
    plan = run.plan
    # Tuning uses the cheapest reading. On a copy, because a judge may keep what it has derived, and the uncompiled
    # judge is measured without that.
    base = plan.read(plan.readings[0])
    learnt_by_unit = run.tune_at_once([partial(_learnt, run, base, unit) for unit in plan.units])
    personas = _judges(plan, base, _personas(plan))
    names = [*personas, *([LEARNT] if any(persona for _, persona in learnt_by_unit) else [])]
    space = _space(plan, base, names, [kind for kinds, _ in learnt_by_unit for kind in kinds])
    variants = {}
    for unit, (kinds, persona) in zip(plan.units, learnt_by_unit, strict=True):
        unit_learnt, seen = dict(personas), {}
        if persona is not None:
            unit_learnt |= base.variants({LEARNT: persona.text})
            seen = {LEARNT: persona.seen}
        variants[label_of(unit)] = Variants(unit_learnt, kinds, space, seen)
    return TunedJudges(variants, space)


_Learnt = tuple[list[Knowledge], LearntPersona | None]
"""What was learnt of the raters for a unit, and a persona of the Critic that was written for them."""


def _learnt(run: Run, base: Judge, aspects: tuple[Aspect, ...]) -> _Learnt:
    """All that train tells of the raters: the tuner's results, rated examples, and both together."""
    (kinds, persona), plan, wanted = _tuned(run, base, aspects), run.plan, run.plan.settings.wanted_examples
    if wanted is None:
        return kinds, persona
    scores = _first_scores(run, base, aspects) if wanted.pairs else {}
    shown = rated_examples(plan.data.splits.train, aspects, wanted, plan.settings.seed, scores)
    return [*kinds, shown, *(combine(kind, shown) for kind in kinds if kind.name != TUNED)], persona


def _first_scores(run: Run, base: Judge, aspects: tuple[Aspect, ...]) -> dict[tuple[str, str, str], float]:
    """What the judge gives the texts of train before a debate; a guide's author asks for the same."""
    items = [item for aspect in aspects for item in corpus_items(run.plan.data.splits.train, aspect)]
    with stage(f"{label_of(aspects)}: tuning"):
        transcripts = run.runner.converse(base, items, 0, f"{label_of(aspects)}: train")
    verdicts = zip(items, (base.judgement(transcript, 0) for transcript in transcripts), strict=True)
    return {(i.aspect.name, i.group, i.candidate): v.score for i, v in verdicts if isinstance(v, Verdict)}


def _tuned(run: Run, base: Judge, aspects: tuple[Aspect, ...]) -> _Learnt:
    """What the optimizer that `--tuner` names finds on train."""
    plan, settings, label = run.plan, run.plan.settings, label_of(aspects)
    if not base.tunable():
        logger.info("%s: %s has no instructions, so there is nothing to tune", label, settings.judge)
        return [], None
    logger.info("%s: tuning instructions on train (%s)", label, settings.tuner)
    rated = examples(plan.data.splits.train, aspects, grouped=plan.data.level == "summary", seed=settings.seed)
    proposals, trials = EFFORTS[settings.effort]
    tuning = Tuning(
        statistic=plan.statistic,
        objective=plan.objective,
        absolute_scales=plan.absolute_scales,
        runner=run.runner,
        reflection=run.reflection,
        guide=GuideLimits(settings.guide_words, settings.guide_tokens),
        proposals=proposals,
        trials=trials,
        seed=settings.seed,
        label=label,
    )
    optimizer = run.tuner(tuning)
    with stage(f"{label}: tuning"):
        tuned = details_of(optimizer.compile(base, trainset=rated))
    if not settings.export_examples and any(predictor.demos for predictor in tuned.judge.predictors()):
        logger.warning(
            "%s: demonstrations are left out, because they hold texts of the data; --config export-examples=true "
            "keeps them",
            label,
        )
        for predictor in tuned.judge.predictors():
            predictor.demos = []
    # Aspects that share a call have one Critic, and a judge without search over personas keeps its own.
    searched = not base.joint and "persona" in find_preset(settings.judge).searched
    return knowledge_kinds(base, tuned), tuned.persona if searched else None


def _personas(plan: CompilePlan) -> Mapping[str, str]:
    """The personas that the search may choose from: all, or only the judge's own if personas are not searched."""
    if "persona" in find_preset(plan.settings.judge).searched:
        light = plan.settings.effort == "light"
        return {name: text for name, text in plan.personas.items() if not (light and name in _NOT_LIGHT)}
    name = str(plan.judge.config().get("persona", ""))
    return {name: plan.personas[name]} if name in plan.personas else {}


def _judges(plan: CompilePlan, base: Judge, personas: Mapping[str, str]) -> dict[str, Judge]:
    """The untuned judge with each of these personas, its own first."""
    variants = base.variants(personas)
    judge_persona = str(base.config().get("persona", ""))
    return {name: variants[name] for name in sorted(variants, key=lambda name: name != judge_persona)}


def _space(plan: CompilePlan, base: Judge, personas: Sequence[str], kinds: Sequence[Knowledge]) -> Space:
    """What the search may choose from; the single call of the untuned judge is always part of it."""
    searched = find_preset(plan.settings.judge).searched
    rounds = range(base.debate_config.rounds + 1) if "rounds" in searched else (0, base.debate_config.rounds)
    ties = (False, True) if "tie_breaker" in searched else (base.debate_config.tie_breaker,)
    knowledge, rewritten = space_axes(kinds)
    fixed = len(fixed_granularities(plan, plan.data.aspects)) == len(plan.data.aspects)
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
        not_exportable=()
        if plan.settings.export_examples
        else tuple(k for k in knowledge if k in ("examples", "both")),
    )


def fixed_granularities(plan: CompilePlan, aspects: Sequence[Aspect]) -> dict[str, Granularity]:
    """Aspect -> its granularity, for aspects whose granularity is not searched: that of its steps, or as given."""
    usual = {aspect.name: default_granularity(plan.judge, aspect) for aspect in aspects}
    return {a.name: usual[a.name] for a in aspects if a.scale.on_steps or not _rounded(plan, a)}


def _rounded(plan: CompilePlan, aspect: Aspect) -> bool:
    """Whether rounding is searched for an aspect.

    Not for metrics, whose values are not on the scale, and not for binary decisions: half points would move scores onto
    the threshold, and whole points would remove all differences between scores on the same side of it.
    """
    question = plan.data.decision_rules.get(aspect.name)
    return plan.judge.on_scale and (question is None or question.kind != "binary")
