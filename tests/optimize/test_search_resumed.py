"""A search that was stopped goes on as if it had not been, alone or beside others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.optimize.search.points import Point
from debate_judge.optimize.search.storage import stored_study
from tests.optimize.searches import BROAD, EVERYTHING, SPACE, Fake, breadth, plan, run, search, told, varied


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """A search that was not stopped."""
    return run(Fake(varied), tmp_path_factory.mktemp("straight") / "study.log", BROAD)


@pytest.mark.parametrize("stop", [0, 1, 5, 6, 10, 14, 23, 24, 30, 37, 40, 44, 47, 50, 53])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(
    tmp_path: Path, straight: SearchResult, stop: int
) -> None:
    assert len(straight.outcomes) > 40
    stop = min(stop, len(straight.outcomes) - 1)
    with pytest.raises(KeyboardInterrupt):
        run(Fake(varied, stop_at=stop), tmp_path / "stopped.log", BROAD)
    assert told(run(Fake(varied), tmp_path / "stopped.log", BROAD)) == told(straight)


def test_a_search_may_be_stopped_again_and_again(tmp_path: Path, straight: SearchResult) -> None:
    for stop in (2, 7, 7, 29, 40, len(straight.outcomes) - 1):
        with pytest.raises(KeyboardInterrupt):
            run(Fake(varied, stop_at=stop), tmp_path / "stopped.log", BROAD)
    assert told(run(Fake(varied), tmp_path / "stopped.log", BROAD)) == told(straight)


def test_a_finished_search_is_read_from_its_storage(tmp_path: Path) -> None:
    first = run(Fake(varied), tmp_path / "study.log", BROAD)
    again = Fake(varied)
    assert told(run(again, tmp_path / "study.log", BROAD)) == told(first)
    assert len(again.asked) == len(first.outcomes)


def test_a_larger_budget_goes_on_from_a_finished_search(tmp_path: Path) -> None:
    first = run(Fake(varied), tmp_path / "study.log", BROAD)
    more = run(Fake(varied), tmp_path / "study.log", EVERYTHING)
    assert [o.point for o in more.outcomes[: len(first.outcomes)]] == [o.point for o in first.outcomes]
    assert {o.point for o in more.outcomes} == set(SPACE.points())


def test_searches_of_different_names_share_a_storage_and_nothing_else(tmp_path: Path) -> None:
    storage = tmp_path / "study.log"
    first = run(Fake(varied), storage, BROAD)
    other = Fake(lambda point: 1.0)
    search({"a": cast(ChoiceScores, other)}, SPACE, plan(storage, breadth(1), study="b"))
    assert len(other.asked) == len(SPACE.granularities)
    assert told(run(Fake(varied), storage, BROAD)) == told(first)


def test_a_search_in_memory_is_the_same_and_leaves_nothing_behind(
    tmp_path: Path, straight: SearchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(run(Fake(varied), None, BROAD)) == told(straight)
    assert list(tmp_path.iterdir()) == []


def test_two_equal_searches_at_once_find_the_same_and_store_each_trial_once(
    tmp_path: Path, straight: SearchResult
) -> None:
    storage = tmp_path / "s.log"
    found: list[SearchResult] = []
    others: list[threading.Thread] = []

    def meanwhile(point: Point, outcomes: object) -> None:
        if len(others) < 2:
            others.append(threading.Thread(target=lambda: found.append(run(Fake(varied), storage, BROAD))))
            others[-1].start()
            if len(others) == 2:
                # One of them is done in the middle of this one, and one is under way at the same time.
                others[0].join()

    first = run(Fake(varied), storage, BROAD, on_trial=meanwhile)
    for other in others:
        other.join()
    assert told(first) == told(straight) == told(found[0]) == told(found[1])
    points = stored_study("s", storage, SPACE).points()
    assert set(points) == {outcome.point for outcome in straight.outcomes}
