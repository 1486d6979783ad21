"""Scoring goes on after a stop at any byte, gives the same file, and refuses what it cannot continue."""

from __future__ import annotations

import random

import pytest

from tests.config_keys import keys
from tests.runs.score_command import Command, line


@pytest.mark.integration
def test_going_on_from_any_byte_gives_the_same_files(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    debates = command.folder / "debates.jsonl"
    assert command(*keys(transcripts=debates)) == 0
    rows, turns = command.out.read_bytes(), debates.read_bytes()
    rng = random.Random(5)
    for cut in [0, 1, len(rows) - 1, *(rng.randrange(len(rows)) for _ in range(12))]:
        command.out.write_bytes(rows[:cut])
        # The transcript is written first: one whole line more than rows, and perhaps a torn one.
        lines = turns.splitlines(keepends=True)
        whole = rows[:cut].count(b"\n") + 1
        debates.write_bytes(
            b"".join(lines[:whole]) + (lines[whole][:30] if whole < len(lines) else b"") if cut else b""
        )
        assert command(*keys(transcripts=debates)) == 0
        assert command.out.read_bytes() == rows, cut
        assert debates.read_bytes() == turns, cut
        # What was answered once is in the store.
        assert command.lm.prompts == []
    capsys.readouterr()
    assert command(*keys(transcripts=debates)) == 0
    assert "nothing left to do" in capsys.readouterr().err


def test_an_input_that_has_grown_is_gone_on_with(command: Command) -> None:
    command()
    before = command.out.read_bytes()
    with command.source.open("a", encoding="utf-8") as file:
        file.write(line(9) + "\n")
    assert command() == 0
    assert command.out.read_bytes().startswith(before)
    assert [r["group"] for r in command.rows()[20:]] == ["g9"] * 4
    assert len(command.lm.prompts) == 6


def test_transcripts_can_be_had_later_at_no_cost(command: Command) -> None:
    debates = command.folder / "debates.jsonl"
    command(*keys(transcripts=debates))
    whole = debates.read_bytes()
    debates.unlink()
    assert command(*keys(transcripts=debates)) == 0
    assert debates.read_bytes() == whole
    assert command.lm.prompts == []


def test_rows_that_are_there_are_not_touched_while_they_are_compared(command: Command) -> None:
    """A run that is stopped while it recalls loses no row that an earlier one has written."""
    command()
    rows = command.out.read_bytes()
    first = command.out.stat()
    assert command() == 0
    assert command.out.read_bytes() == rows
    assert command.out.stat().st_mtime_ns == first.st_mtime_ns
