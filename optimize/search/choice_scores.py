"""The scores of each point on the sources that it is chosen by, train and dev, with the fewest LM calls.

No prompt depends on the number of rounds. So each variant of the judge holds its longest debate only; the scores for
every smaller n and every granularity are derived from it without an LM call. Only a Tie-breaker after n rounds makes
further calls, about the items that are still in dispute then.

A judge must not be evaluated on train sources whose ratings it has learnt from. There a variant is represented by
judges that learnt in the same way from other train sources (cross-fitting); where there is none, train is not used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Literal

from debate_judge.data.agreement.tables import Agreement, GroupScores, Level, Statistic, agreement_table
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.optimize.search.points import JudgeVariant, Point
from debate_judge.optimize.tuners import GroupKey
from debate_judge.programs.judge import Item, Judge, Judgement, corpus_items, round_to_granularity
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.judge_usage import stage
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_ratings

ChoicePart = Literal["dev", "train"]

PARTS: tuple[ChoicePart, ...] = ("dev", "train")


@dataclass(frozen=True)
class CrossFittedJudge:
    """A judge, and the out-of-fold judges that represent it on train."""

    judge: Judge
    out_of_fold: Mapping[GroupKey, Judge] | None = None
    """For each train group the judge that learnt without it; None if the judge has learnt nothing from train."""
    seen: frozenset[GroupKey] = frozenset()
    """Train groups that all of these judges have learnt from."""

    def judge_for(self, part: ChoicePart, key: GroupKey) -> Judge | None:
        """The judge for a group; None if every judge has seen its ratings."""
        if part == "train" and key in self.seen:
            return None
        return self.judge if part == "dev" or self.out_of_fold is None else self.out_of_fold.get(key)


@dataclass
class _TranscriptCache:
    """A variant's transcripts of the items of a unit, and the judgements read from them."""

    transcripts: list[Transcript | None]
    """One for each item; None if it was not judged, or if every judge has seen its rating."""
    rounds: list[float]
    """The number of rounds to which each item was debated; -1 if it was not judged, infinity if it may not be."""
    verdicts: defaultdict[int, dict[int, Judgement]] = field(default_factory=lambda: defaultdict(dict))
    """Index of an item -> n -> the judgement after n rounds."""

    def record(self, item: int, transcript: Transcript, rounds: int) -> None:
        self.transcripts[item], self.rounds[item] = transcript, rounds
        # A call that failed before may have succeeded this time.
        self.verdicts[item].clear()

    def verdict(self, judge: Judge, item: int, rounds: int) -> Judgement | None:
        transcript = self.transcripts[item]
        if transcript is None:
            return None
        verdicts = self.verdicts[item]
        if rounds not in verdicts:
            verdicts[rounds] = judge.judgement(transcript, rounds)
        return verdicts[rounds]


@dataclass(frozen=True)
class _UnjudgedItem:
    """An item that still has to be judged, and by which judge."""

    index: int
    item: Item
    judge: Judge


