"""`score --engine ray` from its flags to its exit code, with actors in this process in place of Ray."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest
from filelock import FileLock
from fsspec.implementations.memory import MemoryFileSystem

from debate_judge.programs import build_preset
from debate_judge.runs.distributed.actor import ScoringActor, ScoringJob
from debate_judge.runs.distributed.driver import UnitDriver
from debate_judge.runs.distributed.units import find_inputs, with_fingerprints
from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_LM
from debate_judge.runs.runner import streaming
from debate_judge.runs.scoring.settings import EXIT_UNSCORED
from tests.config_keys import keys
from tests.runs.distributed_command import Command, in_this_process
from tests.runs.distributed_run import TASK, group, write_csv, write_jsonl, write_parquet
from tests.runs.score_command import export_of

pytestmark = pytest.mark.integration


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    with in_this_process(tmp_path, monkeypatch) as command:
        yield command


def alone(command: Command, *flags: str, **more: str | Path) -> list[str]:
    """The rows of all files by one process."""
    rows = []
    for file in sorted(command.folder.glob("in*")):
        out = command.folder / f"alone-{file.stem}.jsonl"
        assert command(*flags, engine="local", out=out, **{"in": file}, **more) == 0
        rows += out.read_text(encoding="utf-8").splitlines()
    return rows


# --- the rows ---


def test_rows_are_those_of_one_process_and_repeated_runs_pay_nothing(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(14))
    write_csv(command.folder / "in-1.csv", range(14, 24))
    write_parquet(command.folder / "in-2.parquet", range(24, 64))
    assert command() == 0
    rows, calls, parts = command.rows(), command.server.asked.total(), command.parts()
    assert calls == len(command.server.asked) == 64 * 2 * 3
    # A part that was lost or damaged is made again from the store, and no other.
    (command.out / parts[0]).unlink()
    (command.out / parts[-1]).write_bytes(b"{}\n")
    command.ray.actors.clear()
    assert command() == command() == 0
    message = capsys.readouterr().err
    assert all(part in message for part in ("256 items in", "2 parts of", "already present", "nothing left to do"))
    assert [handle.begun for handle in command.ray.actors] == [[parts[0][5:-6]], [parts[-1][5:-6]]]
    assert command.rows() == rows == alone(command)
    assert command.server.asked.total() == calls
    # Another judge or input is refused.
    assert command(aspects="tone") == command("--columns", "text=other") == EXIT_INPUT
    write_jsonl(command.folder / "in-0.jsonl", range(4))
    assert command() == EXIT_INPUT
    message = capsys.readouterr().err
    assert all(f"different {name}" in message for name in ("aspects", "columns", "inputs"))


@pytest.mark.parametrize("flags", [("--keep-columns",), ("--wide", "--keep-columns")])
def test_rows_can_be_joined_as_those_of_one_process(command: Command, flags: tuple[str, ...]) -> None:
    groups = [{**group(n), "topic": f"t{n}", "year": n, "tags": ["x", n]} for n in range(12)]
    (command.folder / "in-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in groups))
    assert command(*flags) == 0
    assert len(command.parts()) > 2
    rows = command.rows()
    assert rows == alone(command, *flags)
    table = command.folder / "out.parquet"
    assert command(*flags, out=table) == 0
    frame = pd.read_parquet(table)
    assert len(frame) == len(rows)
    # The parts of a table have one schema, so what is kept is text.
    assert list(frame[["topic", "year", "tags"]].iloc[-1]) == ["t11", "11", '["x", 11]']
    assert "--wide" not in flags or frame["tone"].dtype == "float64"


@pytest.mark.parametrize(("together", "sources"), [(0, 7), (4, 3), (4, 100)])
def test_groups_of_one_source_share_calls_as_in_one_process(
    command: Command, monkeypatch: pytest.MonkeyPatch, together: int, sources: int
) -> None:
    """Where units end between them they would not; a judge begins another table after so many of a source, too."""
    monkeypatch.setattr(streaming, "MAX_GROUPED", 6)
    program = export_of(command.folder / "shared", TASK, build_preset("single", {"together": together}), lm="offline")
    groups = [{**group(n), "source": f"message {n // sources}"} for n in range(24)]
    (command.folder / "in-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in groups))
    assert command(program=program) == 0
    # A source is not cut, however long it is, where its groups share calls.
    assert (len(command.parts()) == 1) == (together > 0 and sources == 100)
    assert command.rows() == alone(command, program=program)


# --- who writes them ---


def test_a_folder_is_written_by_one_run_that_all_actors_see(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(3))
    other, start = command.folder / "other.jsonl", ScoringActor.__init__
    assert command(out=other) == 0
    with FileLock(other / "_lock"):
        assert command(out=other) == EXIT_INPUT
    assert "another run is writing" in capsys.readouterr().err

    def on_another_machine(actor: ScoringActor, job: ScoringJob) -> None:
        """The same path is another folder there."""
        job.out.url = str(other)
        start(actor, job)

    with monkeypatch.context() as patch:
        patch.setattr(ScoringActor, "__init__", on_another_machine)
        assert command() == EXIT_INPUT
    (command.out / "_manifest.json").unlink()
    (command.out / "part-00000-00000.jsonl").write_bytes(b"{}\n")
    assert command() == command(out="nowhere://bucket/out.jsonl") == EXIT_INPUT
    message = capsys.readouterr().err
    assert all(part in message for part in ("name a folder that all machines", "no manifest", "cannot be reached"))


# --- budgets, interrupts and errors ---


def test_the_users_limits_hold_over_all_actors_together(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(20))
    limits = keys(tpm=9e6)
    assert command(*limits, rpm="90000", budget="calls=101,tokens=999999", concurrency="6") == EXIT_LM
    message = capsys.readouterr().err
    assert "share of one actor" in message
    assert "raise --budget" in message
    # What was asked before the actors started counts.
    assert command.server.asked.total() <= 101
    jobs = [handle._actor.result()._job for handle in command.ray.actors]
    own = [(job.flags.concurrency, job.options.rpm, job.options.tpm, job.options.budget.calls) for job in jobs]
    assert [sum(values) for values in zip(*own, strict=True)][:3] == [6, 90_000, 9e6]
    assert 0 < len(command.rows()) < 80
    assert command() == 0
    assert "already present" in capsys.readouterr().err
    assert len(command.rows()) == 80
    assert max(command.server.asked.values()) == 1


def test_a_budget_ends_with_the_last_actor_that_has_a_share(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was killed may have spent its share, so no other process gets it; the others go on with theirs."""
    write_jsonl(command.folder / "in-0.jsonl", range(30))
    command.ray.dies_of = lambda handle, unit: handle is command.ray.actors[0] and len(handle.begun) == 3
    assert command(budget="calls=1000") == 0
    assert len(command.ray.actors) == 2
    assert len(command.rows()) == 120
    command.ray.actors.clear()
    command.ray.dies_of = lambda handle, unit: len(handle.begun) == 3
    assert command(budget="calls=1000", out=command.folder / "other.jsonl") == EXIT_LM
    assert "all actors were killed" in capsys.readouterr().err


