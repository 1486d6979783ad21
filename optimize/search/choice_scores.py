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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Literal

from debate_judge.data.agreement.correlations import agreement_table
from debate_judge.data.agreement.figures import Agreement, GroupScores, Statistic
from debate_judge.data.schema import Aspect, Corpus, Granularity, Level
from debate_judge.optimize.search.points import JudgeVariant, Point
from debate_judge.optimize.tuners import GroupKey
from debate_judge.programs.judge import Judge, Judgement, Transcript, corpus_items, round_to_granularity
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
class _Debates:
    """A variant's transcripts of the items, and the judgements read from them."""

    transcripts: list[Transcript | None]
    """One for each item; None if it was not judged, or if every judge has seen its rating."""
    rounds: list[float]
    """The number of rounds to which each item was debated; -1 if it was not judged, infinity if it may not be."""
    read: defaultdict[int, dict[int, Judgement]] = field(default_factory=lambda: defaultdict(dict))
    """Index of an item -> n -> the judgement after n rounds."""

    def record(self, item: int, transcript: Transcript, rounds: int) -> None:
        self.transcripts[item], self.rounds[item] = transcript, rounds
        # A call that failed before may have succeeded this time.
        self.read[item].clear()

    def judgement(self, judge: Judge, item: int, rounds: int) -> Judgement | None:
        transcript = self.transcripts[item]
        if transcript is None:
            return None
        judgements = self.read[item]
        if rounds not in judgements:
            judgements[rounds] = judge.judgement(transcript, rounds)
        return judgements[rounds]


