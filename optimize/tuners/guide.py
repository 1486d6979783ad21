"""The guide tuner: has an LM write a guide to the raters from their ratings, and a persona for the Critic.

A reflection LM sees rated train sources with the judge's own scores and reasons, and describes how these raters rate.
It writes several guides, each without part of the train sources, on which its gain in agreement is then measured. The
best one is revised once on half of the sources that it was written without, and the revision is kept if it does better
on the other half. From the effects of the Critic's replies on the first half the LM writes a persona, which is kept if
debates with it do better on the other half. All calls use the run's store and limits, so a compile that was stopped
does not pay for them again.
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

from debate_judge.optimize.examples import group_keys, group_metric
from debate_judge.optimize.tuners import FoldJudge, LearntPersona, TunerContext, TuningResult, with_tuning_result
from debate_judge.optimize.tuners.guide_author import GuideAuthor
from debate_judge.optimize.tuners.persona import CRITIC, critic_replies
from debate_judge.optimize.tuners.rated_sources import RatedSource, merge_sources, rated_sources
from debate_judge.programs.judge import Judge, Judgement, Verdict
from debate_judge.programs.roles.guide import guide_in, with_guide
from debate_judge.programs.transcript import Transcript

logger = logging.getLogger(__name__)

MIN_PROPOSALS = 4
"""Least number of guides that are written, each without a part of train. With fewer, each would be written from less of
a small train set and be poorer; evaluation costs the same."""


@dataclass(frozen=True)
class _JudgedExample:
    """A train example with the judge's transcripts, one for each of its items."""

    example: dspy.Example
    transcripts: list[Transcript]
    metric: float
    """`group_metric` of the judge after the rounds that guides are evaluated with."""


@dataclass(frozen=True)
class _Proposal:
    guide: str
    seen: frozenset[int]
    """Indices of the train examples that it was written from."""
    judged: Mapping[int, _JudgedExample]
    """Index -> example that it was not written from, judged with the guide."""
    gain: float
    """The mean gain of the metric on these."""


@dataclass(frozen=True)
class _Guide:
    """The guide for one aspect, or an empty text if none could be written."""

    text: str
    proposals: Mapping[int, _Proposal]
    """Number of a part -> the guide that was written without it."""
    revision: Mapping[int, _JudgedExample] = field(default_factory=dict)
    """Index -> example that a revision was written from and the first version was not, judged with that version."""
    validation: Mapping[int, _JudgedExample] = field(default_factory=dict)
    """Index -> example that neither version was written from, judged with the guide."""


