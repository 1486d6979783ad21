"""A study's file that a crash, a full disk or a hand has broken: the search goes on, and says what it left out."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.search import checked_log
from debate_judge.optimize.search.outcomes import SearchResult
from tests.optimize.searches import BROAD, Fake, run, told, varied

pytestmark = pytest.mark.usefixtures("remembered_sampler")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchResult, bytes]:
    file = tmp_path_factory.mktemp("whole") / "study.log"
    return run(Fake(varied), file, BROAD), file.read_bytes()


def cut(log: bytes, rng: random.Random) -> bytes:
    return log[: rng.randrange(1, len(log) - 1)]


def flipped(log: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(log))
    return log[:place] + bytes([log[place] ^ 1 << rng.randrange(8)]) + log[place + 1 :]


def digit(log: bytes, rng: random.Random) -> bytes:
    """Another value, still Optuna's JSON."""
    place = rng.choice([i for i in range(len(log)) if log[i : i + 1].isdigit()])
    return log[:place] + (b"1" if log[place : place + 1] != b"1" else b"2") + log[place + 1 :]


def without_a_line(log: bytes, rng: random.Random) -> bytes:
    lines = log.splitlines(keepends=True)
    lines[rng.randrange(len(lines))] = b"\n"
    return b"".join(lines)


def blank(log: bytes, rng: random.Random) -> bytes:
    """What a power cut may leave: a block of zeros."""
    place = rng.randrange(len(log))
    return log[:place] + bytes(min(512, len(log) - place)) + log[place + 512 :]


def behind(log: bytes, rng: random.Random) -> bytes:
    return log + b"[" * 100_000


@pytest.mark.parametrize("damage", [cut, flipped, digit, without_a_line, blank, behind])
def test_a_broken_record_is_left_out_and_the_search_ends_as_it_would(
    damage: Callable[[bytes, random.Random], bytes],
    whole: tuple[SearchResult, bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected, log = whole
    for seed in range(5):
        caplog.clear()
        file = tmp_path / f"{seed}.log"
        broken = damage(log, random.Random(seed))
        file.write_bytes(broken)
        assert told(run(Fake(varied), file, BROAD)) == told(expected)
        named = [
            record for record in caplog.records if "broken" in record.getMessage() and str(file) in record.getMessage()
        ]
        assert len(named) == (broken not in log or not broken.endswith(b"\n"))
        # What was made anew is whole.
        caplog.clear()
        assert told(run(Fake(varied), file, BROAD)) == told(expected)
        assert [record for record in caplog.records if "broken" in record.getMessage()] == []


def test_a_disk_that_is_full_ends_the_search_and_leaves_nothing_half_written(
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
        patch.setattr(checked_log.os, "fsync", fsync)
        with pytest.raises(InputError, match="No space left on device"):
            run(Fake(varied), file, BROAD)
    assert whole[1].count(b"\n") > file.read_bytes().count(b"\n") == 10
    assert told(run(Fake(varied), file, BROAD)) == told(whole[0])


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the study's file cannot be used"):
        run(Fake(varied), tmp_path, BROAD)
