"""What a judge can know of the raters, as an axis of the search: each kind can be given to every variant of the judge.

A kind says how a judge is given it, and the same learnt without parts of train, for cross-fitting. A new kind is a
function that returns a `Knowledge`; two kinds are combined by `combine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from debate_judge.data.schema import Aspect, Corpus
from debate_judge.optimize.search.choice_scores import CrossFitted
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Reading, SearchSpace
from debate_judge.optimize.settings import WantedExamples
from debate_judge.optimize.tuners import GroupKey, Tuned
from debate_judge.optimize.tuners.guide import guide_of, guided
from debate_judge.optimize.tuners.rated_examples import ScoresByText, with_rated_examples
from debate_judge.programs.judge import Judge

TOGETHER = "together"
"""Entry of a judge's configuration that says how many candidates of a source share its calls."""

JOINT = "joint"
"""Entry of a judge's configuration that says whether aspects share its calls as well."""

MAX_TOGETHER = 16
"""Candidates that a search lets a judge read side by side: as many as were measured to be read as well as alone."""

TUNED = "tuned"
"""Knowledge and persona of a judge whose instructions were rewritten as a whole."""

ApplyKnowledge = Callable[[Judge], Judge]
"""From a judge to a copy of it that knows something of the raters."""


@dataclass(frozen=True)
class Knowledge:
    """One kind of knowledge of the raters."""

    name: str
    apply: ApplyKnowledge
    folds: tuple[tuple[ApplyKnowledge, frozenset[GroupKey]], ...] = ()
    """The same, learnt without the ratings of these train groups."""

    def apply_to(self, judge: Judge) -> CrossFitted:
        """The judge with this knowledge, and its out-of-fold judges on train."""
        out_of_fold: dict[GroupKey, Judge] = {}
        for apply, unseen in self.folds:
            informed = apply(judge)
            for key in unseen:
                out_of_fold.setdefault(key, informed)
        return CrossFitted(self.apply(judge), out_of_fold)


def combine(first_kind: Knowledge, second_kind: Knowledge, name: str = "both") -> Knowledge:
    """Two kinds together; a train group counts where a fold of each has not seen it."""

    def chain(first: ApplyKnowledge, second: ApplyKnowledge) -> ApplyKnowledge:
        return lambda judge: second(first(judge))

    folds = [
        (chain(first, second), unseen & also)
        for first, unseen in first_kind.folds
        for second, also in second_kind.folds
        if unseen & also
    ]
    return Knowledge(name, chain(first_kind.apply, second_kind.apply), tuple(folds))


def guide_knowledge(base: Judge, tuned: Tuned) -> Knowledge | None:
    """The guide that a tuner wrote into the judge's instructions, if a guide is all that it changed."""
    return _knowledge_of("guide", tuned, _with_guide) if _differs_only_in_guide(base, tuned.judge) else None


def examples_knowledge(
    corpus: Corpus, aspects: Sequence[Aspect], wanted: WantedExamples, seed: int, scores: ScoresByText
) -> Knowledge:
    """Rated candidates of train in the prompts, pairs by the `scores` that the judge gave them. No prompt has an
    example of a source that it asks about, so that train tells what they are worth like any other source."""

    def apply(judge: Judge) -> Judge:
        return with_rated_examples(judge, corpus, aspects, wanted, seed=seed, scores=scores)

    everywhere = frozenset((aspect.name, group.id) for aspect in aspects for group in corpus.groups)
    return Knowledge("examples", apply, ((apply, everywhere),))


def rewritten_knowledge(tuned: Tuned) -> Knowledge:
    """A judge whose roles were rewritten by a tuner, in place of the one that it is given to."""
    return _knowledge_of(TUNED, tuned, _replacement)


def _knowledge_of(name: str, tuned: Tuned, apply: Callable[[Judge], ApplyKnowledge]) -> Knowledge:
    return Knowledge(name, apply(tuned.judge), tuple((apply(fold.judge), fold.unseen) for fold in tuned.folds))


