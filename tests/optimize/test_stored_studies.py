"""Studies in a file: stopped, beside another process, broken, or with a full disk."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.optimize.search.storage import StoredStudy
from tests.optimize.searches import (
    NINE_TRIALS,
    SPACE,
    FakeScores,
    figures_of,
    limits_of,
    plan,
    run_search,
    search,
    stored_trials,
    varied_noise,
)  # fmt: skip


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchResult, bytes]:
    """The result of a search that nothing disturbs, and its file."""
    file = tmp_path_factory.mktemp("straight") / "study.log"
    return run_search(FakeScores(varied_noise), file, NINE_TRIALS), file.read_bytes()


def result_of(storage: Any, **options: Any) -> tuple[Any, ...]:
    return figures_of(run_search(FakeScores(varied_noise), storage, NINE_TRIALS, **options))


@pytest.mark.parametrize(("prune", "stops"), [(False, (0, 24)), (True, (7, 7))])
def test_a_search_that_was_stopped_finds_the_same_and_stores_each_trial_once(
    tmp_path: Path, prune: bool, stops: Sequence[int]
) -> None:
    storage = tmp_path / "s.log"
    undisturbed = run_search(FakeScores(varied_noise), None, NINE_TRIALS, prune=prune)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            run_search(FakeScores(varied_noise, stop_at=stop), storage, NINE_TRIALS, prune=prune)
    assert result_of(storage, prune=prune) == figures_of(undisturbed)
    points = [outcome.point for outcome in undisturbed.outcomes]
    # A search of another name shares the storage and nothing else.
    search({"a": cast(ChoiceScores, FakeScores(varied_noise))}, SPACE, plan(storage, limits_of(1), study="other"))
    assert sorted(StoredStudy("s", storage, SPACE).points()) == sorted([*points, *undisturbed.pruned])
    assert len(StoredStudy("other", storage, SPACE).points()) == len(SPACE.granularities)
    # With a larger budget it goes on from there.
    continued = run_search(FakeScores(varied_noise), storage, limits_of(11), prune=prune)
    assert {*points} < {outcome.point for outcome in continued.outcomes}


def test_what_another_process_finds_meanwhile_changes_nothing_and_is_stored_once(
    tmp_path: Path, straight: tuple[SearchResult, bytes]
) -> None:
    storage, others = tmp_path / "s.log", list[object]()

    def meanwhile(point: object, outcomes: object) -> None:
        if not others:
            others.append(result_of(storage))

    assert result_of(storage, on_trial=meanwhile) == others[0] == figures_of(straight[0])
    assert len(stored_trials(storage)) == len(straight[0].outcomes)


def cut(log: bytes, rng: random.Random) -> bytes:
    return log[: rng.randrange(1, len(log) - 1)]


def flipped(log: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(log))
    return log[:position] + bytes([log[position] ^ 1 << rng.randrange(8)]) + log[position + 1 :]


def without_a_line(log: bytes, rng: random.Random) -> bytes:
    lines = log.splitlines(keepends=True)
    lines[rng.randrange(len(lines))] = b"\n"
    return b"".join(lines)


def blank(log: bytes, rng: random.Random) -> bytes:
    """What a power cut may leave: a block of zeros."""
    position = rng.randrange(len(log))
    return log[:position] + bytes(min(512, len(log) - position)) + log[position + 512 :]


@pytest.mark.parametrize(
    ("damage", "broken"),
    [
        (without_a_line, True), (blank, True),
        pytest.param(cut, None, marks=pytest.mark.integration),
        pytest.param(flipped, None, marks=pytest.mark.integration),
    ],
)  # fmt: skip
def test_a_broken_file_is_set_aside_with_a_word_and_the_search_ends_as_it_would(
    damage: Callable[[bytes, random.Random], bytes], broken: bool | None, straight: tuple[SearchResult, bytes],
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    file = tmp_path / "study.log"
    file.write_bytes(damage(straight[1], random.Random(1)))
    assert result_of(file) == figures_of(straight[0])
    messages = [record.getMessage() for record in caplog.records if "broken" in record.getMessage()]
    assert len(messages) == (tmp_path / "study.log.broken").exists()
    assert broken in (None, len(messages) == 1)
    assert all(str(file) in message for message in messages)
    # What was made anew is whole, for Optuna's dashboard too.
    assert stored_trials(file)
    caplog.clear()
    assert result_of(file) == figures_of(straight[0])
    assert "broken" not in caplog.text


def test_a_disk_that_is_full_ends_the_search_which_goes_on_when_there_is_room(
    straight: tuple[SearchResult, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, calls = tmp_path / "study.log", list[int]()

    def fsync(number: int) -> None:
        calls.append(number)
        if len(calls) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(InputError, match="No space left on device"):
            result_of(file)
    assert result_of(file) == figures_of(straight[0])