def test_an_interrupt_ends_in_order_and_the_same_command_goes_on(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(30))
    command.server.latency = 0.02
    wait = UnitDriver._wait

    def interrupt(driver: UnitDriver, timeout: float) -> None:
        wait(driver, timeout)
        if driver._totals.finished and driver._queue:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(UnitDriver, "_wait", interrupt)
        assert command() == EXIT_INTERRUPTED
    assert "resumes" in capsys.readouterr().err
    assert 0 < len(command.rows()) < 120
    assert command() == 0
    assert len(command.rows()) == 120
    # Also what was in flight when it was stopped.
    assert max(command.server.asked.values()) == 1


def test_what_has_no_score_has_its_code_and_is_asked_again_if_the_lm_gave_no_answer(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_score() -> set[str]:
        return {row["group"] for row in map(json.loads, command.rows()) if row["unscored"]}

    write_jsonl(command.folder / "in-0.jsonl", range(9))
    faults = {b"reply 31": "400", b"reply 1\\n": "unreadable"}
    command.server.script = lambda body, attempt: next((fault for text, fault in faults.items() if text in body), None)
    assert command(*keys(preflight=False, max_unscored=0)) == EXIT_UNSCORED
    assert "unscored: unreadable reply" in capsys.readouterr().err
    assert without_score() == {"g3", "g0"}
    faults.clear()
    command.ray.actors.clear()
    assert command(*keys(max_unscored=1)) == 0
    assert [len(handle.begun) for handle in command.ray.actors] == [1]
    assert without_score() == {"g0"}
    # A wrong key ends the run.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret123456")
    command.server.key = "another"
    assert command(*keys(preflight=False), out=command.folder / "new.jsonl", store=command.folder / "new") == EXIT_LM
    message = capsys.readouterr().err
    assert "OPENAI_API_KEY" in message
    assert "sk-secret123456" not in message


def test_a_unit_that_ends_its_process_each_time_is_given_up(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(command.folder / "in-0.jsonl", range(12))
    command.ray.dies_of = lambda handle, unit: unit == "00000-00001"
    assert command() == EXIT_UNSCORED
    message = capsys.readouterr().err
    assert "1 units have no scores" in message
    assert "in-0.jsonl, bytes 400 to 799" in message
    assert sum(handle.begun.count("00000-00001") for handle in command.ray.actors) == 4
    command.ray.dies_of = lambda handle, unit: False
    assert command() == 0
    assert command.rows() == alone(command)
    # A cluster on which every actor dies ends the run.
    write_jsonl(command.folder / "in-0.jsonl", range(60))
    command.ray.dies_of = lambda handle, unit: True
    assert command(*keys(actors=1), out=command.folder / "other.jsonl") == EXIT_INPUT
    assert "one after the other" in capsys.readouterr().err


# --- what a run knows its input by ---


def fingerprints(pattern: str | Path) -> list[str]:
    return [file.fingerprint for file in with_fingerprints(find_inputs(str(pattern)))]


@pytest.mark.parametrize("address", ["", "file://", "memory://"])
def test_an_edit_in_the_middle_of_a_file_is_noticed(tmp_path: Path, address: str) -> None:
    """By its content on this machine, where size and time stay the same, and by its version in another store."""
    url, texts = f"{address}{tmp_path}/in.jsonl", (b"a" * 500_000, b"a" * 250_000 + b"b" * 250_000)
    system, path = fsspec.core.url_to_fs(url)
    system.makedirs(tmp_path, exist_ok=True)
    known = []
    for text in texts:
        system.pipe_file(path, text)
        if "memory" not in address:
            os.utime(path, (0, 0))
        known += [fingerprints(url), fingerprints(url)]
    assert known[0] == known[1] != known[2] == known[3]


def test_of_a_store_without_versions_the_ends_of_a_file_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    info = MemoryFileSystem.info

    def bare(self: MemoryFileSystem, path: str, **more: Any) -> dict[str, Any]:
        return {name: value for name, value in info(self, path, **more).items() if name in ("name", "size", "type")}

    monkeypatch.setattr(MemoryFileSystem, "info", bare)
    known = []
    for end in (b"b", b"c"):
        fsspec.filesystem("memory").pipe_file("/texts/in.jsonl", b"a" * 499_999 + end)
        known += fingerprints("memory://texts/in.jsonl")
    assert known[0] != known[1]


def test_a_set_of_the_hub_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    folder = tmp_path / "replies"
    folder.mkdir()
    write_parquet(folder / "train.parquet", range(4))
    before = fingerprints(f"hf:{folder}@train")
    assert before == fingerprints(f"hf:{folder}@train") != [""]
    write_parquet(folder / "train.parquet", range(5))
    assert fingerprints(f"hf:{folder}@train") != before
