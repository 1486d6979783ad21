"""What each point did on the sources that are chosen by, train and dev, at the fewest LM calls.

No prompt depends on the number of rounds. So each variant of the judge debates to a number of rounds; every smaller n,
and every granularity, is read off that debate at no LM call. Only a Tie-breaker at a given n asks again, about what n
rounds left open.

What was learnt from the ratings of a train source must not be judged by that source. There a variant is represented by
judges that learnt the same from other train sources (cross-fitting); where there is none, train says nothing about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from debate_judge.data.agreement.tables import Agreement, GroupScores, Level, Statistic, agreement_table
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.optimize.search.points import JudgeVariant, Point
from debate_judge.optimize.search.spots import ChoicePart, Spot, by_judge, shared
from debate_judge.programs.judge import Item, Judge, Judgement, corpus_items
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores

PARTS: tuple[ChoicePart, ...] = ("dev", "train")

JOINTLY = "aspects jointly"
"""What stands for the label of a unit where calls are about several."""

Place = tuple[str, str]
"""Aspect name and group id."""


@dataclass(frozen=True)
class CrossFitted:
    """A judge, and who stands for it on train."""

    judge: Judge
    on_train: Mapping[Place, Judge] | None = None
    """The judge of each train group that learnt without it; None where the judge has learnt nothing from train."""
    seen: frozenset[Place] = frozenset()
    """Train groups that something in all of these judges was learnt from."""

    def at(self, part: ChoicePart, place: Place) -> Judge | None:
        """Who judges a group; None where every judge has seen its ratings."""
        if part == "train" and place in self.seen:
            return None
        return self.judge if part == "dev" or self.on_train is None else self.on_train.get(place)


@dataclass
class _Held:
    """What was asked about the items of a part."""

    transcripts: list[Transcript | None]
    """One for each item; None where it was not asked about, or where every judge has seen its rating."""
    rounds: list[float]
    """The most rounds for which each item was asked about; -1 where it was not."""
    verdicts: dict[tuple[int, int], Judgement] = field(default_factory=dict)
    """Item and n -> the judgement after n rounds, which every granularity and every block of a search asks for."""

    @classmethod
    def none(cls, items: Sequence[Item]) -> _Held:
        return cls([None] * len(items), [-1.0] * len(items))

    def keep(self, place: int, transcript: Transcript, rounds: int) -> None:
        self.transcripts[place], self.rounds[place] = transcript, rounds
        # What failed before may have gone well this time.
        self.verdicts.clear()

    def verdict(self, judge: Judge, place: int, rounds: int) -> Judgement | None:
        """The judgement of an item after so many rounds; None where none is allowed."""
        transcript = self.transcripts[place]
        if transcript is None:
            return None
        if (place, rounds) not in self.verdicts:
            self.verdicts[place, rounds] = judge.verdict(transcript, rounds)
        return self.verdicts[place, rounds]


Held = Mapping[ChoicePart, _Held]


Read = tuple[Point, tuple[ChoicePart, ...], frozenset[str] | None]
"""A point, and the parts and groups that its scores are of; None for all groups."""


class ChoiceScores:
    """Judgements of the items that a unit is chosen by, at any point, each debate held once and each tie broken once.

    Args:
        variants: The judges to choose from.
        parts: The corpora of the choice.
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
        self._parts = parts
        self._label = label
        self._fixed = fixed
        self._units: tuple[ChoiceScores, ...] = (self,)
        self._scores: dict[Read, tuple[dict[str, list[GroupScores]], float]] = {}
        self._debates: dict[JudgeVariant, Held] = {}
        # The Tie-breaker reads the transcript up to n, so what it says at one n is nothing for another.
        self._ties_broken: dict[tuple[JudgeVariant, int], Held] = {}

    @cached_property
    def _items(self) -> dict[ChoicePart, list[Item]]:
        return {
            part: [item for aspect in self.aspects for item in corpus_items(corpus, aspect)]
            for part, corpus in self._parts.items()
        }

    def granularity(self, aspect: str, point: Point) -> Granularity:
        """The granularity that the aspect's scores are read in at a point."""
        return self._fixed.get(aspect, point.granularity)

    @property
    def groups(self) -> list[str]:
        """Ids of the groups that are chosen by."""
        return [group.id for part in PARTS if part in self._parts for group in self._parts[part].groups]

    def judgements(self, point: Point, part: ChoicePart, only: Collection[str] | None = None) -> list[Judgement | None]:
        """A judgement of each item of the part, aspect by aspect in corpus order; None where none is allowed.

        Args:
            point: How it is judged.
            part: The part.
            only: Ids of the groups that are asked about, and judged; by default all.
        """
        variant, rounds = point.variant, point.rounds
        held = (
            self._broken(variant, rounds, only) if point.tie_breaker and rounds else self._debate(variant, rounds, only)
        )
        judge = self.variants[variant].judge
        items = enumerate(self._items[part])
        return [held[part].verdict(judge, place, rounds) for place, i in items if only is None or i.group in only]

    def scores(
        self, point: Point, parts: Iterable[ChoicePart] = PARTS, only: Collection[str] | None = None
    ) -> tuple[dict[str, list[GroupScores]], float]:
        """Scores by aspect and group, without the groups that no judge may say anything about; LM calls per item.

        Args:
            point: How it is judged.
            parts: The parts that are asked about.
            only: Ids of the groups that are asked about; by default all.
        """
        # Races compare the best points on the same groups again and again.
        key = point, tuple(parts), None if only is None else frozenset(only)
        if key not in self._scores:
            self._scores[key] = self._read(point, key[1], only)
        return self._scores[key]

    def hear(self, points: Iterable[Point], only: Collection[str] | None = None) -> None:
        """Ask the LM for what it has not said yet of the scores at these points; arguments as of `scores`."""
        for point in points:
            self.scores(point, only=only)

    def _read(
        self, point: Point, parts: Iterable[ChoicePart], only: Collection[str] | None
    ) -> tuple[dict[str, list[GroupScores]], float]:
        found: dict[str, list[GroupScores]] = {aspect.name: [] for aspect in self.aspects}
        told: list[Judgement] = []
        for part in parts:
            judgements = iter(self.judgements(point, part, only))
            groups = [group for group in self._parts[part].groups if only is None or group.id in only]
            for aspect in self.aspects:
                by_group = [(g, [next(judgements) for _ in g.candidates]) for g in groups]
                known = [(g, [j for j in own if j is not None]) for g, own in by_group if None not in own]
                flat = [judgement for _, own in known for judgement in own]
                corpus = replace(self._parts[part], groups=tuple(group for group, _ in known))
                # Granularity is applied to finished judgements: it needs no debate of its own.
                found[aspect.name] += group_scores(corpus, aspect, flat, self.granularity(aspect.name, point))
                told += flat
        return found, calls_per_item(told) if told else 0.0

    @property
    def held(self) -> dict[JudgeVariant, int]:
        """The variants that debated about every item, with the number of rounds; reading these costs nothing."""
        least = {
            variant: min((rounds for part in held.values() for rounds in part.rounds), default=-1.0)
            for variant, held in self._debates.items()
        }
        return {variant: int(rounds) for variant, rounds in least.items() if 0 <= rounds < math.inf}

    def by_rounds(
        self, variant: JudgeVariant, aspect: str, statistic: Statistic, level: Level, seed: int
    ) -> list[Agreement]:
        """Agreement of one variant at every n whose debates were held, without Tie-breaker, as given."""
        # For a figure: fewer resamples than for evidence show as much.
        found = []
        for rounds in range(self.held[variant] + 1):
            point = Point(variant.knowledge, variant.persona, rounds, False, "given", variant.reading)
            scores, _ = self.scores(point)
            table = agreement_table({aspect: scores[aspect]}, resamples=1000, seed=seed, levels=(level,))
            found.append(table.aspects[aspect][level][statistic])
        return found

    def share_calls(self, units: Iterable[ChoiceScores]) -> None:
        """Have joint judges asked about the aspects of all these units, of which this is one, at once."""
        self._units = tuple(units)

    def _debate(self, variant: JudgeVariant, rounds: int, only: Collection[str] | None) -> Held:
        """Debates of at least so many rounds about the items of these groups."""
        what = f"debates, {variant.persona}, knowledge: {variant.knowledge}, {variant.reading}"

        def held(unit: ChoiceScores) -> Held:
            return unit._debates.setdefault(variant, unit._nothing())

        def ask(judge: Judge, spots: Sequence[Spot], label: str) -> list[Transcript]:
            return self.runner.converse(judge, [spot.item for spot in spots], rounds, f"{label}: {what}")

        self._ask(held, variant, "debates", rounds, only, ask)
        return held(self)

    def _broken(self, variant: JudgeVariant, rounds: int, only: Collection[str] | None) -> Held:
        what = f"ties, {variant.persona}, knowledge: {variant.knowledge}, {variant.reading}, n = {rounds}"
        self._debate(variant, rounds, only)

        def held(unit: ChoiceScores) -> Held:
            return unit._ties_broken.setdefault((variant, rounds), unit._nothing())

        def ask(judge: Judge, spots: Sequence[Spot], label: str) -> list[Transcript]:
            told = [spot.unit._debates[variant][spot.part].transcripts[spot.place] for spot in spots]
            open_at_n = [transcript.until(rounds) for transcript in told if transcript is not None]
            return self.runner.break_tie(judge, [spot.item for spot in spots], open_at_n, f"{label}: {what}")

        self._ask(held, variant, "tie-breaks", rounds, only, ask)
        return held(self)

    def _nothing(self) -> Held:
        return {part: _Held.none(items) for part, items in self._items.items()}

    def _ask(
        self,
        held: Callable[[ChoiceScores], Held],
        variant: JudgeVariant,
        kind: str,
        rounds: int,
        only: Collection[str] | None,
        ask: Callable[[Judge, Sequence[Spot], str], list[Transcript]],
    ) -> None:
        """Let the judge of each place have the items that it was not asked about for so many rounds; `ask` takes judge,
        items, and what they are labelled."""
        joint = variant.reading == "joint" and len(self._units) > 1
        label = JOINTLY if joint else self._label
        units = self._units if joint else (self,)

        def hear(part: ChoicePart, judge: Judge, spots: Sequence[Spot]) -> None:
            with stage(search_stage(label, kind, part)):
                transcripts = ask(judge, spots, label)
            for spot, transcript in zip(spots, transcripts, strict=True):
                held(spot.unit)[part].keep(spot.place, transcript, rounds)

        works: list[Callable[[], None]] = []
        for part in self._items:
            spots = [spot for unit in units for spot in unit._open(held(unit), variant, part, rounds, only)]
            works += [partial(hear, part, judge, own) for judge, own in (shared(spots) if joint else by_judge(spots))]
        self.runner.at_once(works)

    def _open(
        self, held: Held, variant: JudgeVariant, part: ChoicePart, rounds: int, only: Collection[str] | None
    ) -> list[Spot]:
        """The items of a part of which less is known than so many rounds, with who is to be asked about each."""
        own, found = held[part], []
        for place, item in enumerate(self._items[part]):
            if own.rounds[place] >= rounds or (only is not None and item.group not in only):
                continue
            judge = self.variants[variant].at(part, (item.aspect.name, item.group))
            if judge is None:
                own.rounds[place] = math.inf
            else:
                found.append(Spot(self, part, place, item, judge))
        return found


def search_stage(label: str, kind: str, part: ChoicePart) -> str:
    """Name of the stage in which a search asks about the items of a part."""
    return f"{label}: search, {kind} on {part}"