class ChoiceScores:
    """Judgements and scores of one unit, the aspects that share a judge, at any point, with each debate held once.

    Args:
        variants: The judges to choose from.
        parts: The corpora to choose by, train and dev.
        aspects: Those of the unit.
        runner: Makes the LM calls.
        label: The unit's name in progress and estimates.
        fixed_granularities: Aspect -> its granularity, for aspects that do not take that of the point.
    """

    def __init__(
        self,
        variants: Mapping[JudgeVariant, CrossFittedJudge],
        parts: Mapping[ChoicePart, Corpus],
        aspects: Sequence[Aspect],
        runner: JudgeRunner,
        *,
        label: str,
        fixed_granularities: Mapping[str, Granularity],
    ) -> None:
        self.variants = variants
        self.aspects = tuple(aspects)
        self.runner = runner
        self._parts = {part: parts[part] for part in PARTS if part in parts}
        self._label = label
        self._fixed_granularities = fixed_granularities
        self._items: list[tuple[ChoicePart, Item]] = [
            (part, item)
            for part, corpus in self._parts.items()
            for aspect in self.aspects
            for item in corpus_items(corpus, aspect)
        ]
        self._ratings: list[tuple[Aspect, list[GroupScores]]] = [
            (aspect, group_ratings(corpus, aspect)) for corpus in self._parts.values() for aspect in self.aspects
        ]
        self._scores: dict[tuple[Point, frozenset[str] | None], tuple[dict[str, list[GroupScores]], float]] = {}
        # The key has n for a Tie-breaker, which reads the transcript up to n, and None for debates.
        self._caches: dict[tuple[JudgeVariant, int | None], _TranscriptCache] = {}

    def granularity(self, aspect: str, point: Point) -> Granularity:
        """The granularity of the aspect's scores at a point."""
        return self._fixed_granularities.get(aspect, point.granularity)

    @property
    def groups(self) -> list[str]:
        """Ids of the groups to choose by."""
        return [group.id for corpus in self._parts.values() for group in corpus.groups]

    def judgements(self, point: Point, group_ids: Collection[str] | None = None) -> list[Judgement | None]:
        """A judgement of each item, by part, then aspect, in corpus order; None where every judge has seen the rating.

        Args:
            point: The configuration of the judge.
            group_ids: Ids of the groups that are judged; by default all.
        """
        cache = self._hold_debates(point.variant, point.rounds, group_ids)
        if point.tie_breaker and point.rounds:
            cache = self._break_ties(point.variant, point.rounds, group_ids)
        judge, items = self.variants[point.variant].judge, enumerate(self._items)
        return [
            cache.verdict(judge, i, point.rounds)
            for i, (_, item) in items
            if group_ids is None or item.group in group_ids
        ]

    def scores(
        self, point: Point, group_ids: Collection[str] | None = None
    ) -> tuple[dict[str, list[GroupScores]], float]:
        """Scores by aspect and group, without the groups whose ratings every judge has seen; and LM calls per item.

        The arguments are those of `judgements`.
        """
        # Every block compares the best points on the groups of earlier blocks again.
        key = point, None if group_ids is None else frozenset(group_ids)
        if key not in self._scores:
            self._scores[key] = self._compute_scores(point, group_ids)
        return self._scores[key]

    def prefetch(self, points: Iterable[Point], group_ids: Collection[str] | None = None) -> None:
        """Make the LM calls that the scores at these points still need; arguments as of `scores`."""
        for point in points:
            self.scores(point, group_ids)

    def _compute_scores(
        self, point: Point, group_ids: Collection[str] | None
    ) -> tuple[dict[str, list[GroupScores]], float]:
        by_aspect: dict[str, list[GroupScores]] = {aspect.name: [] for aspect in self.aspects}
        scored: list[Judgement] = []
        judgements = iter(self.judgements(point, group_ids))
        for aspect, ratings in self._ratings:
            granularity = self.granularity(aspect.name, point)
            for group in ratings:
                if group_ids is not None and group.group not in group_ids:
                    continue
                group_judgements = list(islice(judgements, len(group.candidates)))
                judged = [judgement for judgement in group_judgements if judgement is not None]
                if len(judged) == len(group_judgements):
                    # Finished judgements are rounded: a granularity needs no debate of its own.
                    scores = tuple(round_to_granularity(judgement, aspect, granularity) for judgement in judged)
                    by_aspect[aspect.name].append(replace(group, scores=scores))
                    scored += judged
        return by_aspect, calls_per_item(scored) if scored else 0.0

    @property
    def debated_rounds(self) -> dict[JudgeVariant, int]:
        """The variants that debated every item, with the number of rounds, up to which scores need no LM call."""
        by_variant = {
            variant: min(cache.rounds, default=-1.0) for (variant, n), cache in self._caches.items() if n is None
        }
        return {variant: int(rounds) for variant, rounds in by_variant.items() if 0 <= rounds < math.inf}

    def agreement_by_rounds(
        self, variant: JudgeVariant, aspect: str, statistic: Statistic, level: Level, seed: int
    ) -> list[Agreement]:
        """Agreement of a variant after each number of rounds in `debated_rounds`, without Tie-breaker and unrounded."""
        # It is for a chart, which needs fewer resamples than the evidence.
        agreements = []
        for rounds in range(self.debated_rounds[variant] + 1):
            point = Point(variant.knowledge, variant.persona, rounds, False, "given")
            scores, _ = self.scores(point)
            table = agreement_table({aspect: scores[aspect]}, resamples=1000, seed=seed, levels=(level,))
            agreements.append(table.aspects[aspect][level][statistic])
        return agreements

    def _hold_debates(self, variant: JudgeVariant, rounds: int, group_ids: Collection[str] | None) -> _TranscriptCache:
        """The debates of the items of these groups, held to at least `rounds` rounds."""
        description = f"debates, {variant.persona}, knowledge: {variant.knowledge}"

        def ask(judge: Judge, items: Sequence[_UnjudgedItem]) -> list[Transcript]:
            pending = [entry.item for entry in items]
            return self.runner.converse(judge, pending, rounds, f"{self._label}: {description}")

        return self._ask_missing((variant, None), "debates", rounds, group_ids, ask)

    def _break_ties(self, variant: JudgeVariant, rounds: int, group_ids: Collection[str] | None) -> _TranscriptCache:
        """These debates after `rounds` rounds, with the Tie-breaker's decision."""
        description = f"ties, {variant.persona}, knowledge: {variant.knowledge}, n = {rounds}"

        def ask(judge: Judge, items: Sequence[_UnjudgedItem]) -> list[Transcript]:
            transcripts = [self._caches[variant, None].transcripts[pending.index] for pending in items]
            cut_at_n = [transcript.until(rounds) for transcript in transcripts if transcript is not None]
            pending = [entry.item for entry in items]
            return self.runner.break_tie(judge, pending, cut_at_n, f"{self._label}: {description}")

        return self._ask_missing((variant, rounds), "tie-breaks", rounds, group_ids, ask)

    def _cache_of(self, key: tuple[JudgeVariant, int | None]) -> _TranscriptCache:
        return self._caches.setdefault(key, _TranscriptCache([None] * len(self._items), [-1.0] * len(self._items)))

    def _ask_missing(
        self,
        key: tuple[JudgeVariant, int | None],
        call_kind: str,
        rounds: int,
        group_ids: Collection[str] | None,
        ask: Callable[[Judge, Sequence[_UnjudgedItem]], list[Transcript]],
    ) -> _TranscriptCache:
        """Call `ask` with each judge and its items that were not judged with so many rounds."""

        def converse(part: ChoicePart, judge: Judge, items: Sequence[_UnjudgedItem]) -> None:
            with stage(search_stage(self._label, call_kind, part)):
                transcripts = ask(judge, items)
            for pending, transcript in zip(items, transcripts, strict=True):
                self._cache_of(key).record(pending.index, transcript, rounds)

        jobs = [
            partial(converse, part, judge, pending)
            for part in self._parts
            for judge, pending in _group_by_judge(self._pending_items(key, part, rounds, group_ids))
        ]
        self.runner.run_concurrently(jobs)
        return self._cache_of(key)

    def _pending_items(
        self, key: tuple[JudgeVariant, int | None], part: ChoicePart, rounds: int, group_ids: Collection[str] | None
    ) -> list[_UnjudgedItem]:
        """The items of a part that were not judged with so many rounds, each with its judge."""
        cache, pending = self._cache_of(key), []
        for index, (item_part, item) in enumerate(self._items):
            if (
                item_part != part
                or cache.rounds[index] >= rounds
                or (group_ids is not None and item.group not in group_ids)
            ):
                continue
            judge = self.variants[key[0]].judge_for(part, (item.aspect.name, item.group))
            if judge is None:
                cache.rounds[index] = math.inf
            else:
                pending.append(_UnjudgedItem(index, item, judge))
        return pending


def _group_by_judge(items: Iterable[_UnjudgedItem]) -> list[tuple[Judge, list[_UnjudgedItem]]]:
    """Each judge with its items."""
    by_judge: dict[int, tuple[Judge, list[_UnjudgedItem]]] = {}
    for pending in items:
        by_judge.setdefault(id(pending.judge), (pending.judge, []))[1].append(pending)
    return list(by_judge.values())


def search_stage(label: str, call_kind: str, part: ChoicePart) -> str:
    """Name of the stage in which a search judges the items of a part."""
    return f"{label}: search, {call_kind} on {part}"
