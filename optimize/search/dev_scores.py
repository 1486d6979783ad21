"""What a search can choose, and what each choice did on dev, at the fewest LM calls.

No prompt depends on the number of rounds. So each variant of the judge debates once, to the maximum number of rounds;
every smaller n, and every granularity, is read off that debate at no LM call. Only a Tie-breaker at a given n asks
again, about the items that n rounds left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from debate_judge.data.agreement.tables import Agreement, GroupScores, Level, Statistic, agreement_table, correlation
from debate_judge.data.schema import GRANULARITIES, Aspect, Corpus, Granularity
from debate_judge.programs.judge import Item, Judge, Judgement, corpus_items
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores


@dataclass(frozen=True, order=True)
class Point:
    """One thing to choose. Variant and Tie-breaker say nothing where there are no rounds."""

    persona: str
    rounds: int
    tie_breaker: bool
    granularity: Granularity


@dataclass(frozen=True)
class Outcome:
    """A point as it did on dev."""

    point: Point
    agreement: float
    calls: float
    """LM calls per item, whether or not they had to be made."""
    scores: Mapping[str, Sequence[GroupScores]]
    """Aspect name -> scores by group."""


@dataclass(frozen=True)
class Space:
    """What may be chosen."""

    personas: tuple[str, ...]
    rounds: tuple[int, ...]
    tie_breakers: tuple[bool, ...]
    tuned_scorer: str | None = None
    """The variant whose Scorer was rewritten, and so has a single call of its own."""
    granularities: tuple[Granularity, ...] = GRANULARITIES

    @property
    def singles(self) -> tuple[str, ...]:
        """Variants whose single calls differ: the untouched Scorer's, and the tuned one's."""
        # A persona is the Critic's alone: all untuned variants share one first turn, and need one point for it.
        plain = next((p for p in self.personas if p != self.tuned_scorer), self.personas[0])
        return (plain,) if self.tuned_scorer in (None, plain) else (plain, str(self.tuned_scorer))

    def points(self) -> list[Point]:
        """Every distinct point, cheapest first; the single call is always among them."""
        single = [Point(variant, 0, False, g) for variant in self.singles for g in self.granularities]
        debates = [
            Point(persona, rounds, tie, granularity)
            for rounds in self.rounds
            if rounds > 0
            for tie in self.tie_breakers
            for persona in self.personas
            for granularity in self.granularities
        ]
        return single + debates


class DevScores:
    """Judgements of the dev items at any point, each debate held once and each tie broken once.

    Args:
        variants: Name -> judge.
        corpus: Dev.
        aspects: Those that share the judge.
        runner: Asks.
        n_max: Rounds of the debates that all smaller numbers are read off.
        label: Of the aspects, for progress and estimates.
    """

    def __init__(
        self,
        variants: Mapping[str, Judge],
        corpus: Corpus,
        aspects: Sequence[Aspect],
        runner: JudgeRunner,
        n_max: int,
        label: str,
    ) -> None:
        self.variants = variants
        self._corpus = corpus
        self._aspects = aspects
        self._runner = runner
        self._n_max = n_max
        self._label = label
        self._debates: dict[str, list[Transcript]] = {}
        # The Tie-breaker reads the transcript up to n, so what it says at one n is nothing for another.
        self._ties_broken: dict[tuple[str, int], list[Transcript]] = {}

    @cached_property
    def _items(self) -> list[Item]:
        return [item for aspect in self._aspects for item in corpus_items(self._corpus, aspect)]

    def judgements(self, persona: str, rounds: int, tie_breaker: bool) -> list[Judgement]:
        """One judgement per item, aspect by aspect in corpus order."""
        judge = self.variants[persona]
        transcripts = [t.until(rounds) for t in self._debate(persona)]
        if tie_breaker and rounds > 0:
            key = (persona, rounds)
            if key not in self._ties_broken:
                what = f"{self._label}: ties, {persona}, n = {rounds}"
                with stage(f"{self._label}: search, tie-breaks"):
                    self._ties_broken[key] = self._runner.break_tie(judge, self._items, transcripts, what)
            transcripts = self._ties_broken[key]
        return [judge.verdict(t, rounds) for t in transcripts]

    def _debate(self, persona: str) -> list[Transcript]:
        if persona not in self._debates:
            what = f"{self._label}: debates, {persona}"
            with stage(f"{self._label}: search, debates"):
                self._debates[persona] = self._runner.converse(self.variants[persona], self._items, self._n_max, what)
        return self._debates[persona]

    def scores(self, point: Point) -> tuple[dict[str, list[GroupScores]], float]:
        """Scores by aspect and group, and LM calls per item."""
        judgements = self.judgements(point.persona, point.rounds, point.tie_breaker)
        # Granularity is applied to finished judgements: it needs no debate of its own.
        size = len(judgements) // len(self._aspects)
        by_aspect = {
            aspect.name: group_scores(self._corpus, aspect, judgements[i * size : (i + 1) * size], point.granularity)
            for i, aspect in enumerate(self._aspects)
        }
        return by_aspect, calls_per_item(judgements)

    @property
    def held(self) -> tuple[str, ...]:
        """Variants whose debates were held; reading these costs nothing."""
        return tuple(self._debates)

    def by_rounds(self, persona: str, aspect: str, statistic: Statistic, level: Level, seed: int) -> list[Agreement]:
        """Dev agreement of one variant at every n from 0 to n_max, without Tie-breaker, as given."""
        # For a figure: fewer resamples than for evidence show as much.
        found = []
        for rounds in range(self._n_max + 1):
            scores, _ = self.scores(Point(persona, rounds, False, "given"))
            table = agreement_table({aspect: scores[aspect]}, resamples=1000, seed=seed, levels=(level,))
            found.append(table.aspects[aspect][level][statistic])
        return found


def agreement_for_choice(scores: Mapping[str, Sequence[GroupScores]], statistic: Statistic, level: Level) -> float:
    """Mean over aspects of the dev agreement.

    At summary level, groups whose human ratings are constant are left out, since no judge can agree with them;
    a group in which the judge's own scores are constant counts 0, so that a coarse judge gains nothing by
    refusing to rank.
    """
    return sum(_one(groups, statistic, level) for groups in scores.values()) / len(scores)


def _one(groups: Sequence[GroupScores], statistic: Statistic, level: Level) -> float:
    # An undefined correlation is 0 here and never left out: else a judge could gain by giving no scores.
    if level == "sample":
        pooled = [pair for group in groups for pair in _pairs(group)]
        return correlation([r for r, _ in pooled], [s for _, s in pooled], statistic) or 0.0
    ranked = [_pairs(g) for g in groups if len({r for r in g.ratings if r is not None}) > 1]
    values = [correlation([r for r, _ in pairs], [s for _, s in pairs], statistic) or 0.0 for pairs in ranked]
    return sum(values) / len(values) if values else 0.0


def _pairs(group: GroupScores) -> list[tuple[float, float]]:
    return [(r, s) for r, s in zip(group.ratings, group.scores, strict=True) if r is not None and s is not None]
