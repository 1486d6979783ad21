"""Knowledge about the raters, a parameter of the search: each kind can be applied to every variant of the judge.

A `Knowledge` has a function that applies it to a judge, and the same for knowledge that was learnt without parts of
train, for cross-fitting. `combine` makes one of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from debate_judge.data.schema import Aspect, Corpus
from debate_judge.optimize.search.choice_scores import CrossFittedJudge
from debate_judge.optimize.search.points import TUNED, JudgeVariant
from debate_judge.optimize.tuners import GroupKey, TuningResult
from debate_judge.optimize.tuners.guide import add_guide, guide_of
from debate_judge.optimize.tuners.rated_examples import show_examples, show_precedents
from debate_judge.programs.judge import Judge

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