class ChoiceScores:
    """Judgements and scores of one aspect at any point, with each debate held once.

    Args:
        variants: The judges to choose from.
        parts: The corpora to choose by, train and dev.
        aspect: The aspect.
        runner: Makes the LM calls.
        label: Its name in progress and estimates.
        fixed_granularity: Its granularity, if it does not take that of the point.
    """

    def __init__(
        self,
        variants: Mapping[JudgeVariant, CrossFittedJudge],
        parts: Mapping[ChoicePart, Corpus],
        aspect: Aspect,
        runner: JudgeRunner,
        *,
        label: str,
        fixed_granularity: Granularity | None = None,
    ) -> None:
        self.variants = variants
        self.aspect = aspect
        self.runner = runner
        self._label = label
        self._fixed_granularity = fixed_granularity
        corpora = [(part, parts[part]) for part in PARTS if part in parts]
        self._groups: dict[str, ChoicePart] = {group.id: part for part, corpus in corpora for group in corpus.groups}
        self._items = [(part, item) for part, corpus in corpora for item in corpus_items(corpus, aspect)]
        self._ratings = [group for _, corpus in corpora for group in group_ratings(corpus, aspect)]
        self._scores: dict[tuple[Point, frozenset[str] | None], tuple[list[GroupScores], float]] = {}
        # The key has n for a Tie-breaker, which reads the transcript up to n, and None for debates.
        self._debates: dict[tuple[JudgeVariant, int | None], _Debates] = {}

    def granularity(self, point: Point) -> Granularity:
        """The granularity of the aspect's scores at a point."""
        return self._fixed_granularity or point.granularity

    def parts_of(self, variant: JudgeVariant) -> dict[str, ChoicePart]:
        """Id -> part of the groups to choose by whose ratings not every judge of the variant has seen."""
        judges = self.variants[variant]
        return {g: part for g, part in self._groups.items() if judges.judge_for(part, (self.aspect.name, g))}

    def judgements(self, point: Point, group_ids: Collection[str] | None = None) -> list[Judgement | None]:
        """A judgement of each item, in corpus order; None where every judge has seen the rating.

        Args:
            point: The configuration of the judge.
            group_ids: Ids of the groups that are judged; by default all.
        """
        debates = self._hold(point.variant, point.rounds, group_ids)
        if point.tie_breaker and point.rounds:
            debates = self._break_ties(point.variant, point.rounds, group_ids)
        judge = self.variants[point.variant].judge
        return [
            debates.judgement(judge, index, point.rounds)
            for index, (_, item) in enumerate(self._items)
            if group_ids is None or item.group in group_ids
        ]

    def scores(self, point: Point, group_ids: Collection[str] | None = None) -> tuple[list[GroupScores], float]:
        """Scores by group, without the groups whose ratings every judge has seen; and LM calls per item.

        The arguments are those of `judgements`.
        """
        key = point, None if group_ids is None else frozenset(group_ids)
        if key not in self._scores:
            self._scores[key] = self._compute_scores(point, group_ids)
        return self._scores[key]

    def _compute_scores(self, point: Point, group_ids: Collection[str] | None) -> tuple[list[GroupScores], float]:
        scored: list[GroupScores] = []
        used: list[Judgement] = []
        judgements, granularity = iter(self.judgements(point, group_ids)), self.granularity(point)
        for group in self._ratings:
            if group_ids is not None and group.group not in group_ids:
                continue
            group_judgements = list(islice(judgements, len(group.candidates)))
            judged = [judgement for judgement in group_judgements if judgement is not None]
            if len(judged) == len(group_judgements):
                # Finished judgements are rounded: a granularity needs no debate of its own.
                scores = tuple(round_to_granularity(judgement, self.aspect, granularity) for judgement in judged)
                scored.append(replace(group, scores=scores))
                used += judged
        return scored, calls_per_item(used) if used else 0.0

    @property
    def debated_rounds(self) -> dict[JudgeVariant, int]:
        """The variants that debated every item, with the number of rounds, up to which scores need no LM call."""
        by_variant = {
            variant: min(debates.rounds, default=-1.0) for (variant, n), debates in self._debates.items() if n is None
        }
        return {variant: int(rounds) for variant, rounds in by_variant.items() if 0 <= rounds < math.inf}

    def agreement_by_rounds(
        self, variant: JudgeVariant, statistic: Statistic, level: Level, seed: int
    ) -> list[Agreement]:
        """Agreement of a variant after each number of rounds in `debated_rounds`, without Tie-breaker and unrounded."""
        agreements = []
        for rounds in range(self.debated_rounds[variant] + 1):
            scores, _ = self.scores(Point(variant.knowledge, variant.persona, rounds, False, "given"))
            table = agreement_table({self.aspect.name: scores}, seed=seed, levels=(level,))
            agreements.append(table.aspects[self.aspect.name][level][statistic])
        return agreements

    def _hold(self, variant: JudgeVariant, rounds: int, group_ids: Collection[str] | None) -> _Debates:
        """The debates of the items of these groups, held to at least `rounds` rounds."""
        label = f"{self._label}: debates, {variant.persona}, knowledge: {variant.knowledge}"

        def ask(judge: Judge, indices: Sequence[int]) -> list[Transcript]:
            return self.runner.converse(judge, [self._items[i][1] for i in indices], rounds, label)

        return self._ask_missing((variant, None), "debates", rounds, group_ids, ask)

    def _break_ties(self, variant: JudgeVariant, rounds: int, group_ids: Collection[str] | None) -> _Debates:
        """These debates after `rounds` rounds, with the Tie-breaker's decision."""
        label = f"{self._label}: ties, {variant.persona}, knowledge: {variant.knowledge}, n = {rounds}"
        debates = self._debates[variant, None].transcripts

        def ask(judge: Judge, indices: Sequence[int]) -> list[Transcript]:
            cut_at_n = [transcript.until(rounds) for i in indices if (transcript := debates[i]) is not None]
            return self.runner.break_tie(judge, [self._items[i][1] for i in indices], cut_at_n, label)

        return self._ask_missing((variant, rounds), "tie-breaks", rounds, group_ids, ask)

    def _ask_missing(
        self,
        key: tuple[JudgeVariant, int | None],
        call_kind: str,
        rounds: int,
        group_ids: Collection[str] | None,
        ask: Callable[[Judge, Sequence[int]], list[Transcript]],
    ) -> _Debates:
        """Call `ask` with each judge and the indices of its items that were not judged with so many rounds."""
        size = len(self._items)
        debates = self._debates.setdefault(key, _Debates([None] * size, [-1.0] * size))
        by_judge: dict[tuple[ChoicePart, int], tuple[Judge, list[int]]] = {}
        for index, (part, item) in enumerate(self._items):
            if debates.rounds[index] >= rounds or (group_ids is not None and item.group not in group_ids):
                continue
            judge = self.variants[key[0]].judge_for(part, (item.aspect.name, item.group))
            if judge is None:
                debates.rounds[index] = math.inf
            else:
                by_judge.setdefault((part, id(judge)), (judge, []))[1].append(index)

        def hold(part: ChoicePart, judge: Judge, indices: Sequence[int]) -> None:
            with stage(search_stage(self._label, call_kind, part)):
                transcripts = ask(judge, indices)
            for index, transcript in zip(indices, transcripts, strict=True):
                debates.record(index, transcript, rounds)

        self.runner.run_concurrently(
            [partial(hold, part, judge, indices) for (part, _), (judge, indices) in by_judge.items()]
        )
        return debates


def search_stage(label: str, call_kind: str, part: ChoicePart) -> str:
    """Name of the stage in which a search judges the items of a part."""
    return f"{label}: search, {call_kind} on {part}"
