"""Samples of the items of a run, and the estimate of a run that scores new texts with an export."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from debate_judge.data.schema import Aspect, RatedGroup, fingerprint
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.dry_run import REPLY_TOKENS, EstimateCase
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.options import LMOptions, MaxTokens
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.estimates.dry_run import (
    Estimate,
    EstimateTarget,
    Stage,
    TextTotals,
    estimate_by_dry_run,
)
from debate_judge.runs.export.lm_choice import resolve_lm, unconfirmed_address
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.runner.judge_usage import stage
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import group_by_source, judge_in_order

_SAMPLED_ITEMS = 200
"""Size of the sample of a scoring run, over all aspects."""

_MIN_GROUPS = 2
"""Fewest groups of a sample, so that correlations are defined."""


class QuestionSample:
    """A seeded sample of a stream of questions of any length, each different question at most once.

    Kept in memory are a hash of every question, about 100 bytes each, and the sampled questions (Vitter, Random
    sampling with a reservoir, 1985, algorithm R).
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.questions: list[Question] = []
        self.population = TextTotals()
        self._size = size
        self._rng = random.Random(seed)
        self._seen: set[int] = set()

    @property
    def items(self) -> list[Item]:
        """The items of the sampled questions."""
        return [item for question in self.questions for item in question.items]

    def add(self, question: Question) -> None:
        """Add the next question of the stream."""
        key = int(fingerprint(question.key), 16)
        if key in self._seen:
            return
        self._seen.add(key)
        self.population.count += 1
        self.population.bytes += _question_bytes(question)
        if len(self.questions) < self._size:
            self.questions.append(question)
        elif (index := self._rng.randrange(self.population.count)) < self._size:
            self.questions[index] = question

    def stage(self, row: str) -> Stage:
        """The stage that scales the sample up to all questions."""
        sampled = TextTotals(len(self.questions), sum(map(_question_bytes, self.questions)))
        return Stage.of(row, self.population, sampled)


def _question_bytes(question: Question) -> int:
    without_text = replace(question.items[0], text="")
    return text_bytes(without_text) + sum(len(i.text.encode("utf-8", "surrogatepass")) for i in question.items)


def text_bytes(item: Item) -> int:
    """Bytes of the texts in a call about the item."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in (item.source, item.context, item.text))


def text_totals(items: Iterable[Item]) -> TextTotals:
    """Number and bytes of the different items among `items`."""
    sizes = {item.key: text_bytes(item) for item in items}
    return TextTotals(len(sizes), sum(sizes.values()))


def sampled_groups(groups: Iterable[RatedGroup], size: int, seed: int = 0) -> tuple[RatedGroup, ...]:
    """A seeded sample of whole groups with about `size` candidates, and at least `_MIN_GROUPS` groups."""
    shuffled = list(groups)
    random.Random(seed).shuffle(shuffled)
    count = candidates = 0
    while count < len(shuffled) and (candidates < size or count < _MIN_GROUPS):
        candidates, count = candidates + len(shuffled[count].candidates), count + 1
    return tuple(shuffled[:count])


def dry_run_copy(judge: CompiledJudge) -> CompiledJudge:
    """A copy of the judge for a dry run, without web searches and models of metrics."""
    aspects = {name: AspectJudge(each.judge.dry_run_copy(), each.granularity) for name, each in judge.aspects.items()}
    return CompiledJudge(judge.task, aspects)


def scoring_target(
    export: Export,
    lm: str | None,
    api_base: str | None,
    store: str | Path | None,
    options: LMOptions | None,
    *,
    max_tokens: MaxTokens | None = None,
    reply_tokens: tuple[int, int] = REPLY_TOKENS,
) -> EstimateTarget:
    """The LM of an export's judge, or the given LM, address and longest reply; without a store, no stored replies."""
    # The export's address needs no confirmation, because nothing is sent.
    spec, address, settings = resolve_lm(export, lm, api_base or unconfirmed_address(export, lm, None), max_tokens)
    replies = None if store is None else replies_folder(store, spec)
    return EstimateTarget(spec, address, replies, settings, options or LMOptions(), reply_tokens)


def estimate_scoring(
    target: EstimateTarget, judge: CompiledJudge, aspects: Sequence[Aspect], items: Iterator[Item]
) -> tuple[Estimate, int]:
    """Estimate a scoring run by role; returns the estimate and the number of items, which are streamed."""
    judges = {aspect.name: judge.aspects[aspect.name].judge for aspect in aspects}
    size = _SAMPLED_ITEMS // len(aspects)
    samples = {name: QuestionSample(max(1, size // max(1, each.together))) for name, each in judges.items()}
    count = 0
    with StepProgress("items read", None) as steps:
        for batch in group_by_source(steps.track(items)):
            count += len(batch)
            for name, sample in samples.items():
                members = [item for item in batch if item.aspect.name == name]
                for question in group_into_questions(judges[name], members, compare_pairs=False).questions:
                    sample.add(question)

    def work(case: EstimateCase, runner: JudgeRunner) -> None:
        judge_copy = dry_run_copy(judge)
        for name, sample in samples.items():
            with stage(name):
                deque(judge_in_order(runner, judge_copy, sample.items), maxlen=0)

    stages = {name: sample.stage("scoring") for name, sample in samples.items()}
    return estimate_by_dry_run(target, stages, work, lambda row, role: role), count
