"""The search on dev: what it visits, what it chooses, and that a stop changes nothing."""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import GRANULARITIES
from debate_judge.optimize.search.dev_scores import DevScores, Outcome, Point, Space
from debate_judge.optimize.search.study import Criterion, SearchPlan, SearchResult, search

SPACE = Space(("plain", "strict", "tuned"), (0, 1, 2, 3), (False, True))
"""57 points: 3 of the single call, and 3 personas x 3 rounds x 2 x 3 granularities."""


def group(name: str, ratings: Sequence[float | None], scores: Sequence[float | None]) -> GroupScores:
    return GroupScores(name, tuple(str(i) for i in range(len(ratings))), tuple(ratings), tuple(scores))


# --- what is visited ---


class Fake:
    """Readings whose scores are made up, and which remember what they were asked."""

    def __init__(
        self,
        noise: Callable[[Point], float],
        calls: Callable[[Point], float] = lambda p: 1 + 2 * p.rounds + 0.5 * p.tie_breaker,
        stop_at: int | None = None,
    ) -> None:
        self.noise, self.calls, self.stop_at = noise, calls, stop_at
        self.asked: list[Point] = []

    def scores(self, point: Point) -> tuple[dict[str, list[GroupScores]], float]:
        if len(self.asked) == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append(point)
        rng = random.Random(zlib.crc32(repr(point).encode()))
        ratings = [[float(rng_ratings(i, j)) for j in range(6)] for i in range(10)]
        groups = [
            group(str(i), row, [r + rng.gauss(0, self.noise(point)) for r in row]) for i, row in enumerate(ratings)
        ]
        return {"a": groups}, self.calls(point)


def rng_ratings(i: int, j: int) -> int:
    """The ratings of group i: 1 to 6, each in another order."""
    return (5 * j + i) % 6 + 1


def run(fake: Fake, storage: Path, trials: int, space: Space = SPACE, seed: int = 0, **options: Any) -> SearchResult:
    return search(cast(DevScores, fake), space, plan(storage, trials, seed), **options)


def plan(storage: Path | None, trials: int, seed: int = 0, study: str = "a") -> SearchPlan:
    criterion = Criterion("spearman", "summary", tolerance=1.0)
    return SearchPlan(criterion=criterion, trials=trials, seed=seed, study=study, storage=storage)


def varied(point: Point) -> float:
    """Noise that differs from point to point; least for the strict persona in the second round."""
    return (
        0.5 * (point.persona != "strict") + 0.7 * abs(point.rounds - 2) + 0.4 * GRANULARITIES.index(point.granularity)
    )


def test_a_budget_that_covers_the_space_visits_every_point_once(tmp_path: Path) -> None:
    for trials in (57, 500):
        fake = Fake(varied)
        found = run(fake, tmp_path / f"{trials}.log", trials)
        assert fake.asked == SPACE.points()
        assert [o.point for o in found.outcomes] == SPACE.points()


@pytest.mark.parametrize("trials", [1, 2, 7, 20, 56])
def test_a_smaller_budget_visits_as_many_distinct_points_what_costs_no_call_first(tmp_path: Path, trials: int) -> None:
    fake = Fake(varied)
    found = run(fake, tmp_path / "study.log", trials)
    assert len(found.outcomes) == len(fake.asked) == len(set(fake.asked)) == trials
    assert set(fake.asked) <= set(SPACE.points())
    read_off = [Point(p, n, False, "given") for n in (1, 2, 3) for p in SPACE.personas]
    first = max(1, trials // 2)
    assert fake.asked[:first][:10] == [SPACE.points()[0], *read_off][:first]
    assert not any(p.tie_breaker for p in fake.asked[: min(first, 30)])


def test_the_same_seed_visits_the_same_points_and_another_seed_others(tmp_path: Path) -> None:
    asked = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fake = Fake(varied)
        run(fake, tmp_path / name, 20, seed=seed)
        asked.append(fake.asked)
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]
    # Whatever the seed, the single call is known.
    assert asked[2][0] == SPACE.points()[0]


def test_the_sampler_learns_where_it_is_good(tmp_path: Path) -> None:
    """Over seeds, the points that the sampler picks are better than points picked at random."""
    picked, left = [], []
    for seed in range(3):
        fake = Fake(varied)
        run(fake, tmp_path / str(seed), 30, seed=seed)
        picked += fake.asked[15:]
        left += [p for p in SPACE.points() if p not in fake.asked[:15]]
    assert sum(map(varied, picked)) / len(picked) < sum(map(varied, left)) / len(left)


def test_each_outcome_is_reported_once(tmp_path: Path) -> None:
    reported: list[Outcome] = []
    found = run(Fake(varied), tmp_path / "study.log", 12, on_trial=reported.append)
    assert reported == list(found.outcomes)


# --- stopped and resumed ---


def course(found: SearchResult) -> tuple[Any, ...]:
    return found.chosen.point, found.best.point, [(o.point, o.agreement, o.calls) for o in found.outcomes]


TRIALS = 14
"""4 of them the cheapest points, 10 the sampler's."""


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """A search that nobody stopped."""
    return run(Fake(varied), tmp_path_factory.mktemp("straight") / "study.log", TRIALS)


