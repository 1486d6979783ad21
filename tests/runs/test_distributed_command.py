"""`score --engine ray` from its flags to its exit code, with actors in this process in place of Ray."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.distributed import command as command_module
from debate_judge.runs.distributed import inputs
from debate_judge.runs.distributed.driver import RunDriver
from debate_judge.runs.distributed.service import RunService
from debate_judge.runs.export.folder import save
from debate_judge.runs.runner import streaming
from tests.config_keys import keys
from tests.runs.distributed_command import Command, in_this_process
from tests.runs.distributed_run import TASK, group, program, write_csv, write_jsonl


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    with in_this_process(tmp_path, monkeypatch) as command:
        yield command


def test_a_run_that_is_repeated_reads_and_pays_nothing(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(7))
    write_csv(command.folder / "in-1.csv", range(7, 12))
    assert command() == 0
    said = capsys.readouterr().err
    assert "48 items in" in said
    assert "LM calls: 75 asked, 72 executed" in said
    rows, asked = command.rows(), command.server.asked.total()
    assert len(rows) == 48
    # One part is lost: its slice is read again, and its answers are recalled.
    (command.out / "part-00001-00000-000001.jsonl").unlink()
    (command.out / "_slices" / "00001-00000.json").unlink()
    assert command() == 0
    assert "40 of them were there already" in capsys.readouterr().err
    assert command.rows() == rows
    assert command() == 0
    assert "nothing left to do" in capsys.readouterr().err
    assert command.server.asked.total() == asked


def test_bad_input_stops_no_other_and_ends_with_its_code(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_jsonl(command.folder / "in-0.jsonl", range(5))
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:3], "{", *lines[3:]]), encoding="utf-8")
    (command.folder / "in-1.csv").write_text("text,source\n", encoding="utf-8")
    (command.folder / "in-2.parquet").write_bytes(b"none")
    assert command() == score.EXIT_INPUT
    said = capsys.readouterr().err
    assert f"{path}, line 4: not valid JSON" in said
    assert "in-2.parquet: not a Parquet file" in said
    assert "2 places of the input could not be read" in said
    assert len(command.rows()) == 20
    assert not (command.out / "_slices" / "00000-00000.json").exists()
    assert (command.out / "_slices" / "00001-00000.json").exists()


def test_another_judge_or_input_is_refused(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_jsonl(command.folder / "in-0.jsonl", range(3))
    assert command() == 0
    assert command(aspects="tone") == score.EXIT_INPUT
    assert "another aspects" in capsys.readouterr().err
    write_jsonl(path, range(4))
    assert command() == score.EXIT_INPUT
    assert "another inputs" in capsys.readouterr().err
    assert command(out=command.folder / "new.jsonl") == 0
    assert command("--columns", "text=other") == score.EXIT_INPUT
    assert "another columns" in capsys.readouterr().err


def test_a_spent_budget_ends_with_its_code_and_the_same_command_goes_on(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(20))
    assert command(*keys(actors=1), budget="calls=40") == score.EXIT_LM
    said = capsys.readouterr().err
    assert "share of one actor" in said
    assert "raise --budget" in said
    # What was asked before the actors started counts.
    assert command.server.asked.total() == 40
    finished = len(command.rows())
    assert 0 < finished < 80
    assert command() == 0
    assert "of them were there already" in capsys.readouterr().err
    assert len(command.rows()) == 80
    assert max(command.server.asked.values()) == 1


def test_an_interrupt_ends_in_order_and_the_same_command_goes_on(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(30))
    # Parts take longer together than it takes to look for the first time.
    command.server.latency = 0.1

    look = RunDriver._look

    def interrupt(driver: RunDriver, stop: bool) -> bool:
        if driver._totals.rows.rows and not stop:
            raise KeyboardInterrupt
        return look(driver, stop)

    with monkeypatch.context() as patch:
        patch.setattr(RunDriver, "_look", interrupt)
        assert command() == score.EXIT_INTERRUPTED
    said = capsys.readouterr().err
    assert "what is in flight is waited for" in said
    assert "resumes" in said
    finished = len(command.rows())
    assert 0 < finished < 120
    assert command() == 0
    assert len(command.rows()) == 120
    # Also what was in flight when it was stopped.
    assert max(command.server.asked.values()) == 1


def test_too_many_items_without_a_score_end_with_their_code(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(6))
    whole = command.server._answer
    command.server._answer = lambda prompt: "nothing" if "reply 1" in prompt else whole(prompt)
    assert command(*keys(preflight=False)) == score.EXIT_UNSCORED
    assert "unscored: unreadable reply" in capsys.readouterr().err
    assert len(command.rows()) == 24


def test_a_misspelt_column_is_told(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    (command.folder / "in-0.csv").write_text("group,source,text,candidat\ng,m,reply 1,x\n", encoding="utf-8")
    assert command() == 0
    assert "not read: 'candidat' (did you mean 'candidate'?)" in capsys.readouterr().err


def test_what_makes_no_sense_is_refused(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(2))
    for more in ({"transcripts": "t.jsonl"}, {"batch": "openai"}, {"concurrency": "1"}, {"out": "scores.csv"}):
        assert command(**more) == score.EXIT_INPUT
    said = capsys.readouterr().err
    assert said.count("--engine local") == 2
    assert "at least 2, one for each of --actors" in said
    assert command(**{"in": command.folder / "nothing*"}) == score.EXIT_INPUT
    assert "no such file" in capsys.readouterr().err


def test_an_estimate_is_of_all_files(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(4))
    write_jsonl(command.folder / "in-1.jsonl", range(4, 9))
    assert command("--estimate") == 0
    assert "36 items to score" in capsys.readouterr().out
    assert command.server.asked.total() == 0


def test_without_ray_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "in.jsonl", range(1))
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = ["--engine", "ray", program(tmp_path), "--in", tmp_path / "in.jsonl"]
    assert score.main([*map(str, arguments), "--out", str(tmp_path / "out.jsonl")]) == score.EXIT_INPUT
    said = capsys.readouterr().err
    assert "the engine ray is not installed" in said
    assert "[ray]" in said


def shared_judge(command: Command, **options: int) -> Path:
    judges = {name: AspectJudge(build("debate", {**JUDGES["single"].config, **options})) for name in ("tone", "help")}
    return save(command.folder / "shared", CompiledJudge(TASK, judges), lm={"spec": "offline"}, evidence={}, name="x")


def test_groups_of_one_source_share_calls_as_in_one_process(command: Command) -> None:
    """Also where a part would end between them."""
    judge = shared_judge(command, together=4)
    groups = [{**group(n), "source": f"message {n // 3}"} for n in range(16)]
    path = command.folder / "in.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in groups), encoding="utf-8")
    assert command(program=judge, part="4") == 0
    assert len(list(command.out.glob("part-*"))) > 1
    alone = command.folder / "alone.jsonl"
    assert command(program=judge, engine="local", out=alone, **{"in": path}) == 0
    assert command.rows() == alone.read_text(encoding="utf-8").splitlines()
    assert {json.loads(row)["together"] for row in command.rows()} == {2, 3}


@pytest.mark.parametrize("together", [0, 4])
def test_a_file_about_one_source_is_scored_as_in_one_process(
    command: Command, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Also where ranges and parts end within the source, which is where the judge begins another table."""
    judge = shared_judge(command, together=together)
    path = command.folder / "in.jsonl"
    path.write_text("".join(json.dumps({**group(n), "source": "message"}) + "\n" for n in range(16)), encoding="utf-8")
    monkeypatch.setattr(streaming, "GATHERED", 6)
    monkeypatch.setattr(command_module, "GATHERED", 6)
    monkeypatch.setattr(inputs, "SLICE", path.stat().st_size // 5 + 1)
    assert command(program=judge, part="1") == 0
    names = [file.name for file in command.out.glob("part-*")]
    assert len({name[: len("part-00000-00000")] for name in names}) == 5
    assert len(names) == (6 if together else 16)
    alone = command.folder / "alone.jsonl"
    assert command(program=judge, engine="local", out=alone, **{"in": path}) == 0
    assert command.rows() == alone.read_text(encoding="utf-8").splitlines()


def test_a_part_that_ends_its_process_each_time_is_given_up(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(9))
    begin = RunService.begin

    def crashed_before(service: RunService, part: str) -> int:
        for _ in range(4 if part == "00000-00000-000001" else 3):
            begin(service, part)
        return begin(service, part)

    with monkeypatch.context() as patch:
        patch.setattr(RunService, "begin", crashed_before)
        assert command() == score.EXIT_UNSCORED
    said = capsys.readouterr().err
    assert "1 parts have no scores" in said
    assert "the process died each time while they were scored" in said
    assert "part 00000-00000-000001, groups 'g3' to 'g5'" in said
    assert len(command.rows()) == 24
    assert command() == 0
    assert len(command.rows()) == 36
    assert max(command.server.asked.values()) == 1
