"""Samples of what a run would judge, and the estimate of a run that scores new texts with an export."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from debate_judge.data.schema import Aspect, RatedGroup, fingerprint
from debate_judge.programs.compiled import AspectJudge, CompiledJudge, shared_judges
from debate_judge.programs.dry_run import REPLY_TOKENS, EstimateCase
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.estimates.dry_run import Estimate, EstimateTarget, ItemTotals, Ledger, Stage, dry_run_all
from debate_judge.runs.export.lm_choice import foreign_address, lm_of
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import group_by_source, judge_in_order

SCORED = 200
"""Items that are sampled, over all aspects."""

MIN_GROUPS = 2
"""Of a sample, so that there is something to correlate."""


class Sample:
    """A seeded sample of a stream of questions of any length, each different question at most once.

    What was met is remembered by a hash, about 100 bytes each; of the questions themselves only the sample is kept
    (Vitter, Random sampling with a reservoir, 1985, algorithm R).
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.questions: list[Question] = []
        self.everything = ItemTotals()
        self._size = size
        self._rng = random.Random(seed)
        self._met: set[int] = set()

    @property
    def items(self) -> list[Item]:
        """What the sampled questions are about."""
        return [item for question in self.questions for item in question.items]

    def add(self, question: Question) -> None:
        """Take in the next question."""
        key = int(fingerprint(question.key), 16)
        if key in self._met:
            return
        self._met.add(key)
        self.everything.items += 1
        self.everything.bytes += _length(question)
        if len(self.questions) < self._size:
            self.questions.append(question)
        elif (place := self._rng.randrange(self.everything.items)) < self._size:
            self.questions[place] = question

    def stage(self, row: str) -> Stage:
        """The stage in which the sample stands for all questions."""
        sampled = ItemTotals(len(self.questions), sum(map(_length, self.questions)))
        return Stage.of(row, self.everything, sampled)


def _length(question: Question) -> int:
    shared = replace(question.items[0], text="")
    return size_of(shared) + sum(len(text.encode("utf-8", "surrogatepass")) for text in question.texts)


def size_of(item: Item) -> int:
    """Bytes of the texts that a call about the item holds."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in (item.source, item.context, item.text))


def extent(items: Iterable[Item]) -> ItemTotals:
    """Number and length of the different items among `items`."""
    sizes = {item.key: size_of(item) for item in items}
    return ItemTotals(len(sizes), sum(sizes.values()))


def sampled_groups(groups: Iterable[RatedGroup], size: int, seed: int = 0) -> tuple[RatedGroup, ...]:
    """A seeded sample of whole groups with about `size` candidates, and two groups at least where there are two."""
    order = list(groups)
    random.Random(seed).shuffle(order)
    kept = count = 0
    while kept < len(order) and (count < size or kept < MIN_GROUPS):
        count, kept = count + len(order[kept].candidates), kept + 1
    return tuple(order[:kept])


def dry_run_copy(judge: CompiledJudge) -> CompiledJudge:
    """The judge without what must not be asked in a dry run: web searches, models of metrics."""
    aspects = {
        name: AspectJudge(chosen.judge.dry_run_copy(), chosen.granularity) for name, chosen in judge.aspects.items()
    }
    return CompiledJudge(judge.task, aspects)


def scoring_target(
    export: Export,
    lm: str | None,
    api_base: str | None,
    store: str | Path | None,
    options: LMOptions | None,
    *,
    max_tokens: int | None = None,
    reply_tokens: tuple[int, int, int] = REPLY_TOKENS,
) -> EstimateTarget:
    """The LM that an export's judge would ask, with another LM, address or longest reply than those of the compile
    where they are given; without a store, stored replies are not recalled.
    """
    # Nothing is sent, so the export's address is as good as one that the user names.
    spec, address, settings = lm_of(export, lm, api_base or foreign_address(export, lm, None), max_tokens)
    replies = None if store is None else replies_folder(store, spec)
    return EstimateTarget(spec, address, replies, settings, options or LMOptions(), reply_tokens)


def estimate_scoring(
    target: EstimateTarget, judge: CompiledJudge, aspects: Sequence[Aspect], items: Iterator[Item]
) -> tuple[Estimate, int]:
    """Estimate a scoring run, by role; returns it with the number of items, which are read once, as a stream."""
    shared = shared_judges({aspect.name: judge.aspects[aspect.name].judge for aspect in aspects})
    share = SCORED // len(aspects)
    samples = {shared_judge: Sample(max(1, share // max(1, shared_judge.judge.together))) for shared_judge in shared}
    count = 0
    with StepProgress("items read", None) as steps:
        for batch in group_by_source(steps.track(items)):
            count += len(batch)
            for shared_judge, sample in samples.items():
                batch_items = [item for item in batch if item.aspect.name in shared_judge.aspects]
                for question in group_into_questions(shared_judge.judge, batch_items, compare_pairs=False).questions:
                    sample.add(question)

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        copy = dry_run_copy(judge)
        for shared_judge, sample in samples.items():
            with stage(shared_judge.aspects[0]):
                deque(judge_in_order(runner, copy, sample.items), maxlen=0)

    stages = {shared_judge.aspects[0]: sample.stage("scoring") for shared_judge, sample in samples.items()}
    return dry_run_all(target, stages, work, lambda row, role: role), count
