"""A store that very many runs have used: its segments are merged, and nobody who reads or writes loses a reply."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from debate_judge.programs.lm import segments
from debate_judge.programs.lm.journal import Journal, _line_of, record_of
from debate_judge.programs.lm.reply import Reply

pytest.importorskip("fcntl")


def key(number: int) -> str:
    return f"{number:032x}"


def small(folder: Path, count: int, first: int = 0) -> None:
    """`count` segments as runs leave them, of one reply each, made directly."""
    for number in range(first, first + count):
        record = record_of("scorer", Reply(f"reply {number}"))
        (folder / f"{number:032x}.replies").write_bytes(_line_of(key(number).encode(), record.encode()))


def whole(journal: Journal, count: int) -> bool:
    return all(journal.get(key(n)) == Reply(f"reply {n}") for n in range(count))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_many_segments_become_one_and_work_with_few_files(tmp_path: Path) -> None:
    small(tmp_path, 1500)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, hard))
    try:
        journal = Journal(tmp_path)
        assert whole(journal, 1500)
        journal.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(names(tmp_path)) == 1
    assert len(journal) == 1500


def test_few_segments_and_large_ones_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path, segments._MANY)
    before = names(tmp_path)
    Journal(tmp_path).close()
    assert names(tmp_path) == before
    monkeypatch.setattr(segments, "_SMALL", 10)
    small(tmp_path, 10, first=segments._MANY)
    Journal(tmp_path).close()
    assert len(names(tmp_path)) == segments._MANY + 10


def test_who_reads_and_writes_meanwhile_loses_nothing(tmp_path: Path) -> None:
    small(tmp_path, 200)
    reader = Journal(tmp_path, read_only=True)
    writer = Journal(tmp_path, read_only=True)
    writer.put(key(200), "scorer", Reply("reply 200"))
    Journal(tmp_path).close()
    # The writer's own and the merged one.
    assert len(names(tmp_path)) == 2
    assert whole(reader, 200)
    assert reader.broken == 0
    writer.put(key(201), "scorer", Reply("reply 201"))
    assert whole(writer, 202)
    writer.close()
    again = Journal(tmp_path)
    assert whole(again, 202)
    for journal in (reader, again):
        journal.close()


_STOPPED = """
import os, sys
from pathlib import Path
from debate_judge.programs.lm import segments
from debate_judge.programs.lm.journal import Journal

left = int(sys.argv[2])
def step(wrapped):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return wrapped(*args, **kwargs)
    return call
segments._copied, Path.unlink, Path.rename = step(segments._copied), step(Path.unlink), step(Path.rename)
Journal(Path(sys.argv[1])).close()
"""


@pytest.mark.parametrize("steps", [0, 40, 80, 81, 82, 120])
def test_a_kill_at_any_moment_of_a_merge_loses_nothing(tmp_path: Path, steps: int) -> None:
    small(tmp_path, 80)
    killed = subprocess.run([sys.executable, "-c", _STOPPED, str(tmp_path), str(steps)], check=False)
    assert killed.returncode == 9
    journal = Journal(tmp_path)
    assert whole(journal, 80)
    journal.close()
    small(tmp_path, 80, first=80)
    journal = Journal(tmp_path)
    assert whole(journal, 160)
    journal.close()
    assert [name for name in names(tmp_path) if name.endswith(".merging")] == []


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    small(tmp_path, 100)
    torn = tmp_path / f"{50:032x}.replies"
    torn.write_bytes(torn.read_bytes()[:-20])
    journal = Journal(tmp_path)
    assert [n for n in range(100) if journal.get(key(n)) is None] == [50]
    assert journal.broken == 0
    journal.close()
