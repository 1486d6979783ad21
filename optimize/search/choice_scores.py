"""The scores of each point on the sources that it is chosen by, train and dev, with the fewest LM calls.

No prompt depends on the number of rounds. So each variant of the judge debates to a number of rounds; every smaller n,
and every granularity, is read off that debate at no LM call. Only a Tie-breaker at a given n asks again, about what n
rounds left open.

What was learnt from the ratings of a train source must not be judged by that source. There a variant is represented by
judges that learnt the same from other train sources (cross-fitting); where there is none, train is not used for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from debate_judge.data.agreement.tables import Agreement, GroupScores, Level, Statistic, agreement_table
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.optimize.search.points import JudgeVariant, Point
from debate_judge.optimize.tuners import AspectGroup
from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.judge import Item, Judge, Judgement, corpus_items
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores

ChoicePart = Literal["dev", "train"]

PARTS: tuple[ChoicePart, ...] = ("dev", "train")

JOINTLY = "aspects jointly"
"""The label of calls that are about several units."""


@dataclass(frozen=True)
class CrossFitted:
    """A judge, and the out-of-fold judges that represent it on train."""

    judge: Judge
    on_train: Mapping[AspectGroup, Judge] | None = None
    """For each train group the judge that learnt without it; None where the judge has learnt nothing from train."""
    seen: frozenset[AspectGroup] = frozenset()
    """Train groups that something in all of these judges was learnt from."""

    def at(self, part: ChoicePart, place: AspectGroup) -> Judge | None:
        """The judge for a group; None where every judge has seen its ratings."""
        if part == "train" and place in self.seen:
            return None
        return self.judge if part == "dev" or self.on_train is None else self.on_train.get(place)


@dataclass
class _Debates:
    """What was asked about the items of a unit."""

    transcripts: list[Transcript | None]
    """One for each item; None where it was not asked about, or where every judge has seen its rating."""
    rounds: list[float]
    """The most rounds for which each item was asked about; -1 where it was not."""
    verdicts: dict[tuple[int, int], Judgement] = field(default_factory=dict)
    """Item and n -> the judgement after n rounds, which every granularity and every block of a search needs."""

    def keep(self, item: int, transcript: Transcript, rounds: int) -> None:
        self.transcripts[item], self.rounds[item] = transcript, rounds
        # What failed before may have gone well this time.
        self.verdicts.clear()

    def verdict(self, judge: Judge, item: int, rounds: int) -> Judgement | None:
        transcript = self.transcripts[item]
        if transcript is None:
            return None
        if (item, rounds) not in self.verdicts:
            self.verdicts[item, rounds] = judge.judgement(transcript, rounds)
        return self.verdicts[item, rounds]


@dataclass(frozen=True)
class _Open:
    """An item of a unit that has to be asked about, and the judge to ask."""

    unit: ChoiceScores
    number: int
    item: Item
    judge: Judge


class ChoiceScores:
    """Judgements of the items that a unit is chosen by, at any point, each debate held once and each tie broken once.

    Args:
        variants: The judges to choose from.
        parts: The corpora to choose by, train and dev.
        aspects: Those that share the judge.
        runner: Asks.
        label: Of the aspects, for progress and estimates.
        fixed: Aspect -> the granularity that its scores are read in whatever a point says.
    """

    def __init__(
        self,
        variants: Mapping[JudgeVariant, CrossFitted],
        parts: Mapping[ChoicePart, Corpus],
        aspects: Sequence[Aspect],
        runner: JudgeRunner,
        *,
        label: str,
        fixed: Mapping[str, Granularity],
    ) -> None:
        self.variants = variants
        self.aspects = tuple(aspects)
        self.runner = runner
        self._parts = {part: parts[part] for part in PARTS if part in parts}
        self._label = label
        self._fixed = fixed
        self._units: tuple[ChoiceScores, ...] = (self,)
        self._items: list[tuple[ChoicePart, Item]] = [
            (part, item)
            for part, corpus in self._parts.items()
            for aspect in self.aspects
            for item in corpus_items(corpus, aspect)
        ]
        self._scores: dict[tuple[Point, frozenset[str] | None], tuple[dict[str, list[GroupScores]], float]] = {}
        # The Tie-breaker reads the transcript up to n, so what it says at one n is nothing for another.
        self._debates: dict[tuple[JudgeVariant, int | None], _Debates] = {}

    def granularity(self, aspect: str, point: Point) -> Granularity:
        """The granularity that the aspect's scores are read in at a point."""
        return self._fixed.get(aspect, point.granularity)

    @property
    def groups(self) -> list[str]:
        """Ids of the groups that are chosen by."""
        return [group.id for corpus in self._parts.values() for group in corpus.groups]

    def judgements(self, point: Point, only: Collection[str] | None = None) -> list[Judgement | None]:
        """A judgement of each item, part by part and aspect by aspect in corpus order; None where none is allowed.

        Args:
            point: How it is judged.
            only: Ids of the groups that are asked about, and judged; by default all.
        """
        debates = self._debate(point.variant, point.rounds, only)
        if point.tie_breaker and point.rounds:
            debates = self._broken(point.variant, point.rounds, only)
        judge, items = self.variants[point.variant].judge, enumerate(self._items)
        return [debates.verdict(judge, i, point.rounds) for i, (_, item) in items if only is None or item.group in only]

    def scores(self, point: Point, only: Collection[str] | None = None) -> tuple[dict[str, list[GroupScores]], float]:
        """Scores by aspect and group, without the groups that no judge may say anything about; LM calls per item.

        The arguments are those of `judgements`.
        """
        # Blocks compare the best points on the same groups again and again.
        key = point, None if only is None else frozenset(only)
        if key not in self._scores:
            self._scores[key] = self._read(point, only)
        return self._scores[key]

    def prefetch(self, points: Iterable[Point], only: Collection[str] | None = None) -> None:
        """Ask the LM for what it has not said yet of the scores at these points; arguments as of `scores`."""
        for point in points:
            self.scores(point, only)

    def _read(self, point: Point, only: Collection[str] | None) -> tuple[dict[str, list[GroupScores]], float]:
        by_aspect: dict[str, list[GroupScores]] = {aspect.name: [] for aspect in self.aspects}
        scored: list[Judgement] = []
        judgements = iter(self.judgements(point, only))
        for corpus in self._parts.values():
            groups = [group for group in corpus.groups if only is None or group.id in only]
            for aspect in self.aspects:
                by_group = [(g, [next(judgements) for _ in g.candidates]) for g in groups]
                known = [
                    (g, [j for j in scores_of_group if j is not None])
                    for g, scores_of_group in by_group
                    if None not in scores_of_group
                ]
                flat = [judgement for _, scores_of_group in known for judgement in scores_of_group]
                part = replace(corpus, groups=tuple(group for group, _ in known))
                # Granularity is applied to finished judgements: it needs no debate of its own.
                by_aspect[aspect.name] += group_scores(part, aspect, flat, self.granularity(aspect.name, point))
                scored += flat
        return by_aspect, calls_per_item(scored) if scored else 0.0

    @property
    def held(self) -> dict[JudgeVariant, int]:
        """The variants that debated about every item, with the number of rounds; reading these costs nothing."""
        least = {
            variant: min(debates.rounds, default=-1.0) for (variant, n), debates in self._debates.items() if n is None
        }
        return {variant: int(rounds) for variant, rounds in least.items() if 0 <= rounds < math.inf}

    def by_rounds(
        self, variant: JudgeVariant, aspect: str, statistic: Statistic, level: Level, seed: int
    ) -> list[Agreement]:
        """Agreement of one variant at every n whose debates were held, without Tie-breaker, as given."""
        # For a chart: fewer resamples than for evidence show as much.
        agreements = []
        for rounds in range(self.held[variant] + 1):
            point = Point(variant.knowledge, variant.persona, rounds, False, "given", variant.reading)
            scores, _ = self.scores(point)
            table = agreement_table({aspect: scores[aspect]}, resamples=1000, seed=seed, levels=(level,))
            agreements.append(table.aspects[aspect][level][statistic])
        return agreements

    def share_calls(self, units: Iterable[ChoiceScores]) -> None:
        """Have joint judges asked about the aspects of all these units, of which this is one, at once."""
        self._units = tuple(units)

    def _debate(self, variant: JudgeVariant, rounds: int, only: Collection[str] | None) -> _Debates:
        """Debates of at least so many rounds about the items of these groups."""
        what = f"debates, {variant.persona}, knowledge: {variant.knowledge}, {variant.reading}"

        def ask(judge: Judge, items: Sequence[_Open], label: str) -> list[Transcript]:
            return self.runner.converse(judge, [pending.item for pending in items], rounds, f"{label}: {what}")

        return self._ask((variant, None), "debates", rounds, only, ask)

    def _broken(self, variant: JudgeVariant, rounds: int, only: Collection[str] | None) -> _Debates:
        """These debates after `rounds` rounds, with the Tie-breaker's decision."""
        what = f"ties, {variant.persona}, knowledge: {variant.knowledge}, {variant.reading}, n = {rounds}"

        def ask(judge: Judge, items: Sequence[_Open], label: str) -> list[Transcript]:
            transcripts = [pending.unit._debates[variant, None].transcripts[pending.number] for pending in items]
            open_at_n = [transcript.until(rounds) for transcript in transcripts if transcript is not None]
            return self.runner.break_tie(judge, [pending.item for pending in items], open_at_n, f"{label}: {what}")

        return self._ask((variant, rounds), "tie-breaks", rounds, only, ask)

    def _of(self, key: tuple[JudgeVariant, int | None]) -> _Debates:
        return self._debates.setdefault(key, _Debates([None] * len(self._items), [-1.0] * len(self._items)))

    def _ask(
        self,
        key: tuple[JudgeVariant, int | None],
        kind: str,
        rounds: int,
        only: Collection[str] | None,
        ask: Callable[[Judge, Sequence[_Open], str], list[Transcript]],
    ) -> _Debates:
        """Let the judges have the items that they were not asked about for so many rounds; `ask` takes a judge, its
        items, and their label."""
        joint = key[0].reading == "joint" and len(self._units) > 1
        label = JOINTLY if joint else self._label

        def keep(part: ChoicePart, judge: Judge, items: Sequence[_Open]) -> None:
            with stage(search_stage(label, kind, part)):
                transcripts = ask(judge, items, label)
            for pending, transcript in zip(items, transcripts, strict=True):
                pending.unit._of(key).keep(pending.number, transcript, rounds)

        units, works = self._units if joint else (self,), list[Callable[[], None]]()
        for part in self._parts:
            missing = [entry for unit in units for entry in unit._open(key, part, rounds, only)]
            works += [
                partial(keep, part, judge, pending) for judge, pending in (_jointly if joint else _by_judge)(missing)
            ]
        self.runner.run_concurrently(works)
        return self._of(key)

    def _open(
        self, key: tuple[JudgeVariant, int | None], part: ChoicePart, rounds: int, only: Collection[str] | None
    ) -> list[_Open]:
        """The items of a part of which less is known than so many rounds, with the judge to ask about each."""
        known, pending = self._of(key), []
        for number, (of, item) in enumerate(self._items):
            if of != part or known.rounds[number] >= rounds or (only is not None and item.group not in only):
                continue
            judge = self.variants[key[0]].at(part, (item.aspect.name, item.group))
            if judge is None:
                known.rounds[number] = math.inf
            else:
                pending.append(_Open(self, number, item, judge))
        return pending


