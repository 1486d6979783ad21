"""Searches over a judge of numbers."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import optuna

from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.schema import GRANULARITIES, Aspect, Scale
from debate_judge.optimize.search import (
    SEARCH_LIMITS,
    ChoiceScores,
    JudgeVariant,
    Point,
    Search,
    SearchLimits,
    SearchSpace,
)
from debate_judge.programs.judge import EMPTY, Judgement, Unscored

SPACE = SearchSpace(("none", "guide"), ("strict", "two-briefs", "mild"), (0, 1, 2, 3), (False, True))


class SequentialRunner:
    """A runner whose LM answers at once."""

    def run_concurrently(self, jobs: Sequence[Callable[[], object]]) -> list[object]:
        return [work() for work in jobs]


class FakeScores:
    """Scores that are made up, and that remember what they were asked.

    Args:
        noise: Of a point's scores; without any they are the ratings.
        calls: Of a point.
        stop_at: The number of points after which it is interrupted.
        judgeable: Number of groups that may judge a point.
        train: Number of groups of train.
    """

    def __init__(
        self,
        noise: Callable[[Point], float],
        calls: Callable[[Point], float] = lambda p: 1 + 2 * p.rounds + 0.5 * p.tie_breaker,
        stop_at: int | None = None,
        judgeable: Callable[[Point], int] = lambda p: 12,
        seed: int = 0,
        train: int = 0,
    ) -> None:
        self.noise, self.calls, self.stop_at, self.judgeable, self.seed = noise, calls, stop_at, judgeable, seed
        self.train, self.runner = train, SequentialRunner()
        self.aspect = Aspect("a", "?", Scale(1, 6))
        self.groups = [str(i) for i in range(12)]
        self.asked: dict[Point, int] = {}
        """Points in the order in which they were first asked about, and the most groups each was asked about."""

    def scores(self, point: Point, group_ids: Collection[str] | None = None) -> tuple[list[GroupScores], float]:
        if len(self.asked) == self.stop_at and point not in self.asked:
            raise KeyboardInterrupt
        self.asked[point] = max(self.asked.get(point, 0), 12 if group_ids is None else len(group_ids))
        rng = random.Random(zlib.crc32(f"{point} {self.seed}".encode()))
        # The ratings of group i: 1 to 6, each in another order.
        ratings = [tuple(float((5 * j + i) % 6 + 1) for j in range(6)) for i in range(12)]
        groups = [
            GroupScores(str(i), tuple("abcdef"), row, self.scored(point, row, rng)) for i, row in enumerate(ratings)
        ]
        groups = [g for g in groups[: self.judgeable(point)] if group_ids is None or g.group in group_ids]
        return groups, self.calls(point)

    def scored(self, point: Point, ratings: Sequence[float], rng: random.Random) -> tuple[float | None, ...]:
        return tuple(r + rng.gauss(0, self.noise(point)) for r in ratings)

    def parts_of(self, variant: JudgeVariant) -> dict[str, str]:
        judgeable = self.judgeable(Point(variant.knowledge, variant.persona, 0, False, "given"))
        return {group: "train" if int(group) < self.train else "dev" for group in self.groups[:judgeable]}

    def judgements(self, point: Point, group_ids: Collection[str] | None = None) -> list[Judgement]:
        return [Unscored("lm error", "no answer", 0, EMPTY)]

    def granularity(self, point: Point) -> str:
        return point.granularity


def search_of(
    fakes: Mapping[str, FakeScores],
    space: SearchSpace = SPACE,
    storage: Path | None = None,
    limits: SearchLimits = SEARCH_LIMITS["light"],
    **options: Any,
) -> Search:
    settings = {"objective": "spearman", "level": "summary", **options}
    aspects = cast(Mapping[str, ChoiceScores], fakes)
    return Search(aspects=aspects, space=space, limits=limits, storage=storage, **settings)


def run_search(fake: FakeScores, space: SearchSpace = SPACE, **options: Any) -> Search:
    return search_of({"a": fake}, space, **options).optimize()


def varied_noise(point: Point) -> float:
    """Noise that differs from point to point; least for two briefs with a guide in the second round."""
    return (
        0.5 * (point.persona != "two-briefs")
        + 0.5 * (point.knowledge != "guide")
        + 0.7 * abs(point.rounds - 2)
        + 0.4 * GRANULARITIES.index(point.granularity)
    )


def label(point: Point) -> str:
    debate = f" {point.persona} {point.rounds}{'T' if point.tie_breaker else ''}" if point.rounds else ""
    return f"{point.knowledge}{debate}"


def figures_of(search: Search) -> tuple[Any, ...]:
    outcomes = [by_aspect["a"] for by_aspect in search.outcomes.values()]
    return search.chosen["a"].point, [(o.point, o.agreement, o.calls) for o in outcomes]


def stored_trials(file: Path, *states: optuna.trial.TrialState) -> list[optuna.trial.FrozenTrial]:
    """The trials of the study in a file, as Optuna reads them."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
    return optuna.load_study(study_name="search", storage=storage).get_trials(states=states or None)
