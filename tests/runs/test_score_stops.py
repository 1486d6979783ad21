"""What ends a scoring run and what does not: keys, outages, the user, other runs and full places."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from filelock import FileLock

from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_LM
from debate_judge.runs.scoring.settings import EXIT_UNSCORED
from tests.config_keys import keys
from tests.fakes import debater, section
from tests.runs.score_command import SCRIPT, Command, digit, line


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


def test_a_wrong_key_ends_the_run_and_the_next_goes_on(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    calls = iter(range(10_000))

    def revoked(prompt: str) -> str:
        if next(calls) >= 10:
            raise dspy.LMAuthError("the key was revoked")
        return SCRIPT(prompt)

    command.script = revoked
    assert command("--concurrency", "1") == EXIT_LM
    message = capsys.readouterr().err
    assert "the key was revoked" in message
    assert "not paid" in message
    assert "Traceback" not in message
    assert len(command.rows()) < 20
    command.script = SCRIPT
    assert command() == 0
    assert len(command.rows()) == 20
    # 30 calls in all, of which 10 were answered before.
    assert len(command.lm.prompts) == 20


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
