"""A study's file that a crash, a full disk or a hand has broken: the search goes on, and says what it left out."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.search.outcomes import SearchResult
from tests.optimize.searches import NINE_TRIALS, FakeScores, figures_of, run_search, varied_noise


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchResult, bytes]:
    file = tmp_path_factory.mktemp("whole") / "study.log"
    return run_search(FakeScores(varied_noise), file, NINE_TRIALS), file.read_bytes()


def cut(log: bytes, rng: random.Random) -> bytes:
    return log[: rng.randrange(1, len(log) - 1)]


def flipped(log: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(log))
    return log[:place] + bytes([log[place] ^ 1 << rng.randrange(8)]) + log[place + 1 :]


def without_a_line(log: bytes, rng: random.Random) -> bytes:
    lines = log.splitlines(keepends=True)
    lines[rng.randrange(len(lines))] = b"\n"
    return b"".join(lines)


def blank(log: bytes, rng: random.Random) -> bytes:
    """What a power cut may leave: a block of zeros."""
    place = rng.randrange(len(log))
    return log[:place] + bytes(min(512, len(log) - place)) + log[place + 512 :]


@pytest.mark.integration
@pytest.mark.parametrize("damage", [cut, flipped, without_a_line, blank])
def test_the_search_ends_as_it_would_whatever_its_file_holds(
    damage: Callable[[bytes, random.Random], bytes], whole: tuple[SearchResult, bytes], tmp_path: Path
) -> None:
    expected, log = whole
    for seed in range(2):
        file = tmp_path / f"{seed}.log"
        file.write_bytes(damage(log, random.Random(seed)))
        assert figures_of(run_search(FakeScores(varied_noise), file, NINE_TRIALS)) == figures_of(expected)
        # What was made anew is whole.
        assert figures_of(run_search(FakeScores(varied_noise), file, NINE_TRIALS)) == figures_of(expected)


@pytest.mark.parametrize("damage", [without_a_line, blank])
def test_a_broken_file_is_set_aside_with_a_word(
    damage: Callable[[bytes, random.Random], bytes],
    whole: tuple[SearchResult, bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "study.log"
    file.write_bytes(damage(whole[1], random.Random(1)))
    run_search(FakeScores(varied_noise), file, NINE_TRIALS)
    assert (tmp_path / "study.log.broken").exists()
    (told_once,) = (record.getMessage() for record in caplog.records if "broken" in record.getMessage())
    assert str(file) in told_once
    # Optuna reads the new one, and so does its dashboard.
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
    assert optuna.load_study(study_name=None, storage=storage).trials
    caplog.clear()
    run_search(FakeScores(varied_noise), file, NINE_TRIALS)
    assert [record for record in caplog.records if "broken" in record.getMessage()] == []


def test_a_disk_that_is_full_ends_the_search_which_goes_on_when_there_is_room(
    whole: tuple[SearchResult, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "study.log"
    calls = 0

    def fsync(number: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 10:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(InputError, match="No space left on device"):
            run_search(FakeScores(varied_noise), file, NINE_TRIALS)
    assert figures_of(run_search(FakeScores(varied_noise), file, NINE_TRIALS)) == figures_of(whole[0])