def learnt_knowledge(base: Judge, tuned: Tuned) -> list[Knowledge]:
    """What a tuner learnt, as kinds of knowledge; empty if it has changed nothing."""
    kinds = [] if tuned.start is None else learnt_knowledge(base, tuned.start)
    # What it started from unchanged is that kind, with its folds.
    known = [base] if tuned.start is None else [base, tuned.start.judge]
    if _tunable_state(tuned.judge) in [_tunable_state(judge) for judge in known]:
        return kinds
    # Beside a guide another one is a judge of its own: kinds go by their names.
    guide = None if kinds else guide_knowledge(base, tuned)
    return [*kinds, guide or rewritten_knowledge(tuned)]


def reading_options(reading: Reading) -> dict[str, int]:
    """The entries of a judge's configuration by which it reads candidates alone, or with as many others as a search
    tries."""
    return {TOGETHER: 0 if reading == "alone" else MAX_TOGETHER}


class VariantJudges(dict[JudgeVariant, CrossFitted]):
    """The judges of a space for one unit, each made when it is first wanted: most never are.

    A kind of knowledge that other units have and this one does not is no knowledge here, so that all units can be asked
    about all points.

    Args:
        personas: Name -> the untuned judge with this persona.
        kinds: What is known of the raters.
        space: Its variants.
        seen: Name of a persona -> the train groups that it was learnt from.
    """

    def __init__(
        self,
        personas: Mapping[str, Judge],
        kinds: Iterable[Knowledge],
        space: SearchSpace,
        seen: Mapping[str, frozenset[GroupKey]] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._personas, self._kinds = personas, {kind.name: kind for kind in kinds}
        self._space, self._seen = space, seen

    def __missing__(self, variant: JudgeVariant) -> CrossFitted:
        base = self._personas.get(variant.persona, self._personas[self._space.personas[0]])
        reading: dict[str, object] = {}
        if variant.reading != self._space.default_reading:
            # In a joint call are as many candidates as in others.
            shared: Reading = next((reading for reading in self._space.readings if reading != "alone"), "alone")
            reading |= (
                {**reading_options(shared), JOINT: True}
                if variant.reading == "joint"
                else reading_options(variant.reading)
            )
        if reading:
            base = base.from_config({**base.config(), **reading})
        kind = self._kinds.get(variant.knowledge)
        # Folds that share what was tuned may want it at the same moment, and judges are told apart by their identity.
        cross_fitted = CrossFitted(base) if kind is None else kind.apply_to(base)
        return self.setdefault(variant, replace(cross_fitted, seen=self._seen.get(variant.persona, frozenset())))


def space_axes(kinds: Iterable[Knowledge]) -> tuple[tuple[str, ...], tuple[JudgeVariant, ...]]:
    """The values of the axis `knowledge`, and the variants that have a Critic of their own."""
    names = list(dict.fromkeys(kind.name for kind in kinds))
    shared = tuple(name for name in names if name != TUNED)
    return (NO_KNOWLEDGE, *shared), ((JudgeVariant(TUNED, TUNED),) if TUNED in names else ())


def _tunable_state(judge: Judge) -> list[Any]:
    """What a tuner may change: instructions and demonstrations."""
    return [(p.signature.instructions, [dict(demo) for demo in p.demos]) for p in judge.predictors()]


def _differs_only_in_guide(base: Judge, judge: Judge) -> bool:
    return bool(guide_of(judge)) and guided(judge, "").instructions() == base.instructions()


def _with_guide(informed: Judge) -> ApplyKnowledge:
    return lambda judge: guided(judge, guide_of(informed))


def _replacement(tuned: Judge) -> ApplyKnowledge:
    def apply(judge: Judge) -> Judge:
        rewritten_judge: Judge = tuned.deepcopy()
        rewritten_judge.together, rewritten_judge.joint = judge.together, judge.joint
        return rewritten_judge

    return apply
