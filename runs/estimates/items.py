"""Estimates of runs that judge items: scoring new texts with an export, and comparing judges."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tqdm import tqdm

from debate_judge.data.schema import Aspect, Corpus, RatedGroup
from debate_judge.programs.compiled import AspectJudge
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import Item, Judge, corpus_items
from debate_judge.runs.estimates.dry_run import NOTHING, Estimate, Extent, Ledger, Stage, Target, dry_run_all
from debate_judge.runs.runner.runner import JudgeRunner

SCORED, COMPARED = 200, 96
"""Items that are sampled, over all aspects: where one judge scores them, and where each judge of a table does."""


LEAST_GROUPS = 2
"""Of a sample, so that there is something to correlate."""


class Sample:
    """A seeded sample of a stream of items of any length, each different item at most once.

    What was met is remembered by a hash, about 100 bytes each; of the items themselves only the sample is kept
    (Vitter, Random sampling with a reservoir, 1985, algorithm R).

    Args:
        size: Most items to keep.
        seed: Of the choice.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.items: list[Item] = []
        self.everything = Extent()
        self._size = size
        self._dice = random.Random(seed)
        self._met: set[int] = set()

    def add(self, item: Item) -> None:
        """Take in the next item."""
        key = int(item.key, 16)
        if key in self._met:
            return
        self._met.add(key)
        self.everything.items += 1
        self.everything.bytes += size_of(item)
        if len(self.items) < self._size:
            self.items.append(item)
        elif (place := self._dice.randrange(self.everything.items)) < self._size:
            self.items[place] = item

    def stage(self, name: str) -> Stage:
        """The stage in which the sample stands for all items."""
        return Stage.of(name, self.everything, extent(self.items))


def size_of(item: Item) -> int:
    """Bytes of the texts that a call about the item holds."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in (item.source, item.context, item.text))


def extent(items: Iterable[Item]) -> Extent:
    """Number and length of the different items among `items`."""
    sizes = {item.key: size_of(item) for item in items}
    return Extent(len(sizes), sum(sizes.values()))


def sampled_groups(groups: Iterable[RatedGroup], size: int, seed: int = 0) -> tuple[RatedGroup, ...]:
    """A seeded sample of whole groups with about `size` candidates, and two groups at least where there are two."""
    order = list(groups)
    random.Random(seed).shuffle(order)
    kept = count = 0
    while kept < len(order) and (count < size or kept < LEAST_GROUPS):
        count, kept = count + len(order[kept].candidates), kept + 1
    return tuple(order[:kept])


def estimate_scoring(
    target: Target, judges: Mapping[str, AspectJudge], aspects: Sequence[Aspect], items: Iterator[Item]
) -> tuple[Estimate, int]:
    """Estimate a scoring run, by role.

    Args:
        target: The LM that would be asked.
        judges: Aspect name -> its judge.
        aspects: What is scored.
        items: All items of the input, which are read once, as a stream.

    Returns:
        The estimate, and the number of items.

    Raises:
        InputError: The input cannot be read.
    """
    samples = {aspect.name: Sample(max(1, SCORED // len(aspects))) for aspect in aspects}
    count = 0
    for item in tqdm(items, desc="reading", unit="item", delay=2, file=sys.stderr):
        samples[item.aspect.name].add(item)
        count += 1

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        for aspect, sample in samples.items():
            ledger.stage = sample.stage("scoring")
            judge = judges[aspect].judge.dry_run_copy()
            # New texts come one at a time, also to a judge that could compare two.
            judge.compares = False
            _dry_run(runner, judge, sample.items)

    return dry_run_all(target, work, lambda stage, role: role), count


def _dry_run(runner: JudgeRunner, judge: Judge, items: Sequence[Item]) -> None:
    # Reference metrics ask no LM, and may load large models to say what an estimate does not need.
    if judge.named_predictors():
        runner.judge(judge, items)


def estimate_comparison(
    target: Target, entrants: Mapping[str, Mapping[str, AspectJudge]], corpus: Corpus, aspects: Sequence[Aspect]
) -> Estimate:
    """Estimate a comparison, judge by judge; a call that an earlier judge makes too is counted there alone.

    Args:
        target: The LM that would be asked.
        entrants: Name -> aspect name -> judge, in the order in which they are run.
        corpus: Its candidates are scored.
        aspects: In these aspects.

    Raises:
        InputError: The spec names no LM, or the prices cannot be read.
    """
    few = replace(corpus, groups=sampled_groups(corpus.groups, max(1, COMPARED // len(aspects))))
    samples = {aspect.name: corpus_items(few, aspect) for aspect in aspects}
    extents = {aspect.name: extent(corpus_items(corpus, aspect)) for aspect in aspects}
    steps = tqdm(total=3 * len(entrants), desc="dry run", unit="judge", delay=2, file=sys.stderr)

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        for name, judges in entrants.items():
            for aspect, items in samples.items():
                ledger.stage = Stage.of(name, extents[aspect], extent(items))
                _dry_run(runner, judges[aspect].judge.dry_run_copy(), items)
            steps.update()

    with steps:
        found = dry_run_all(target, work, lambda stage, role: stage)
    # A judge that asks no LM has its row too.
    return Estimate({name: found.rows.get(name, NOTHING) for name in entrants}, target)
