"""`score --engine ray` on a real Ray of this machine: rows as by one process, and what a killed process costs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from debate_judge.programs import build, build_preset
from debate_judge.runs.command_line import EXIT_INPUT, EXIT_LM
from debate_judge.runs.integrations import score_frame
from debate_judge.runs.loaded import load
from tests.faulty_server import FaultyServer
from tests.runs.score_command import SCRIPT, TASK, ScoreCommand, export_of, over_http

pytest.importorskip("ray", reason="ray is not installed: pip install 'debate-judge[ray]'")
pytestmark = pytest.mark.integration

CALLS = 3
"""Calls for a row: one for tone, two for help."""
IN_FLIGHT = 8


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    with FaultyServer(over_http(SCRIPT)) as server:
        yield server


@pytest.fixture
def command(tmp_path: Path, server: FaultyServer) -> ScoreCommand:
    debate = build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False})
    program = export_of(tmp_path / "program", TASK, build_preset("single", {}), debate, lm="openai/m")
    flags: dict[str, Any] = {"engine": "ray", "api-base": server.url, "concurrency": IN_FLIGHT}
    return ScoreCommand(tmp_path, program, **flags)


def frame(count: int) -> pd.DataFrame:
    rows = [(f"{n:03}", f"message {n // 3}", f"reply {n}", n) for n in range(count)]
    return pd.DataFrame(rows, columns=["id", "source", "text", "year"])


def rows_of(out: Path) -> pd.DataFrame:
    reader: Callable[..., pd.DataFrame] = {
        ".parquet": pd.read_parquet,
        ".csv": lambda file: pd.read_csv(file, dtype={"id": str}, keep_default_na=False),
        ".jsonl": lambda file: pd.read_json(file, lines=True, dtype={"id": str}),
    }[out.suffix]
    return pd.concat([reader(file) for file in out.iterdir()]).sort_values("id", ignore_index=True)


@pytest.mark.parametrize(
    "suffix", [".parquet", *(pytest.param(suffix, marks=pytest.mark.soak) for suffix in (".csv", ".jsonl"))]
)
def test_rows_are_those_of_one_process_and_are_paid_once(
    suffix: str, command: ScoreCommand, server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, out = frame(40), tmp_path / f"out{suffix}"
    texts.loc[7, "text"] = 'reply,\n"quoted" 7'
    texts.to_parquet(tmp_path / "in.parquet")
    texts.to_csv(tmp_path / "in.csv", index=False)
    texts.iloc[:30].to_json(tmp_path / "in-0.jsonl", orient="records", lines=True)
    texts.iloc[30:].to_json(tmp_path / "in-1.jsonl", orient="records", lines=True)
    files = {"in": tmp_path / f"in{'-*' if suffix == '.jsonl' else ''}{suffix}", "out": out}
    assert command(**files) == 0, capsys.readouterr().err
    with load(command.program, api_base=server.url, store=tmp_path / "store") as judge:
        expected = score_frame(texts, judge)
    pd.testing.assert_frame_equal(rows_of(out), expected, check_dtype=False)
    assert server.answered.total() == len(server.answered) == 40 * CALLS
    written = sorted(out.iterdir())
    assert command(**files) == 0
    assert sorted(out.iterdir()) == written
    assert command("--aspects", "tone", **files) == EXIT_INPUT
    assert "other rows" in capsys.readouterr().err


def test_a_killed_driver_and_a_killed_actor_lose_nothing_and_only_their_calls_in_flight_are_paid_again(
    command: ScoreCommand, server: FaultyServer, tmp_path: Path
) -> None:
    frame(120).to_csv(tmp_path / "in.csv", index=False)
    server.latency = 0.1
    flags = {"in": tmp_path / "in.csv", "out": tmp_path / "out.jsonl", "store": tmp_path / "store", **command.flags}
    arguments = [str(part) for name, value in flags.items() for part in (f"--{name}", value)]
    driver = subprocess.Popen(
        [sys.executable, "-m", "debate_judge.runs.score", str(command.program), *arguments], stderr=subprocess.PIPE
    )
    while server.answered.total() < 60 and driver.poll() is None:
        time.sleep(0.02)
    for process in (driver, *psutil.Process(driver.pid).children(recursive=True)):
        process.kill()
    driver.wait()

    def kill_an_actor() -> None:
        while server.answered.total() < 180:
            time.sleep(0.02)
        (actor, *_) = [p for p in psutil.Process().children(recursive=True) if "Scorer" in " ".join(p.cmdline())]
        actor.kill()

    killer = threading.Thread(target=kill_an_actor)
    killer.start()
    assert command(**flags) == 0
    killer.join()
    rows = rows_of(tmp_path / "out.jsonl")
    assert list(rows["id"]) == list(frame(120)["id"])
    assert rows["tone"].notna().all()
    assert len(server.answered) == 120 * CALLS
    assert server.answered.total() - len(server.answered) <= 2 * IN_FLIGHT


@pytest.mark.soak
def test_what_ends_a_run_is_said_as_by_one_process(
    command: ScoreCommand, server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame(40).to_parquet(tmp_path / "in.parquet")
    flags = {"in": tmp_path / "in.parquet", "out": tmp_path / "out.parquet"}
    assert command(**flags, budget="calls=30") == EXIT_LM
    assert "budget" in capsys.readouterr().err
    assert server.requests <= 30
    assert command("--columns", "text=reply", **{**flags, "out": tmp_path / "other.parquet"}) == EXIT_INPUT
    assert "'reply'" in capsys.readouterr().err
    assert command(**flags) == 0
    assert server.answered.total() == len(server.answered) == 40 * CALLS
