"""Scoring goes on after a stop at any byte, gives the same file, and refuses what it cannot continue."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export.folder import save
from tests.config_keys import keys
from tests.runs.score_command import ROOT, TASK, Command, line


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


@pytest.mark.parametrize(
    ("change", "more", "says"),
    [
        (other_program, [], "another program"),
        (lambda c: None, ["--aspects", "tone"], "another aspects"),
        (first_text_edited, [], "input has changed"),
        (lambda c: (c.folder / "out.jsonl.state.json").unlink(), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_text("{}"), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_text("[" * 100_000), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_bytes(b'{"program": "\xff'), [], "made from"),
        (foreign_rows, [], "something else"),
        (rows_swapped, [], "line 1: the file is there already, and this row is not"),
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
    assert command(*more) == score.EXIT_INPUT
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


SLOW = '''
"""score.py with an LM that takes 20 ms a call and notes in a file each call that it has answered."""
import sys
from debate_judge.runs import score
from debate_judge.runs.export import loaded
from tests.fakes import debater, scripted_lm, section

log = open(sys.argv[1], "a", buffering=1)

def digit(prompt):
    number = int(section(prompt, "candidate").split()[-1])
    return str(1 + (number + section(prompt, "aspect").startswith("tone")) % 5)

def script(prompt):
    text = debater(score=digit)(prompt)
    log.write("call\\n")
    return text

def make(spec, *, store, concurrency, **rest):
    return scripted_lm(script, store=store, concurrency=concurrency, latency=0.02)

loaded.make_lm = make
sys.exit(score.main(sys.argv[2:]))
'''


def test_a_killed_process_goes_on_and_pays_nothing_twice(command: Command) -> None:
    command.write([line(g) for g in range(60)])
    program, log = command.folder / "slow.py", command.folder / "calls"
    program.write_text(SLOW, encoding="utf-8")
    base = [sys.executable, str(program), str(log), str(command.program), "--in", str(command.source)]
    base += ["--concurrency", "4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def arguments(name: str) -> list[str]:
        return [*base, "--out", str(command.folder / name), "--store", str(command.folder / ("store-" + name))]

    assert command(out=command.folder / "whole.jsonl") == 0
    assert len(command.lm.prompts) == 360

    out = command.folder / "killed.jsonl"
    for least in (10, 90):
        process = subprocess.Popen(arguments("killed.jsonl"), env=environment, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not out.exists() or out.read_bytes().count(b"\n") < least:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        rows = out.read_bytes()
        assert rows.count(b"\n") < 240
        assert rows.endswith(b"\n")
    subprocess.run(arguments("killed.jsonl"), env=environment, check=True, capture_output=True)
    assert out.read_bytes() == (command.folder / "whole.jsonl").read_bytes()
    # A kill can lose only what was in flight: at most 4 calls each time.
    assert 360 <= log.read_text().count("call") <= 360 + 2 * 4