class GuideOptimizer(Teleprompter):
    """A DSPy optimizer that writes a guide to the raters into a judge's instructions, and a persona into its Critic's.

    Args:
        context: What it works with. Guides are compared by `optimize.examples.group_metric`.
        persona: Whether a persona of the Critic is written, too.
    """

    def __init__(self, context: TunerContext, *, persona: bool = True) -> None:
        super().__init__()
        self._context, self._label, self._persona = context, context.label, persona
        self._run_concurrently = context.runner.run_concurrently
        self._proposals = max(MIN_PROPOSALS, context.proposals)

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        """A copy of `student` whose instructions hold a guide to the raters of `trainset`, and whose Critic has a
        persona written for them if debates with it do better.

        Its `detailed_results` have the judge without the persona, and the proposals as folds: each was written without
        the examples that it was evaluated on.

        Args:
            student: The judge; it is not changed.
            trainset: Examples as `optimize.examples` makes them, of one or several aspects.
            kwargs: Not used; guides are evaluated on parts of `trainset` that they were written without.

        Raises:
            dspy.LMError: An LM failed for good.
        """
        if not guide_predictors(student) or not trainset:
            return student
        tuned = self._tune(student, trainset)
        judge = tuned.judge if tuned.persona is None else with_persona(tuned.judge, tuned.persona.text)
        return with_tuning_result(judge, tuned)

    def _tune(self, student: Judge, trainset: list[dspy.Example]) -> TuningResult:
        by_aspect: dict[str, list[int]] = {}
        for index, example in enumerate(trainset):
            by_aspect.setdefault(example.questions[0].aspect.name, []).append(index)
        parts = _partition(trainset, self._proposals, self._context.seed)
        jobs = []
        for indices in by_aspect.values():
            aspect_parts = [[i for i, index in enumerate(indices) if index in part] for part in parts]
            jobs.append(partial(self._write_guide, student, [trainset[index] for index in indices], aspect_parts))
        guides: dict[str, _Guide] = dict(zip(by_aspect, self._run_concurrently(jobs), strict=True))
        folds = []
        for number in range(len(parts)):
            proposed = {name: guide.proposals[number] for name, guide in guides.items() if number in guide.proposals}
            # The judge has the guides to all aspects, so a source that one of them was written from is seen for all.
            examples_seen = (trainset[by_aspect[name][i]] for name, p in proposed.items() for i in p.seen)
            seen = {group for example in examples_seen for group in _group_ids(example)}
            if proposed:
                text = _join_guides({name: p.guide for name, p in proposed.items()}, len(by_aspect))
                examples = (trainset[i] for name in proposed for i in by_aspect[name])
                unseen = group_keys(example for example in examples if not seen & _group_ids(example))
                folds.append(FoldJudge(add_guide(student, text), unseen))
        judge = add_guide(student, _join_guides({name: guide.text for name, guide in guides.items()}, len(by_aspect)))
        persona = self._write_persona(judge, next(iter(guides.values()))) if len(guides) == 1 else None
        return TuningResult(judge, tuple(folds), persona)

    def _write_guide(self, student: Judge, examples: list[dspy.Example], parts: Sequence[Sequence[int]]) -> _Guide:
        """The best guide for one aspect, and the proposal of each part."""
        baseline = self._judge_examples(student, examples)
        # With few examples of an aspect, a part may have none or all of them, and cannot be used.
        unseen_by_part = {number: unseen for number, unseen in enumerate(parts) if 0 < len(unseen) < len(baseline)} or {
            0: []
        }
        written = self._run_concurrently(
            [partial(self._propose, student, baseline, unseen) for unseen in unseen_by_part.values()]
        )
        proposals: dict[int, _Proposal] = {n: p for n, p in zip(unseen_by_part, written, strict=True) if p is not None}
        if not proposals:
            logger.warning("%s: the reflection LM wrote no usable guide", self._label)
            return _Guide("", {})
        best = max(proposals.values(), key=lambda p: p.gain)
        logger.info(
            "%s: %d guides, gains on unseen train sources %s", self._label, len(proposals),
            ", ".join(f"{p.gain:+.3f}" for p in proposals.values()),
        )  # fmt: skip
        return self._revise_best(student, baseline, best, proposals)

    def _judge_examples(self, judge: Judge, examples: list[dspy.Example]) -> list[_JudgedExample]:
        items = [item for example in examples for item in example.questions]
        rounds = _evaluation_rounds(judge)
        transcripts = iter(self._context.runner.converse(judge, items, rounds, f"{self._label}: guide"))
        judged = []
        for example in examples:
            example_transcripts = [next(transcripts) for _ in example.questions]
            scores = [_score(judge.judgement(t, rounds)) for t in example_transcripts]
            judged.append(_JudgedExample(example, example_transcripts, self._metric(example, scores)))
        return judged

    def _metric(self, example: dspy.Example, scores: Sequence[float | None]) -> float:
        absolute_scale = self._context.absolute_scales.get(example.questions[0].aspect.name)
        return group_metric(example.ratings, scores, self._context.objective or self._context.statistic, absolute_scale)

    def _propose(self, student: Judge, baseline: Sequence[_JudgedExample], unseen: Sequence[int]) -> _Proposal | None:
        """A guide written without the examples `unseen`, with its gain over `baseline`, the judge without a guide."""
        seen = [i for i in range(len(baseline)) if i not in set(unseen)]
        guide = self._author(baseline).write(_rated_sources(baseline[i] for i in seen))
        if guide is None:
            return None
        judged = self._judge_with_guide(student, baseline, guide, unseen)
        return _Proposal(guide, frozenset(seen), judged, _gain(baseline, judged))

    def _judge_with_guide(
        self, student: Judge, baseline: Sequence[_JudgedExample], guide: str, indices: Sequence[int]
    ) -> dict[int, _JudgedExample]:
        """Index -> its example, judged with the guide."""
        if not indices:
            return {}
        judged = self._judge_examples(add_guide(student, guide), [baseline[i].example for i in indices])
        return dict(zip(indices, judged, strict=True))

    def _author(self, judged: Sequence[_JudgedExample]) -> GuideAuthor:
        item = judged[0].example.questions[0]
        return GuideAuthor(self._context.reflection_lm, item.task, item.aspect, self._context.guide_words)

    def _revise_best(
        self, student: Judge, baseline: Sequence[_JudgedExample], best: _Proposal, proposals: Mapping[int, _Proposal]
    ) -> _Guide:
        """The best guide, revised on half of its unseen examples if the revision does better on the other half."""
        unseen, half = list(best.judged.items()), len(best.judged) // 2
        unrevised = _Guide(best.guide, proposals, dict(unseen[:half]), dict(unseen[half:]))
        if not half:
            return unrevised
        revised = self._author(baseline).revise(best.guide, _rated_sources(unrevised.revision.values()))
        if revised is None:
            return unrevised
        judged = self._judge_with_guide(student, baseline, revised, list(unrevised.validation))
        before, after = _gain(baseline, unrevised.validation), _gain(baseline, judged)
        logger.info("%s: revised guide %+.3f, unrevised %+.3f on the same sources", self._label, after, before)
        return replace(unrevised, text=revised, validation=judged) if after > before else unrevised

    def _write_persona(self, judge: Judge, guide: _Guide) -> LearntPersona | None:
        """A persona written from the effects of the Critic's replies, if debates with it do better on other sources."""
        revision, validation = list(guide.revision.values()), list(guide.validation.values())
        can_debate = _evaluation_rounds(judge) and CRITIC in judge.tunable()
        if not (self._persona and can_debate and revision and validation):
            return None
        former = judge.instructions()[CRITIC]
        sources = [source for judged in revision for source in critic_replies(judged.example, judged.transcripts)]
        text = self._author(revision).persona(former, merge_sources(sources))
        if text is None or text == former:
            return None
        rejudged = self._judge_examples(with_persona(judge, text), [judged.example for judged in validation])
        gain = _gain(validation, dict(enumerate(rejudged)))
        logger.info("%s: Critic's persona written, %+.3f on unseen train sources", self._label, gain)
        seen = group_keys(judged.example for judged in (*revision, *validation))
        return LearntPersona(text, seen) if gain > 0 else None


