"""Tuning on train, for every aspect: what is learnt about the raters, as knowledge that any judge can be given.

A `Knowledge` has a function that applies it to a judge, and the same for knowledge that was learnt without parts of
train, for cross-fitting.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from debate_judge.data.schema import GRANULARITIES, Aspect, Corpus, Granularity
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.search import LEARNT, NO_KNOWLEDGE, TUNED, CrossFittedJudge, JudgeVariant, SearchSpace
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import GroupKey, LearntPersona, TunerContext, TuningResult, find_tuner, tuning_result
from debate_judge.optimize.tuners.guide import CRITIC, add_guide, guide_of
from debate_judge.optimize.tuners.rated import examples
from debate_judge.programs import find_preset
from debate_judge.programs.examples import RatedExample, with_examples, with_precedents
from debate_judge.programs.judge import Judge, default_granularity
from debate_judge.runs.progress import stage

logger = logging.getLogger(__name__)

EXAMPLES, PRECEDENTS = "examples", "precedents"
"""Names of the knowledge that consists of rated texts, for all roles and for the Critic alone."""

MAX_PER_SOURCE = 4
"""Most candidates of one source that are shown. Several, because a source takes more tokens than its candidates, and
ratings of the same source show how raters use the scale."""

ApplyKnowledge = Callable[[Judge], Judge]
"""From a judge to a copy of it with the knowledge."""


@dataclass(frozen=True)
class Knowledge:
    """One kind of knowledge about the raters."""

    name: str
    apply: ApplyKnowledge
    folds: tuple[tuple[ApplyKnowledge, frozenset[GroupKey]], ...] = ()
    """The same, learnt without the ratings of these train groups."""

    def apply_to(self, judge: Judge) -> CrossFittedJudge:
        """The judge with this knowledge, and its out-of-fold judges on train."""
        out_of_fold: dict[GroupKey, Judge] = {}
        for apply, unseen in self.folds:
            informed = apply(judge)
            for key in unseen:
                out_of_fold.setdefault(key, informed)
        return CrossFittedJudge(self.apply(judge), out_of_fold)


def combine(first_kind: Knowledge, second_kind: Knowledge) -> Knowledge:
    """Two kinds together; a train group is unseen if a fold of each has not seen it."""

    def chain(first: ApplyKnowledge, second: ApplyKnowledge) -> ApplyKnowledge:
        return lambda judge: second(first(judge))

    folds = [
        (chain(first, second), first_unseen & second_unseen)
        for first, first_unseen in first_kind.folds
        for second, second_unseen in second_kind.folds
        if first_unseen & second_unseen
    ]
    name = f"{first_kind.name} and {second_kind.name}"
    return Knowledge(name, chain(first_kind.apply, second_kind.apply), tuple(folds))


def learnt_knowledge(base: Judge, tuned: TuningResult) -> list[Knowledge]:
    """What a tuner learnt, as kinds of knowledge: a guide to the raters, or judges whose roles were rewritten, which
    replace the one that they are applied to; empty if it changed nothing."""
    learnt = [] if tuned.start is None else learnt_knowledge(base, tuned.start)
    # A judge equal to the untuned one or to the starting point adds no kind.
    known = [base] if tuned.start is None else [base, tuned.start.judge]
    if _tunable_state(tuned.judge) in [_tunable_state(judge) for judge in known]:
        return learnt
    only_guide = guide_of(tuned.judge) and add_guide(tuned.judge, "").instructions() == base.instructions()
    # Names are unique: if there is a guide already, a second one counts as a rewritten judge.
    is_guide = bool(only_guide) and not learnt

    def apply(learner: Judge) -> ApplyKnowledge:
        guide = guide_of(learner)
        return (lambda judge: add_guide(judge, guide)) if is_guide else (lambda judge: learner.deepcopy())

    folds = tuple((apply(fold.judge), fold.unseen) for fold in tuned.folds)
    return [*learnt, Knowledge("guide" if is_guide else TUNED, apply(tuned.judge), folds)]


def _tunable_state(judge: Judge) -> list[Any]:
    """Instructions and demonstrations, which a tuner may change."""
    return [(p.signature.instructions, [dict(demo) for demo in p.demos]) for p in judge.predictors()]


def examples_knowledge(judge: Judge, train: Corpus, aspect: Aspect, count: int, seed: int) -> list[Knowledge]:
    """Rated candidates of train in the prompts: `count` of them as examples for every role, and, where the judge has a
    Critic, the `count` most alike as precedents for the Critic alone."""
    # No prompt has a text of the source that it asks about, so no train group is seen.
    all_groups = frozenset((aspect.name, group.id) for group in train.groups)

    def examples(judge: Judge) -> Judge:
        return with_examples(judge, choose_examples(train, aspect, count, seed=seed))

    def precedents(judge: Judge) -> Judge:
        return with_precedents(judge, [e for group in rated_candidates(train, aspect) for e in group], count)

    kinds = [Knowledge(EXAMPLES, examples, ((examples, all_groups),))]
    if judge.shows_precedents and judge.debate_config.rounds:
        kinds.append(Knowledge(PRECEDENTS, precedents, ((precedents, all_groups),)))
    return kinds


def choose_examples(corpus: Corpus, aspect: Aspect, count: int, *, seed: int) -> list[RatedExample]:
    """Choose rated candidates that span the scale, from as few sources as `MAX_PER_SOURCE` allows.

    Sources with the largest range of ratings come first, and of each the candidates whose ratings are spread most
    evenly. If sources have one candidate each, candidates with evenly spread ratings are chosen from all of them.

    Returns:
        At most `count` examples, those of one source together, from the best rated to the worst. The seed breaks ties.
    """
    groups = rated_candidates(corpus, aspect)
    random.Random(seed).shuffle(groups)
    if all(len(group) == 1 for group in groups):
        return _spread([example for group in groups for example in group], count)
    chosen: list[RatedExample] = []
    for group in sorted(groups, key=lambda group: -(max(e.rating for e in group) - min(e.rating for e in group))):
        chosen += _spread(group, min(MAX_PER_SOURCE, count - len(chosen)))
    return chosen


def rated_candidates(corpus: Corpus, aspect: Aspect) -> list[list[RatedExample]]:
    """Every rated candidate, by group, in the order of the corpus; groups without any are left out."""
    groups = []
    for group in corpus.groups:
        rated = [(c, c.rating(aspect.name), c.ratings.get(aspect.name, ())) for c in group.candidates]
        groups.append(
            [
                RatedExample(
                    aspect=aspect.name,
                    group=group.id,
                    source=group.source,
                    context=group.context,
                    candidate=candidate.text,
                    rating=mean,
                    ratings=tuple(ratings) if len(ratings) > 1 else (),
                )
                for candidate, mean, ratings in rated
                if mean is not None
            ]
        )
    return [group for group in groups if group]


def _spread(examples: Sequence[RatedExample], count: int) -> list[RatedExample]:
    """Up to `count` examples with ratings nearest to evenly spaced ones, from the best to the worst."""
    remaining = sorted(examples, key=lambda example: -example.rating)
    if count >= len(remaining) or count < 1:
        return remaining[: max(0, count)]
    high, low = remaining[0].rating, remaining[-1].rating
    chosen: list[RatedExample] = []
    for number in range(count):
        target = high - (high - low) * number / max(1, count - 1)
        chosen.append(min(remaining, key=lambda example: abs(example.rating - target)))
        remaining.remove(chosen[-1])
    return sorted(chosen, key=lambda example: -example.rating)


class VariantJudges(dict[JudgeVariant, CrossFittedJudge]):
    """The judges of the variants for one aspect, each created on first access, because most are never used.

    A kind of knowledge that only other aspects have adds nothing here, so that every point is valid for all aspects.

    Args:
        personas: Name -> the untuned judge with this persona, the default one first.
        kinds: The knowledge about the raters.
        seen: Name of a persona -> the train groups that it was written from.
    """

    def __init__(
        self,
        personas: Mapping[str, Judge],
        kinds: Iterable[Knowledge],
        seen: Mapping[str, frozenset[GroupKey]] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._personas, self._kinds = personas, {kind.name: kind for kind in kinds}
        self._default, self._seen = next(iter(personas.values())), seen

    def __missing__(self, variant: JudgeVariant) -> CrossFittedJudge:
        base = self._personas.get(variant.persona, self._default)
        kind = self._kinds.get(variant.knowledge)
        # Folds with the same tuned judges run in threads, and judges are told apart by `id`: the first one is kept.
        cross_fitted = CrossFittedJudge(base) if kind is None else kind.apply_to(base)
        return self.setdefault(variant, replace(cross_fitted, seen=self._seen.get(variant.persona, frozenset())))


@dataclass(frozen=True)
class TunedJudges:
    """The judges to choose from, tuned on train; folds with the same train part share them."""

    variants: Mapping[str, Mapping[JudgeVariant, CrossFittedJudge]]
    """Aspect -> its judges."""
    space: SearchSpace


def tune(run: CompileRun, train: Corpus) -> TunedJudges:
    """Tune the judge of every aspect on train, by the DSPy optimizer of `--tuner`."""
    plan, searched = run.plan, find_preset(run.plan.settings.judge).dimensions
    # A copy, because a judge may cache what it derives.
    base = plan.judge.deepcopy()
    learnt = run.each(partial(_learn, base=base, train=train), plan.aspects, concurrent=run.tunes_concurrently)
    default = str(base.config().get("persona", ""))
    by_persona = base.variants(
        {name: text for name, text in plan.personas.items() if name == default or "persona" in searched}
    )
    personas = {name: by_persona[name] for name in sorted(by_persona, key=lambda name: name != default)}
    variants = {}
    for aspect, (kinds, persona) in zip(plan.aspects, learnt, strict=True):
        written = {} if persona is None else base.variants({LEARNT: persona.text})
        seen = {} if persona is None else {LEARNT: persona.seen}
        variants[aspect.name] = VariantJudges({**personas, **written}, kinds, seen)
    # The single call of the untuned judge is always a choice.
    rounds = range(base.debate_config.rounds + 1) if "rounds" in searched else (0, base.debate_config.rounds)
    space = SearchSpace(
        knowledge=tuple(dict.fromkeys((NO_KNOWLEDGE, *(kind.name for kinds, _ in learnt for kind in kinds)))),
        personas=(*personas, *([LEARNT] if any(persona for _, persona in learnt) else [])),
        rounds=tuple(dict.fromkeys(rounds)),
        tie_breakers=(False, True) if "tie_breaker" in searched else (base.debate_config.tie_breaker,),
        granularities=("given",) if all(fixed_granularity(plan, a) for a in plan.aspects) else GRANULARITIES,
    )
    return TunedJudges(variants, space)


def _learn(
    run: CompileRun, aspect: Aspect, *, base: Judge, train: Corpus
) -> tuple[list[Knowledge], LearntPersona | None]:
    """What an aspect's train part teaches about the raters: the tuner's results, rated texts in the prompts, and each
    of both together; and a persona of the Critic written for them."""
    settings = run.plan.settings
    if base.tunable():
        tuned = _tuned(run, aspect, base, train)
    else:
        logger.info("%s: %s has no instructions, so there is nothing to tune", aspect.name, settings.judge)
        tuned = TuningResult(base)
    persona = tuned.persona if "persona" in find_preset(settings.judge).dimensions else None
    kinds = learnt_knowledge(base, tuned)
    if settings.examples is None:
        return kinds, persona
    rated = examples_knowledge(base, train, aspect, settings.examples, settings.seed)
    return [*kinds, *rated, *(combine(kind, shown) for kind in kinds if kind.name != TUNED for shown in rated)], persona


def _tuned(run: CompileRun, aspect: Aspect, base: Judge, train: Corpus) -> TuningResult:
    """The results of the optimizer that `--tuner` names."""
    plan, settings, label = run.plan, run.plan.settings, aspect.name
    logger.info("%s: tuning instructions on train (%s)", label, settings.tuner)
    trainset = examples(train, [aspect], grouped=plan.level == "summary", seed=settings.seed)
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
    make_tuner = run.tuner or find_tuner(settings.tuner)
    with stage(f"{label}: tuning"):
        tuned = tuning_result(make_tuner(context).compile(base, trainset=trainset))
    return _as_if_rewritten(base, tuned) if run.at_most else tuned


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


def fixed_granularity(plan: CompilePlan, aspect: Aspect) -> Granularity | None:
    """The granularity of an aspect for which it is not searched: the scale's steps, or none.

    Metrics are not rounded, whose values are not on the scale, nor binary decisions: rounding to half points would move
    scores onto the threshold, and to whole points would remove all differences on the same side of it.
    """
    rule = plan.decision_rules.get(aspect.name)
    searched = plan.judge.on_scale and (rule is None or rule.kind != "binary")
    return None if searched and not aspect.scale.on_steps else default_granularity(plan.judge, aspect)
