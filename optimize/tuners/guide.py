"""The guide tuner: has an LM write a guide to the raters from their ratings, and a persona for the Critic.

A reflecting LM sees rated train sources with the judge's own scores and reasons, and describes how these raters rate.
It writes several guides, each without part of the train sources, and each is evaluated on these by its gain in
agreement. The best one is revised once on half of its unseen sources, and the revision is kept if it does better on the
other half, which neither has seen. From what the Critic's replies did on the first half it writes a persona, too, which
is kept if debates with it do better on the other half. All calls use the run's store and limits, so a compile that was
stopped does not pay for them again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import dspy
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.optimize.examples import group_metric, places_of
from debate_judge.optimize.tuners import Fold, LearntPersona, Tuned, Tuning, with_details
from debate_judge.optimize.tuners.guide_author import GuideAuthor
from debate_judge.optimize.tuners.persona import CRITIC, critic_replies
from debate_judge.optimize.tuners.rated_material import RatedSource, merged, rated_sources
from debate_judge.programs.judge import Judge, Judgement, Verdict
from debate_judge.programs.roles.guide import guide_in, with_guide
from debate_judge.programs.transcript import Transcript

logger = logging.getLogger(__name__)

MIN_PROPOSALS = 4
"""Least number of guides that are written, each without a part of train. With fewer and larger parts, each author would
see less of a small train set and write a poorer guide; evaluation costs the same."""


@dataclass(frozen=True)
class _Rated:
    """A train example with the judge's transcripts."""

    example: dspy.Example
    transcripts: list[Transcript]
    metric: float
    """The judge's metric with the rounds that guides are evaluated with."""


@dataclass(frozen=True)
class _Proposal:
    guide: str
    shown: frozenset[int]
    """Indices of the train examples that its author has seen."""
    judged: Mapping[int, _Rated]
    """Index -> example that its author has not seen, judged with the guide."""
    gain: float
    """The mean gain of the metric on these."""


@dataclass(frozen=True)
class _Guide:
    """The guide for one aspect, or an empty text if none could be written."""

    text: str
    proposals: Mapping[int, _Proposal]
    """Number of the part that its author has not seen -> a guide."""
    shown: Mapping[int, _Rated] = field(default_factory=dict)
    """Index -> example, not seen by its author, that a revision was written from, judged with the author's guide."""
    left: Mapping[int, _Rated] = field(default_factory=dict)
    """Index -> example that neither has seen, judged with the guide."""