def _evaluation_rounds(judge: Judge) -> int:
    """Rounds of debate that guides are evaluated with: one, if there are any. It shows most of a guide's effect for a
    fraction of the calls."""
    return min(1, judge.debate_config.rounds)


def _gain(
    before: Sequence[_JudgedExample] | Mapping[int, _JudgedExample], after: Mapping[int, _JudgedExample]
) -> float:
    """The mean gain of the metric on the examples of `after`; 0 without any."""
    return sum(new.metric - before[i].metric for i, new in after.items()) / len(after) if after else 0.0


def _join_guides(guides: Mapping[str, str], aspects: int) -> str:
    """The guides to several aspects as one text."""
    return "\n".join(text if aspects == 1 else f"{name}:\n{text}" for name, text in guides.items() if text)


def add_guide(judge: Judge, guide: str) -> Judge:
    """A copy of the judge with the guide in the instructions of its `guide_predictors`."""
    copy = judge.deepcopy()
    for name, predictor in copy.named_predictors():
        if name in guide_predictors(judge):
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


def guide_predictors(judge: Judge) -> tuple[str, ...]:
    """Names of the predictors that get a guide: the Scorer's, whose instructions all roles read, or without one all."""
    names = judge.tunable()
    return ("scorer",) if "scorer" in names else names


def guide_of(judge: Judge) -> str:
    """The guide in a judge's instructions, or an empty text."""
    return next((guide for text in judge.instructions().values() if (guide := guide_in(text))), "")


def _rated_sources(examples: Iterable[_JudgedExample]) -> list[RatedSource]:
    """The rated sources of these examples for the reflection LM, each once."""
    return merge_sources(source for judged in examples for source in rated_sources(judged.example, judged.transcripts))


def _group_ids(example: dspy.Example) -> frozenset[str]:
    return frozenset(item.group for item in example.questions)


def _partition(examples: Sequence[dspy.Example], proposals: int, seed: int) -> list[frozenset[int]]:
    """The examples that each guide is written without: a partition by sources, so that the guides to all aspects are
    written from the same ones; fewer parts if there are few sources."""
    by_source: dict[frozenset[str], list[int]] = {}
    for index, example in enumerate(examples):
        by_source.setdefault(_group_ids(example), []).append(index)
    sources = list(by_source.values())
    random.Random(seed).shuffle(sources)
    count = max(1, min(proposals, len(sources) - 1))
    # A single guide is written from two thirds; with fewer than three sources from all.
    parts = [sources[: len(sources) // 3]] if count == 1 else [sources[i::count] for i in range(count)]
    return [frozenset(index for indices in part for index in indices) for part in parts]


def _score(judgement: Judgement) -> float | None:
    return judgement.score if isinstance(judgement, Verdict) else None
