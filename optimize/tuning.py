"""Tuning on train, for every aspect: what is learnt about the raters, as knowledge that any judge can be given.

A `Knowledge` has a function that applies it to a judge, and the same for knowledge that was learnt without parts of
train, for cross-fitting. `combine` makes one of two.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from debate_judge.data.schema import GRANULARITIES, Aspect, Candidate, Corpus, Granularity, RatedGroup
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.search import LEARNT, NO_KNOWLEDGE, TUNED, CrossFittedJudge, JudgeVariant, SearchSpace
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import GroupKey, LearntPersona, TunerContext, TuningResult, tuning_result
from debate_judge.optimize.tuners.guide import CRITIC, add_guide, guide_of
from debate_judge.optimize.tuners.rated import examples
from debate_judge.programs import find_preset
from debate_judge.programs.examples import RatedExample, with_examples, with_precedents
from debate_judge.programs.judge import Judge, default_granularity
from debate_judge.runs.progress import stage

MAX_PER_SOURCE = 4
"""Most candidates of one source. Several, because a source takes more tokens than its candidates, and ratings of the
same source show how raters use the scale."""


def show_examples(judge: Judge, corpus: Corpus, aspects: Sequence[Aspect], count: int, *, seed: int) -> Judge:
    """A copy of the judge that shows `count` rated candidates of `corpus`, the train part, in each aspect.

    Raises:
        InputError: The judge takes no examples.
    """
    return with_examples(judge, [e for aspect in aspects for e in choose_examples(corpus, aspect, count, seed=seed)])


def show_precedents(judge: Judge, corpus: Corpus, aspects: Sequence[Aspect], count: int) -> Judge:
    """A copy of the judge whose Critic is shown the `count` candidates of `corpus`, the train part, most like the one
    that is judged.

    Raises:
        InputError: The judge has no Critic.
    """
    return with_precedents(judge, [e for aspect in aspects for e in rated_candidates(corpus, aspect)], count)


def choose_examples(corpus: Corpus, aspect: Aspect, count: int, *, seed: int) -> list[RatedExample]:
    """Choose rated candidates that span the scale, from as few sources as `MAX_PER_SOURCE` allows.

    Sources with the largest range of ratings come first, and of each the candidates whose ratings are spread most
    evenly. If sources have one candidate each, candidates with evenly spread ratings are chosen from all of them.

    Returns:
        At most `count` examples, those of one source together, from the best rated to the worst. The seed breaks ties.
    """
    groups = _rated(corpus, aspect)
    random.Random(seed).shuffle(groups)
    if all(len(candidates) == 1 for _, candidates in groups):
        chosen = _spread([(group, candidates[0]) for group, candidates in groups], aspect, count)
        return [_example(group, candidate, aspect) for group, candidate in chosen]
    examples: list[RatedExample] = []
    for group, candidates in sorted(groups, key=lambda entry: -_range(entry[1], aspect)):
        chosen = _spread([(group, c) for c in candidates], aspect, min(MAX_PER_SOURCE, count - len(examples)))
        examples += [_example(group, candidate, aspect) for _, candidate in chosen]
    return examples


def rated_candidates(corpus: Corpus, aspect: Aspect) -> list[RatedExample]:
    """Every rated candidate, in the order of the corpus."""
    return [
        _example(group, candidate, aspect) for group, candidates in _rated(corpus, aspect) for candidate in candidates
    ]


def _rated(corpus: Corpus, aspect: Aspect) -> list[tuple[RatedGroup, list[Candidate]]]:
    rated = [
        (group, [candidate for candidate in group.candidates if candidate.rating(aspect.name) is not None])
        for group in corpus.groups
    ]
    return [(group, candidates) for group, candidates in rated if candidates]


def _spread(
    candidates: Sequence[tuple[RatedGroup, Candidate]], aspect: Aspect, count: int
) -> list[tuple[RatedGroup, Candidate]]:
    """Up to `count` candidates with ratings nearest to evenly spaced ones, from the best to the worst."""
    remaining = sorted(candidates, key=lambda entry: -_rating(entry[1], aspect))
    if count >= len(remaining):
        return remaining
    if count < 1:
        return []
    high, low = _rating(remaining[0][1], aspect), _rating(remaining[-1][1], aspect)
    chosen: list[tuple[RatedGroup, Candidate]] = []
    for number in range(count):
        target = high - (high - low) * number / max(1, count - 1)
        chosen.append(min(remaining, key=lambda entry: abs(_rating(entry[1], aspect) - target)))
        remaining.remove(chosen[-1])
    return sorted(chosen, key=lambda entry: -_rating(entry[1], aspect))


def _range(candidates: Sequence[Candidate], aspect: Aspect) -> float:
    ratings = [_rating(candidate, aspect) for candidate in candidates]
    return max(ratings) - min(ratings)


def _rating(candidate: Candidate, aspect: Aspect) -> float:
    rating = candidate.rating(aspect.name)
    if rating is None:
        raise ValueError(f"candidate {candidate.id!r} has no rating of {aspect.name!r}")
    return rating


def _example(group: RatedGroup, candidate: Candidate, aspect: Aspect) -> RatedExample:
    ratings = candidate.ratings[aspect.name]
    return RatedExample(
        aspect=aspect.name,
        group=group.id,
        source=group.source,
        context=group.context,
        candidate=candidate.text,
        rating=_rating(candidate, aspect),
        ratings=tuple(ratings) if len(ratings) > 1 else (),
    )


EXAMPLES, PRECEDENTS = "examples", "precedents"
"""Names of the knowledge that consists of rated texts, for all roles and for the Critic alone."""

_AND = " and "

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
    name = f"{first_kind.name}{_AND}{second_kind.name}"
    return Knowledge(name, chain(first_kind.apply, second_kind.apply), tuple(folds))


def guide_knowledge(base: Judge, tuned: TuningResult) -> Knowledge | None:
    """The guide that a tuner wrote into the judge's instructions, if it changed nothing else."""
    return _knowledge_of("guide", tuned, _with_guide) if _differs_only_in_guide(base, tuned.judge) else None