class GuideOptimizer(Teleprompter):
    """A DSPy optimizer that writes a guide to the raters into a judge's instructions, and a persona into its Critic's.

    Args:
        tuning: What it works with. Guides are compared by `optimize.examples.group_metric`.
    """

    def __init__(self, tuning: Tuning) -> None:
        super().__init__()
        self._tuning = tuning
        self._label, self._limits, self._at_once = tuning.label, tuning.guide, tuning.runner.run_concurrently
        self._proposals = max(MIN_PROPOSALS, tuning.proposals)

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        """A copy of `student` whose instructions hold a guide to the raters of `trainset`, and whose Critic has a
        persona written for them if debates with it do better.

        Its `detailed_results` have the judge without the persona, and the proposals as folds: each was written without
        the examples that it was evaluated on.

        Args:
            student: The judge; it is not changed.
            trainset: Examples as `optimize.examples` makes them, of one or several aspects.
            kwargs: Not used; guides are evaluated on the part of `trainset` that their author has not seen.

        Raises:
            dspy.LMError: An LM failed for good.
        """
        if not informed(student) or not trainset:
            return student
        tuned = self._learnt(student, trainset)
        judge = tuned.judge if tuned.persona is None else with_persona(tuned.judge, tuned.persona.text)
        return with_details(judge, tuned)

    def _learnt(self, student: Judge, trainset: list[dspy.Example]) -> Tuned:
        places: dict[str, list[int]] = {}
        for place, example in enumerate(trainset):
            places.setdefault(example.questions[0].aspect.name, []).append(place)
        parts = _parts(trainset, self._proposals, self._tuning.seed)
        works = []
        for own in places.values():
            own_parts = [[i for i, place in enumerate(own) if place in part] for part in parts]
            works.append(partial(self._guide, student, [trainset[place] for place in own], own_parts))
        found: dict[str, _Guide] = dict(zip(places, self._at_once(works), strict=True))
        folds = []
        for number in range(len(parts)):
            proposed = {name: own.proposals[number] for name, own in found.items() if number in own.proposals}
            # The judge holds the guides to all aspects, so a source seen by the author of one is seen for all.
            seen = {
                group for name, p in proposed.items() for i in p.shown for group in _groups(trainset[places[name][i]])
            }
            if proposed:
                text = _joined({name: p.guide for name, p in proposed.items()}, len(places))
                judged = (trainset[i] for name in proposed for i in places[name])
                unseen = places_of(example for example in judged if not seen & _groups(example))
                folds.append(Fold(guided(student, text), unseen))
        judge = guided(student, _joined({name: guide.text for name, guide in found.items()}, len(places)))
        persona = self._persona(judge, next(iter(found.values()))) if len(found) == 1 else None
        return Tuned(judge, tuple(folds), persona)

    def _guide(self, student: Judge, examples: list[dspy.Example], parts: Sequence[Sequence[int]]) -> _Guide:
        """The best guide for one aspect, and the proposal of each part."""
        rated = self._judged(student, examples)
        # With few examples of an aspect, a part may have none or all of them, and cannot be used.
        usable = {number: unseen for number, unseen in enumerate(parts) if 0 < len(unseen) < len(rated)} or {0: []}
        written = self._at_once([partial(self._proposal, student, rated, unseen) for unseen in usable.values()])
        proposals: dict[int, _Proposal] = {n: p for n, p in zip(usable, written, strict=True) if p is not None}
        if not proposals:
            logger.warning("%s: the reflecting LM wrote no usable guide", self._label)
            return _Guide("", {})
        best = max(proposals.values(), key=lambda p: p.gain)
        logger.info(
            "%s: %d guides, gains on unseen train sources %s", self._label, len(proposals),
            ", ".join(f"{p.gain:+.3f}" for p in proposals.values()),
        )  # fmt: skip
        return self._refined(student, rated, best, proposals)

    def _judged(self, judge: Judge, examples: list[dspy.Example]) -> list[_Rated]:
        items = [item for example in examples for item in example.questions]
        rounds = _rounds(judge)
        transcripts = iter(self._tuning.runner.converse(judge, items, rounds, f"{self._label}: guide"))
        rated = []
        for example in examples:
            example_transcripts = [next(transcripts) for _ in example.questions]
            scores = [_score(judge.judgement(t, rounds)) for t in example_transcripts]
            rated.append(_Rated(example, example_transcripts, self._metric(example, scores)))
        return rated

    def _metric(self, example: dspy.Example, scores: Sequence[float | None]) -> float:
        absolute_scale = self._tuning.absolute_scales.get(example.questions[0].aspect.name)
        return group_metric(example.ratings, scores, self._tuning.objective or self._tuning.statistic, absolute_scale)

    def _proposal(self, student: Judge, rated: Sequence[_Rated], unseen: Sequence[int]) -> _Proposal | None:
        """A guide written without the examples `unseen`, with its gain on these."""
        seen = [i for i in range(len(rated)) if i not in set(unseen)]
        guide = self._author(rated).write(_material(rated[i] for i in seen))
        if guide is None:
            return None
        judged = self._judge_with_guide(student, rated, guide, unseen)
        return _Proposal(guide, frozenset(seen), judged, _gain(rated, judged))

    def _judge_with_guide(
        self, student: Judge, rated: Sequence[_Rated], guide: str, places: Sequence[int]
    ) -> dict[int, _Rated]:
        """Index -> its example, judged with the guide."""
        if not places:
            return {}
        judged = self._judged(guided(student, guide), [rated[i].example for i in places])
        return dict(zip(places, judged, strict=True))

    def _author(self, rated: Sequence[_Rated]) -> GuideAuthor:
        item = rated[0].example.questions[0]
        return GuideAuthor(self._tuning.reflection, item.task, item.aspect, self._limits)

    def _refined(
        self, student: Judge, rated: Sequence[_Rated], best: _Proposal, proposals: Mapping[int, _Proposal]
    ) -> _Guide:
        """The best guide, revised on half of what it has not seen if the revision does better on the other half."""
        unseen = list(best.judged)
        shown, left = unseen[: len(unseen) // 2], unseen[len(unseen) // 2 :]
        kept = _Guide(best.guide, proposals, {i: best.judged[i] for i in shown}, {i: best.judged[i] for i in left})
        if not shown:
            return kept
        revised = self._author(rated).revise(best.guide, _material(kept.shown.values()))
        if revised is None:
            return kept
        judged = self._judge_with_guide(student, rated, revised, left)
        before, after = _gain(rated, kept.left), _gain(rated, judged)
        logger.info("%s: revised guide %+.3f, the one before %+.3f on the same sources", self._label, after, before)
        return replace(kept, text=revised, left=judged) if after > before else kept

    def _persona(self, judge: Judge, guide: _Guide) -> LearntPersona | None:
        """A persona written from what the Critic's replies did, if debates with it do better on sources that it has not
        seen."""
        if not (self._limits.persona and _rounds(judge) and guide.shown and guide.left and CRITIC in judge.tunable()):
            return None
        former = judge.instructions()[CRITIC]
        sources = [s for shown in guide.shown.values() for s in critic_replies(shown.example, shown.transcripts)]
        text = self._author(list(guide.shown.values())).persona(former, merged(sources))
        if text is None or text == former:
            return None
        judged = self._judged(with_persona(judge, text), [shown.example for shown in guide.left.values()])
        gain = _gain(guide.left, dict(zip(guide.left, judged, strict=True)))
        logger.info("%s: Critic's persona written, %+.3f on unseen train sources", self._label, gain)
        seen = places_of(shown.example for shown in (*guide.shown.values(), *guide.left.values()))
        return LearntPersona(text, seen) if gain > 0 else None


def _rounds(judge: Judge) -> int:
    """Rounds of debate that guides are evaluated with: one shows most of a guide's effect, for a fraction of the calls
    of a whole debate."""
    return min(1, judge.debate_config.rounds)


def _gain(before: Sequence[_Rated] | Mapping[int, _Rated], after: Mapping[int, _Rated]) -> float:
    """The mean gain of the metric on the examples of `after`; 0 without any."""
    return sum(new.metric - before[i].metric for i, new in after.items()) / len(after) if after else 0.0


def _joined(guides: Mapping[str, str], aspects: int) -> str:
    """The guides to several aspects as one text."""
    return "\n".join(text if aspects == 1 else f"{name}:\n{text}" for name, text in guides.items() if text)


def guided(judge: Judge, guide: str) -> Judge:
    """A copy of the judge with the guide in the instructions of the `informed` predictors."""
    copy = judge.deepcopy()
    for name, predictor in copy.named_predictors():
        if name in informed(judge):
            instructions = with_guide(predictor.signature.instructions, guide)
            predictor.signature = predictor.signature.with_instructions(instructions)
    return copy


def with_persona(judge: Judge, persona: str) -> Judge:
    """A copy of the judge whose Critic has this persona."""
    copy = judge.deepcopy()
    for name, predictor in copy.named_predictors():
        if name == CRITIC:
            predictor.signature = predictor.signature.with_instructions(persona)
    return copy


def informed(judge: Judge) -> tuple[str, ...]:
    """Names of the predictors that get a guide: the Scorer's, whose instructions all roles read, else all."""
    names = judge.tunable()
    return ("scorer",) if "scorer" in names else names


def guide_of(judge: Judge) -> str:
    """The guide in a judge's instructions, or an empty text."""
    return next((guide for text in judge.instructions().values() if (guide := guide_in(text))), "")


def _material(rated: Iterable[_Rated]) -> list[RatedSource]:
    """The rated sources of these examples for the reflecting LM, each once."""
    return merged(
        source for rated_example in rated for source in rated_sources(rated_example.example, rated_example.transcripts)
    )


def _groups(example: dspy.Example) -> frozenset[str]:
    return frozenset(item.group for item in example.questions)


def _parts(examples: Sequence[dspy.Example], proposals: int, seed: int) -> list[frozenset[int]]:
    """The examples that each proposal's author does not see: a partition by sources, with fewer parts if there are few
    sources. By sources, so that the authors of guides to different aspects see the same ones."""
    by_source: dict[frozenset[str], list[int]] = {}
    for place, example in enumerate(examples):
        by_source.setdefault(_groups(example), []).append(place)
    places = list(by_source.values())
    random.Random(seed).shuffle(places)
    parts = max(1, min(proposals, len(places) - 1))
    # A single guide is written from two thirds; with fewer than three sources from all.
    kept_back = [places[: len(places) // 3]] if parts == 1 else [places[i::parts] for i in range(parts)]
    return [frozenset(place for indices in part for place in indices) for part in kept_back]


def _score(judgement: Judgement) -> float | None:
    return judgement.score if isinstance(judgement, Verdict) else None
