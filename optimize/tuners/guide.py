"""The guide tuner: has an LM write a guide to the raters from their ratings, and a persona for the Critic.

A reflection LM sees rated train sources with the judge's own scores, and describes how these raters rate. It writes
several guides, each without part of the train sources, on which its gain in agreement is then measured. The best one is
revised once on half of the sources that it was written without, and the revision is kept if it does better on the other
half. From what the Critic's objections did in debates with these guides (toward the raters or away) the LM writes a
persona, which the search may choose. All calls use the run's store and limits, so a compile that was stopped does not
pay for them again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import dspy
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.optimize.examples import group_keys, group_metric
from debate_judge.optimize.tuners import FoldJudge, LearntPersona, TunerContext, TuningResult, with_tuning_result
from debate_judge.optimize.tuners.guide_author import GuideAuthor
from debate_judge.optimize.tuners.persona import CRITIC, critic_replies
from debate_judge.optimize.tuners.rated_sources import RatedSource, merge_sources, rated_sources
from debate_judge.programs.debate.prompts import guide_in, with_guide
from debate_judge.programs.judge import Judge, Judgement, Transcript, Verdict

logger = logging.getLogger(__name__)

MIN_PROPOSALS = 4
"""Least number of guides that are written, each without a part of train. With fewer, each would be written from less of
a small train set and be poorer; evaluation costs the same."""

PERSONA_ITEMS = 24
"""Items whose debates the persona is written from."""


@dataclass(frozen=True)
class _JudgedExample:
    """A train example with the judge's transcripts, one for each of its items."""

    example: dspy.Example
    transcripts: list[Transcript]
    metric: float
    """`group_metric` of the judge's single call, by which guides are compared."""


_Judged = Mapping[int, _JudgedExample]
"""Index of a train example -> the example, judged."""


@dataclass(frozen=True)
class _Proposal:
    guide: str
    seen: frozenset[int]
    """Indices of the train examples that it was written from."""
    judged: _Judged
    """The examples that it was not written from, judged with the guide."""
    gain: float
    """The mean gain of the metric on these."""