def _by_judge(items: Iterable[_Open]) -> list[tuple[Judge, list[_Open]]]:
    """Each judge with its items."""
    by_judge: dict[int, tuple[Judge, list[_Open]]] = {}
    for pending in items:
        by_judge.setdefault(id(pending.judge), (pending.judge, []))[1].append(pending)
    return list(by_judge.values())


def _jointly(items: Sequence[_Open]) -> list[tuple[Judge, list[_Open]]]:
    """The same where aspects share calls: groups go together that have the same judge as each other in every aspect."""
    of_group: dict[str, dict[str, Judge]] = {}
    for pending in items:
        of_group.setdefault(pending.item.group, {})[pending.item.aspect.name] = pending.judge
    by_judges: dict[tuple[tuple[str, int], ...], tuple[dict[str, Judge], set[str]]] = {}
    for group, judges in of_group.items():
        key = tuple((aspect, id(judge)) for aspect, judge in judges.items())
        by_judges.setdefault(key, (judges, set()))[1].add(group)
    return [
        (shared.judge, [o for o in items if o.item.group in groups and o.item.aspect.name in shared.aspects])
        for judges, groups in by_judges.values()
        for shared in shared_judges(judges)
    ]


def search_stage(label: str, kind: str, part: ChoicePart) -> str:
    """Name of the stage in which a search asks about the items of a part."""
    return f"{label}: search, {kind} on {part}"
