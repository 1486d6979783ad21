"""Searches over a judge of numbers."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.pruners import NopPruner

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import GRANULARITIES, Aspect, Scale
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import Criterion, SearchResult
from debate_judge.optimize.search.points import Point, SearchSpace
from debate_judge.optimize.search.study import SearchLimits, SearchSettings, Strategy, Study

SPACE = SearchSpace(("none", "guide"), ("strict", "plain", "mild"), (0, 1, 2, 3), (False, True))
"""114 points: 2 single calls, 6 debates, 18 Tie-breakers, and what is read off them."""


class SequentialRunner:
    """A runner whose LM answers at once."""

    def run_concurrently(self, jobs: Sequence[Callable[[], object]]) -> list[object]:
        return [work() for work in jobs]


class FakeScores:
    """Scores that are made up, and that remember what they were asked.

    Args:
        noise: Of a point's scores; without any they are the ratings.
        calls: Of a point.
        stop_at: The reading that is interrupted.
        judgeable: Number of groups that may judge a point.
    """

    def __init__(
        self,
        noise: Callable[[Point], float],
        calls: Callable[[Point], float] = lambda p: 1 + 2 * p.rounds + 0.5 * p.tie_breaker,
        stop_at: int | None = None,
        judgeable: Callable[[Point], int] = lambda p: 10,
        seed: int = 0,
    ) -> None:
        self.noise, self.calls, self.stop_at, self.judgeable, self.seed = noise, calls, stop_at, judgeable, seed
        self.runner = SequentialRunner()
        self.aspects = (Aspect("a", "?", Scale(1, 6)),)
        self.groups = [str(i) for i in range(10)]
        self.asked: list[Point] = []
        """Points in the order in which they were first asked about."""
        self.groups_asked: dict[Point, int] = {}
        """The most groups that each was asked about."""

    def scores(
        self, point: Point, group_ids: Collection[str] | None = None
    ) -> tuple[dict[str, list[GroupScores]], float]:
        self.prefetch([point], group_ids)
        rng = random.Random(zlib.crc32(f"{point} {self.seed}".encode()))
        # The ratings of group i: 1 to 6, each in another order.
        ratings = [tuple(float((5 * j + i) % 6 + 1) for j in range(6)) for i in range(10)]
        groups = [
            GroupScores(str(i), tuple("abcdef"), row, tuple(r + rng.gauss(0, self.noise(point)) for r in row))
            for i, row in enumerate(ratings)
        ]
        judgeable = [g for g in groups[: self.judgeable(point)] if group_ids is None or g.group in group_ids]
        return {self.aspects[0].name: judgeable}, self.calls(point)

    def prefetch(self, points: Iterable[Point], group_ids: Collection[str] | None = None) -> None:
        for point in points:
            if len(self.asked) == self.stop_at and point not in self.groups_asked:
                raise KeyboardInterrupt
            if point not in self.groups_asked:
                self.asked.append(point)
            self.groups_asked[point] = max(self.groups_asked.get(point, 0), 10 if group_ids is None else len(group_ids))

    def granularity(self, aspect: str, point: Point) -> str:
        return point.granularity


def limits_of(trials: int, kinds: int = 2) -> SearchLimits:
    return SearchLimits(kinds, trials, candidates=1000, trials=trials)


UNLIMITED = limits_of(1000)
UNPRUNED = Strategy(pruner=NopPruner)


def plan(
    storage: Path | None, limits: SearchLimits, seed: int = 0, study: str = "s", prune: bool = False
) -> SearchSettings:
    criterion, strategy = Criterion("spearman", "summary"), Strategy() if prune else UNPRUNED
    return SearchSettings(
        criterion=criterion, limits=limits, seed=seed, study_name=study, storage=storage, strategy=strategy
    )


def search(
    units: Mapping[str, ChoiceScores], space: SearchSpace, planned: SearchSettings, **options: Any
) -> dict[str, SearchResult]:
    study = Study(units, space, planned, **options)
    study.optimize()
    return study.results()


def run_search(
    fake: FakeScores, storage: Path | None, limits: SearchLimits = UNLIMITED, seed: int = 0, **options: Any
) -> SearchResult:
    units = {"a": cast(ChoiceScores, fake)}
    planned = plan(storage, limits, seed, prune=options.pop("prune", False))
    return search(units, options.pop("space", SPACE), planned, **options)["a"]


def varied_noise(point: Point) -> float:
    """Noise that differs from point to point; least for the plain persona with a guide in the second round."""
    return (
        0.5 * (point.persona != "plain")
        + 0.5 * (point.knowledge != "guide")
        + 0.7 * abs(point.rounds - 2)
        + 0.4 * GRANULARITIES.index(point.granularity)
    )


def tried_points(fake: FakeScores) -> list[str]:
    """What cost calls, in its order: of a debate its full length."""
    longest: dict[tuple[object, bool], Point] = {}
    for point in fake.asked:
        key = point.variant if point.rounds else point.knowledge, point.tie_breaker
        longest.setdefault(key, point)
    return [
        f"{p.knowledge} {p.persona} {p.rounds}{'T' if p.tie_breaker else ''}" if p.rounds else p.knowledge
        for p in longest.values()
    ]


def figures_of(result: SearchResult) -> tuple[Any, ...]:
    return result.chosen.point, [(o.point, o.agreement, o.calls) for o in result.outcomes]


def stored_trials(file: Path, *states: optuna.trial.TrialState) -> list[optuna.trial.FrozenTrial]:
    """The trials of the study in a file, as Optuna reads them."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
    return optuna.load_study(study_name="s", storage=storage).get_trials(states=states or None)


NINE_TRIALS = limits_of(9)
"""6 starting points, 3 suggestions of the sampler."""