class GuideOptimizer(Teleprompter):
    """A DSPy optimizer that writes a guide to the raters into a judge's instructions.

    Args:
        context: What it works with. Guides are compared by `optimize.examples.group_metric`.
    """

    def __init__(self, context: TunerContext) -> None:
        super().__init__()
        self._context, self._label = context, context.label
        self._proposals = max(MIN_PROPOSALS, context.proposals)

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        """A copy of `student` whose instructions hold a guide to the raters of `trainset`.

        Its `detailed_results` have the persona that was written for the Critic, and the proposals as folds: each was
        written without the examples that it was evaluated on.

        Args:
            student: The judge; it is not changed.
            trainset: Examples of one aspect, as `optimize.examples` makes them.
            kwargs: Not used; guides are evaluated on parts of `trainset` that they were written without.

        Raises:
            dspy.LMError: An LM failed for good.
        """
        if not guide_predictors(student) or not trainset:
            return student
        baseline = dict(enumerate(self._judge(student, trainset)))
        parts = _partition(trainset, self._proposals, self._context.seed)
        # With few examples a part may have none or all of them, and cannot be used.
        usable = [part for part in parts if 0 < len(part) < len(trainset)] or [frozenset[int]()]
        written = self._context.runner.run_concurrently(
            [partial(self._propose, student, baseline, part) for part in usable]
        )
        proposals = [proposal for proposal in written if proposal is not None]
        if not proposals:
            logger.warning("%s: the reflection LM wrote no usable guide", self._label)
            return student
        gains = ", ".join(f"{p.gain:+.3f}" for p in proposals)
        logger.info("%s: %d guides, gains on unseen train sources %s", self._label, len(proposals), gains)
        best = max(proposals, key=lambda proposal: proposal.gain)
        judge = add_guide(student, self._revised(student, baseline, best))
        folds = [FoldJudge(add_guide(student, p.guide), _unseen(trainset, p.seen)) for p in proposals]
        return with_tuning_result(judge, TuningResult(judge, tuple(folds), self._write_persona(student, proposals)))

    def _judge(self, judge: Judge, examples: Iterable[dspy.Example], rounds: int = 0) -> list[_JudgedExample]:
        examples = list(examples)
        items = [item for example in examples for item in example.questions]
        transcripts = iter(self._context.runner.converse(judge, items, rounds, f"{self._label}: guide"))
        judged = []
        for example in examples:
            example_transcripts = [next(transcripts) for _ in example.questions]
            scores = [_score(judge.judgement(t, 0)) for t in example_transcripts]
            judged.append(_JudgedExample(example, example_transcripts, self._metric(example, scores)))
        return judged

    def _metric(self, example: dspy.Example, scores: Sequence[float | None]) -> float:
        absolute_scale = self._context.absolute_scales.get(example.questions[0].aspect.name)
        return group_metric(example.ratings, scores, self._context.objective or self._context.statistic, absolute_scale)

    def _propose(self, student: Judge, baseline: _Judged, unseen: frozenset[int]) -> _Proposal | None:
        """A guide written without the examples `unseen`, with its gain over `baseline`, the judge without a guide."""
        seen = [i for i in baseline if i not in unseen]
        guide = self._author(baseline).write(_rated_sources(baseline[i] for i in seen))
        if guide is None:
            return None
        judged = self._judge_with_guide(student, guide, baseline, sorted(unseen))
        return _Proposal(guide, frozenset(seen), judged, _gain(baseline, judged))

    def _judge_with_guide(
        self, student: Judge, guide: str, baseline: _Judged, indices: Sequence[int], rounds: int = 0
    ) -> _Judged:
        judged = self._judge(add_guide(student, guide), (baseline[i].example for i in indices), rounds)
        return dict(zip(indices, judged, strict=True))

    def _author(self, judged: _Judged) -> GuideAuthor:
        item = next(iter(judged.values())).example.questions[0]
        return GuideAuthor(self._context.reflection_lm, item.task, item.aspect, self._context.guide_words)

    def _revised(self, student: Judge, baseline: _Judged, best: _Proposal) -> str:
        """The best guide, revised on half of its unseen examples if the revision does better on the other half."""
        unseen, half = list(best.judged.items()), len(best.judged) // 2
        if not half:
            return best.guide
        revision, validation = unseen[:half], dict(unseen[half:])
        revised = self._author(baseline).revise(best.guide, _rated_sources(judged for _, judged in revision))
        if revised is None:
            return best.guide
        before = _gain(baseline, validation)
        after = _gain(baseline, self._judge_with_guide(student, revised, baseline, list(validation)))
        logger.info("%s: revised guide %+.3f, unrevised %+.3f on the same sources", self._label, after, before)
        return revised if after > before else best.guide

    def _write_persona(self, student: Judge, proposals: Sequence[_Proposal]) -> LearntPersona | None:
        """A persona written from debates with the best guides, each about sources that its guide does not know, as the
        sources are that the judge will meet."""
        if not (student.debate_config.rounds and CRITIC in student.tunable()):
            return None
        debated: dict[int, _JudgedExample] = {}
        for proposal in sorted(proposals, key=lambda proposal: -proposal.gain):
            unseen = _first_items(proposal.judged, PERSONA_ITEMS - _items(debated.values()))
            debated |= self._judge_with_guide(student, proposal.guide, proposal.judged, unseen, 1)
        if not debated:
            return None
        former = student.instructions()[CRITIC]
        examples = [debated[i] for i in sorted(debated)]
        sources = [source for e in examples for source in critic_replies(e.example, e.transcripts)]
        text = self._author(debated).persona(former, merge_sources(sources))
        if text is None or text == former:
            return None
        return LearntPersona(text, group_keys(e.example for e in examples))


def _items(judged: Iterable[_JudgedExample]) -> int:
    return sum(len(example.transcripts) for example in judged)


def _first_items(judged: _Judged, items: int) -> list[int]:
    """The first examples with together so many items, or all."""
    counts = accumulate(len(example.transcripts) for example in judged.values())
    return [i for i, count in zip(judged, counts, strict=True) if count - len(judged[i].transcripts) < items]


def _gain(before: _Judged, after: _Judged) -> float:
    """The mean gain of the metric on the examples of `after`; 0 without any."""
    return sum(new.metric - before[i].metric for i, new in after.items()) / len(after) if after else 0.0


def add_guide(judge: Judge, guide: str) -> Judge:
    """A copy of the judge with the guide in the instructions of its `guide_predictors`."""
    copy = judge.deepcopy()
    for name, predictor in copy.named_predictors():
        if name in guide_predictors(judge):
            instructions = with_guide(predictor.signature.instructions, guide)
            predictor.signature = predictor.signature.with_instructions(instructions)
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


def _unseen(trainset: Sequence[dspy.Example], seen: Iterable[int]) -> frozenset[tuple[str, str]]:
    """The groups of the examples that share none with those that a guide was written from."""
    groups = frozenset[str]().union(*(_group_ids(trainset[i]) for i in seen))
    return group_keys(example for example in trainset if not groups & _group_ids(example))


def _group_ids(example: dspy.Example) -> frozenset[str]:
    return frozenset(item.group for item in example.questions)


def _partition(examples: Sequence[dspy.Example], proposals: int, seed: int) -> list[frozenset[int]]:
    """The examples that each guide is written without: a partition by sources; fewer parts if there are few sources."""
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