def examples_knowledge(
    judge: Judge, corpus: Corpus, aspects: Sequence[Aspect], count: int, seed: int
) -> list[Knowledge]:
    """Rated candidates of train in the prompts: `count` of them as examples for every role, and, where the judge has a
    Critic, the `count` most alike as precedents for the Critic alone."""
    # No prompt has a text of the source that it asks about, so no train group is seen.
    all_groups = frozenset((aspect.name, group.id) for aspect in aspects for group in corpus.groups)

    def examples(judge: Judge) -> Judge:
        return show_examples(judge, corpus, aspects, count, seed=seed)

    def precedents(judge: Judge) -> Judge:
        return show_precedents(judge, corpus, aspects, count)

    kinds = [Knowledge(EXAMPLES, examples, ((examples, all_groups),))]
    if judge.shows_precedents and judge.debate_config.rounds:
        kinds.append(Knowledge(PRECEDENTS, precedents, ((precedents, all_groups),)))
    return kinds


def rewritten_knowledge(tuned: TuningResult) -> Knowledge:
    """A judge whose roles were rewritten by a tuner; it replaces the one that it is applied to."""
    return _knowledge_of(TUNED, tuned, _replacement)


def _knowledge_of(name: str, tuned: TuningResult, apply: Callable[[Judge], ApplyKnowledge]) -> Knowledge:
    return Knowledge(name, apply(tuned.judge), tuple((apply(fold.judge), fold.unseen) for fold in tuned.folds))


def learnt_knowledge(base: Judge, tuned: TuningResult) -> list[Knowledge]:
    """What a tuner learnt, as kinds of knowledge; empty if it changed nothing."""
    learnt = [] if tuned.start is None else learnt_knowledge(base, tuned.start)
    # A judge equal to the untuned one or to the starting point adds no kind.
    known = [base] if tuned.start is None else [base, tuned.start.judge]
    if _tunable_state(tuned.judge) in [_tunable_state(judge) for judge in known]:
        return learnt
    # Names are unique: if there is a guide already, a second one counts as a rewritten judge.
    guide = None if learnt else guide_knowledge(base, tuned)
    return [*learnt, guide or rewritten_knowledge(tuned)]


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


def _tunable_state(judge: Judge) -> list[Any]:
    """Instructions and demonstrations, which a tuner may change."""
    return [(p.signature.instructions, [dict(demo) for demo in p.demos]) for p in judge.predictors()]


def _differs_only_in_guide(base: Judge, judge: Judge) -> bool:
    return bool(guide_of(judge)) and add_guide(judge, "").instructions() == base.instructions()


def _with_guide(informed: Judge) -> ApplyKnowledge:
    return lambda judge: add_guide(judge, guide_of(informed))


def _replacement(tuned: Judge) -> ApplyKnowledge:
    return lambda judge: tuned.deepcopy()


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
