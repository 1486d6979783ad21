"""What ends a scoring run and what does not, and that the next one goes on from any byte to the same file."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from filelock import FileLock

from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_INTERRUPTED
from debate_judge.runs.scoring.settings import EXIT_UNSCORED
from tests.config_keys import keys
from tests.fakes import debater, section
from tests.runs.score_command import SCRIPT, Command, digit, line


@pytest.mark.integration
@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.xlsx", "out.parquet"])
def test_a_stop_at_any_byte_changes_no_byte_of_the_file(command: Command, name: str) -> None:
    if name.endswith("xlsx"):
        pytest.importorskip("xlsxwriter", reason="pip install -e '.[test]' has it")
    flags = (*command.write_table(), "--wide", "--keep-columns")
    out, lines = command.folder / name, command.folder / "rows.jsonl"
    growing = out if name.endswith(("jsonl", "csv")) else out.with_name(name + ".rows.jsonl")
    assert command(*flags, out=lines) == 0
    assert command(*flags, out=out) == 0
    whole = out.read_bytes()
    rows = whole if growing == out else lines.read_bytes()
    assert growing.exists() is (growing == out)
    header = rows.index(b"\n")
    for cut in [0, 1, header - 1, header, header + 1, *range(header + 20, len(rows), 60), len(rows) - 1, len(rows)]:
        growing.write_bytes(rows[:cut])
        assert command(*flags, out=out) == 0
        assert out.read_bytes() == whole, cut
        assert command.lm.prompts == []


@pytest.mark.integration
def test_rows_and_transcripts_go_on_together_at_no_cost(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    debates = command.folder / "debates.jsonl"
    with_debates = keys(transcripts=debates)
    assert command(*with_debates) == 0
    rows, turns = command.out.read_bytes(), debates.read_bytes()
    lines = turns.splitlines(keepends=True)
    for cut in [0, 1, len(rows) // 3, len(rows) // 2, len(rows) - 1]:
        command.out.write_bytes(rows[:cut])
        # The transcript is written first: one whole line more than rows, and perhaps a torn one.
        whole = rows[:cut].count(b"\n") + 1
        torn = lines[whole][:30] if whole < len(lines) else b""
        debates.write_bytes(b"".join(lines[:whole]) + torn if cut else b"")
        assert command(*with_debates) == 0
        assert (command.out.read_bytes(), debates.read_bytes()) == (rows, turns), cut
        assert command.lm.prompts == []
    # Transcripts can be had later, and rows that are there are not touched while they are compared.
    debates.unlink()
    written = command.out.stat().st_mtime_ns
    assert command(*with_debates) == 0
    assert debates.read_bytes() == turns
    assert command.lm.prompts == []
    assert command.out.stat().st_mtime_ns == written
    capsys.readouterr()
    assert command(*with_debates) == 0
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


def test_unscored_rows_have_a_reason_and_too_many_are_a_failure(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.script = debater(score=lambda p: "nine" if section(p, "candidate") in ("reply 0", "reply 21") else digit(p))
    assert command(*keys(max_unscored=0.2)) == 0
    missing = [r for r in command.rows() if r["score"] is None]
    assert [(r["group"], r["candidate"]) for r in missing] == [("g0", "c0")] * 2 + [("g2", "c1")] * 2
    expected = {"rounds": None, "stop_reason": None, "unscored": "unreadable reply"}
    assert {k: missing[0][k] for k in expected} == expected
    assert "4 unscored: unreadable reply" in capsys.readouterr().err
    # 4 of 20; the same is said of a file that is finished already.
    assert command(*keys(max_unscored=0.19)) == EXIT_UNSCORED
    assert "20 % of the items" in capsys.readouterr().err
    assert len(command.rows()) == 20


def test_a_source_that_the_lm_cannot_take_is_no_outage(command: Command) -> None:
    command.write([line(1), line(2, candidates=40), *(line(g) for g in range(3, 40))])

    def too_long(prompt: str) -> str:
        if section(prompt, "source") == "message 2":
            raise dspy.LMInvalidRequestError("too many tokens")
        return SCRIPT(prompt)

    command.script = too_long
    assert command(*keys(max_unscored=0.5)) == 0
    rows = command.rows()
    assert len(rows) == 4 + 80 + 37 * 4
    assert all((r["unscored"] == "lm error") == (r["group"] == "g2") for r in rows)


def test_a_stop_by_the_user(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from debate_judge.runs.scoring.output import ResultWriter

    add, count = ResultWriter.add, iter(range(100))

    def stopping(self: ResultWriter, *row: Any) -> None:
        if next(count) == 7:
            raise KeyboardInterrupt
        add(self, *row)

    monkeypatch.setattr(ResultWriter, "add", stopping)
    assert command() == EXIT_INTERRUPTED
    assert "resumes" in capsys.readouterr().err
    assert len(command.rows()) == 7
    assert command() == 0
    assert len(command.rows()) == 20


def test_two_runs_cannot_write_to_one_file(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command()
    with FileLock(f"{command.out}.lock"):
        assert command() == EXIT_INPUT
    assert "another process" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv"])
def test_what_the_lm_did_not_answer_is_asked_again(command: Command, name: str) -> None:
    out, debates = command.folder / name, command.folder / "debates.jsonl"
    more = ["--out", str(out), *keys(transcripts=debates, max_unscored=0.5)]

    def deaf(prompt: str) -> str:
        if section(prompt, "candidate") == "reply 10":
            raise dspy.LMInvalidRequestError("not today")
        return SCRIPT(prompt)

    command.script = deaf
    assert command(*more) == 0
    before = out.read_bytes()
    assert before.count(b"not today") == 2
    # As long as it is not answered, nothing changes.
    assert command(*more) == 0
    assert out.read_bytes() == before
    command.script = SCRIPT
    assert command(*more) == 0
    assert len(command.lm.prompts) == 3
    finished, turns = out.read_bytes(), debates.read_bytes()
    out.unlink()
    debates.unlink()
    assert command(*more) == 0
    assert (out.read_bytes(), debates.read_bytes()) == (finished, turns)
    assert b"lm error" not in finished + turns
