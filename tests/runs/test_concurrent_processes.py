"""Processes that were killed, or run at the same time: each call is paid once, and none disturbs another."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize.compile import main
from debate_judge.programs import JUDGES, build
from debate_judge.runs.scoring import scorer
from debate_judge.runs.tracking.store import open_tracking_store
from tests.batch_server import BatchServer
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.programs import faults
from tests.programs.batches import SHORT_WAITS, recorded
from tests.runs.score_command import ScoreCommand, export_of, over_http

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

FORK: Any = multiprocessing.get_context("fork" if hasattr(os, "fork") else None)

JOBS = {("scorer", "0"): 30, ("critic", "1"): 30, ("scorer", "1"): 15}
"""Calls in the jobs of 30 letters."""


@pytest.fixture
def _hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `debate score` look at its batch jobs more often."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    usual, timing, wait = scorer.lm_options, SHORT_WAITS.batch_timing, SHORT_WAITS.first_wait
    monkeypatch.setattr(scorer, "lm_options", lambda flags: replace(usual(flags), batch_timing=timing, first_wait=wait))


def scoring(folder: Path, server: BatchServer) -> Callable[..., int]:
    """`debate score` of 30 letters in batch jobs."""
    debate = build("debate", {**JUDGES["debate"].config, "rounds": 1})
    program = export_of(folder / "program", faults.TASK, debate, lm="openai/mock")
    rows = [{"group": i.group, "source": i.source, "candidate": "c", "text": i.text} for i in faults.items(30)]
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = ScoreCommand(folder, program, **{"store": folder, "api-base": server.url})
    return partial(command, *keys(batch="openai"))


@pytest.mark.usefixtures("_hurry")
def test_the_calls_that_try_an_lm_out_wait_for_no_job(tmp_path: Path) -> None:
    with BatchServer(faults.answer) as server:
        assert scoring(tmp_path, server)() == 0
        assert server.direct > 0
        assert server.made_calls.keys() == JOBS.keys()


@pytest.mark.usefixtures("_hurry")
@pytest.mark.parametrize(
    ("method", "path", "fault"),
    [
        pytest.param("POST", "/batches", "held", id="before a job is created"),
        pytest.param("POST", "/batches", "silent", id="before its creation is answered"),
        pytest.param("GET", "/batches/batch_0", "held", id="while it is carried out"),
        pytest.param("GET", "/files/", "held", id="before its answers are stored"),
    ],
)
def test_scoring_that_was_killed_goes_on_with_its_jobs(method: str, path: str, fault: str, tmp_path: Path) -> None:
    """It is killed as soon as the service has received such a request, which it does not answer."""
    reached = threading.Event()

    def door(requested_method: str, requested_path: str, number: int) -> str | None:
        if requested_method != method or not requested_path.startswith(path):
            return None
        reached.set()
        return fault

    with BatchServer(faults.answer) as server:
        server.on_request, command = door, partial(scoring(tmp_path, server), *keys(preflight=False))
        process = FORK.Process(target=command)
        process.start()
        assert reached.wait(120)
        process.kill()
        process.join()
        server.on_request = lambda method, path, number: None
        assert command() == 0
        assert server.made_calls == JOBS
        assert set(server.executed.values()) == {1}
    rows = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(row)["score"] for row in rows] == [faults.expected(item) for item in faults.items(30)]
    assert not recorded(tmp_path / "replies" / "openai_mock")


def test_compiles_at_once_pay_once_for_what_they_have_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    begin = FORK.Barrier(2)

    def compiled(*arguments: str) -> None:
        begin.wait(60)
        os._exit(main(arguments))

    with FaultyServer(over_http(debater(score=lambda prompt: str(1 + len(prompt) % 5))), latency=0.01) as server:
        data = small_corpus(tmp_path, groups=8, candidates=3)
        # Once for both: MLflow is imported, and its tables made, in seconds.
        open_tracking_store(None, tmp_path / "store", "debate/small")
        common = ["--data", str(data), "--lm", "openai/mock", "--api-base", server.url]
        common += ["--store", str(tmp_path / "store"), "--aspects", "coherence", "--tuner", "none", "--effort", "light"]
        common += ["--max-rounds", "0", *keys(trials=1, resamples=100, preflight=False, report="none")]
        runs = (["--name", "one"], ["--name", "another", "--seed", "1"])
        processes = [FORK.Process(target=compiled, args=(*common, *more), daemon=True) for more in runs]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        assert [process.exitcode for process in processes] == [0, 0]
        assert set(server.answered.values()) == {1}
    assert all((tmp_path / "store" / "exports" / name).is_dir() for name in ("one", "another"))
    # Nor is a page made where none is wanted.
    assert not list((tmp_path / "store" / "exports").rglob("report*"))