@pytest.mark.parametrize("stop", range(TRIALS))
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(
    tmp_path: Path, straight: SearchResult, stop: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Fake(varied, stop_at=stop), tmp_path / "stopped.log", TRIALS)
    resumed = Fake(varied)
    assert course(run(resumed, tmp_path / "stopped.log", TRIALS)) == course(straight)
    assert max(Counter(resumed.asked).values()) == 1


def test_a_search_may_be_stopped_again_and_again(tmp_path: Path, straight: SearchResult) -> None:
    for stop in (2, 5, 5, 9, 13):
        with pytest.raises(KeyboardInterrupt):
            run(Fake(varied, stop_at=stop), tmp_path / "stopped.log", TRIALS)
    assert course(run(Fake(varied), tmp_path / "stopped.log", TRIALS)) == course(straight)


def test_a_finished_search_is_read_from_its_storage(tmp_path: Path) -> None:
    first = run(Fake(varied), tmp_path / "study.log", TRIALS)
    again = Fake(varied)
    assert course(run(again, tmp_path / "study.log", TRIALS)) == course(first)
    assert len(again.asked) == TRIALS


def test_a_larger_budget_goes_on_from_a_finished_search(tmp_path: Path) -> None:
    first = run(Fake(varied), tmp_path / "study.log", 10)
    more = run(Fake(varied), tmp_path / "study.log", 57)
    assert [o.point for o in more.outcomes[:10]] == [o.point for o in first.outcomes]
    assert {o.point for o in more.outcomes} == set(SPACE.points())


def test_searches_of_different_names_share_a_storage_and_nothing_else(tmp_path: Path) -> None:
    storage = tmp_path / "study.log"
    first = run(Fake(varied), storage, TRIALS)
    other = Fake(lambda point: 1.0)
    search(cast(DevScores, other), SPACE, plan(storage, 5, study="b"))
    assert len(other.asked) == 5
    assert course(run(Fake(varied), storage, TRIALS)) == course(first)


def test_a_search_in_memory_is_the_same_and_leaves_nothing_behind(
    tmp_path: Path, straight: SearchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert course(search(cast(DevScores, Fake(varied)), SPACE, plan(None, TRIALS))) == course(straight)
    assert list(tmp_path.iterdir()) == []


# --- what is chosen ---


def best_of(noise: Callable[[Point], float], tmp_path: Path, **options: Any) -> SearchResult:
    return run(Fake(noise, **options), tmp_path / "study.log", 57)


def test_what_is_clearly_better_is_chosen_at_any_price(tmp_path: Path) -> None:
    found = best_of(lambda p: 0.1 if (p.persona, p.rounds, p.tie_breaker) == ("strict", 3, True) else 4.0, tmp_path)
    assert found.chosen.point == Point("strict", 3, True, "given")
    assert found.chosen.calls == 7.5


def test_what_cannot_be_told_apart_is_chosen_where_it_is_cheaper(tmp_path: Path) -> None:
    # Everything ranks perfectly.
    found = best_of(lambda p: 0.0, tmp_path)
    assert found.chosen.point == Point("plain", 0, False, "given")


def test_cheaper_means_fewer_calls_and_not_fewer_rounds(tmp_path: Path) -> None:
    # A debate that mostly ends at once may cost less than one that has fewer rounds.
    found = best_of(
        lambda p: 0.0 if p.rounds else 5.0,
        tmp_path,
        calls=lambda p: 2.5 if p.persona == "tuned" and p.rounds == 3 else 4.0,
    )
    assert (found.chosen.point.persona, found.chosen.point.rounds) == ("tuned", 3)


def test_a_difference_within_its_standard_error_is_none(tmp_path: Path) -> None:
    """The dearest point is better by a hair only: the single call is preferred, though it is not the best."""
    found = best_of(lambda p: 1.0 if p.rounds < 3 else 0.97, tmp_path)
    assert found.best.point.rounds > 0
    assert found.chosen.agreement < found.best.agreement
    assert found.chosen.calls < found.best.calls


def test_the_pareto_front(tmp_path: Path) -> None:
    def outcome(calls: float, agreement: float) -> Outcome:
        return Outcome(Point("a", int(calls), False, "given"), agreement, calls, {})

    outcomes = [outcome(5, 0.6), outcome(1, 0.4), outcome(3, 0.3), outcome(3, 0.5), outcome(4, 0.5), outcome(7, 0.6)]
    found = SearchResult(outcomes[1], outcomes[0], tuple(outcomes), cast(DevScores, None))
    assert [(o.calls, o.agreement) for o in found.front] == [(1, 0.4), (3, 0.5), (5, 0.6)]


def test_of_two_equal_searches_at_once_one_waits_for_the_other(tmp_path: Path, straight: SearchResult) -> None:
    storage = tmp_path / "s.log"
    found: list[SearchResult] = []
    waiting: list[threading.Thread] = []

    def second() -> None:
        found.append(run(Fake(varied), storage, TRIALS))

    def meanwhile(outcome: Outcome) -> None:
        if not waiting:
            waiting.append(threading.Thread(target=second))
            waiting[0].start()
        # Time in which the second one could have its trials in between.
        time.sleep(0.02)

    first = run(Fake(varied), storage, TRIALS, on_trial=meanwhile)
    waiting[0].join()
    assert course(first) == course(straight) == course(found[0])
