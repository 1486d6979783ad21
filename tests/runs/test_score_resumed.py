"""Scoring goes on after a stop at any byte, gives the same file, and refuses what it cannot continue."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.parser import EXIT_INPUT
from tests.config_keys import keys
from tests.runs.score_command import TASK, Command, line


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


def other_program(command: Command) -> None:
    judges = {"tone": AspectJudge(build("debate", JUDGES["debate"].config)), "help": AspectJudge(build("debate", {
        "persona": "plain", "rounds": 2, "tie_breaker": False}))}  # fmt: skip
    command.program = save(
        command.folder / "two", CompiledJudge(TASK, judges), lm={"spec": "scripted/lm"}, evidence={}, name="x"
    )


def first_text_edited(command: Command) -> None:
    command.source.write_text(command.source.read_text().replace("reply 0", "reply 1", 1))


def foreign_rows(command: Command) -> None:
    command.out.write_text('{"group": "g0", "score": 3}\n')


def rows_swapped(command: Command) -> None:
    lines = command.out.read_text().splitlines(keepends=True)
    command.out.write_text("".join([lines[1], lines[0], *lines[2:]]))


def one_row_too_many(command: Command) -> None:
    row = {
        "group": "g9",
        "candidate": "c",
        "aspect": "tone",
        "score": 1.0,
        "rounds": 0,
        "stop_reason": "",
        "unscored": None,
    }
    with command.out.open("a") as file:
        file.write(json.dumps(row) + "\n")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("change", "more", "says"),
    [
        (other_program, [], "different program"),
        (lambda c: None, ["--aspects", "tone"], "different aspects"),
        (first_text_edited, [], "input has changed"),
        (lambda c: (c.folder / "out.jsonl.state.json").unlink(), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_text("{}"), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_text("[" * 100_000), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_bytes(b'{"program": "\xff'), [], "made from"),
        (foreign_rows, [], "something else"),
        (rows_swapped, [], "line 1: the file already exists, and this row differs"),
        (one_row_too_many, [], "the end of the file"),
        (lambda c: Path("late.jsonl").write_text("{}\n"), keys(transcripts="late.jsonl"), "something else"),
    ],
)
def test_what_cannot_be_continued_is_refused_and_left_alone(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Command], object],
    more: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(command.folder)
    command()
    change(command)
    before = command.out.read_bytes()
    capsys.readouterr()
    assert command(*more) == EXIT_INPUT
    message = capsys.readouterr().err
    assert says in message
    assert "remedy" in message
    assert command.out.read_bytes() == before


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
