"""`--batch openai` on the command line: without a say in results, and resumed after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export.folder import save
from debate_judge.runs.scoring import scorer
from tests.batch_server import BatchServer
from tests.config_keys import keys
from tests.programs.batches import SHORT_WAITS, recorded
from tests.programs.faults import TASK, answer, expected, items

pytestmark = pytest.mark.integration

JOBS = {("scorer", "0"): 30, ("critic", "1"): 30, ("scorer", "1"): 15}
"""Calls in the jobs of 30 letters."""

HURRIED = """
import sys
from debate_judge.programs.lm.options import BatchTiming, LMOptions
from debate_judge.runs import score
from debate_judge.runs.scoring import scorer

scorer.lm_options = lambda arguments: LMOptions(batch="openai", batch_timing=BatchTiming(0.05, 0.05))
sys.exit(score.main(sys.argv[1:]))
"""
"""The command, which looks at its jobs more often."""


@pytest.fixture(autouse=True)
def _hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    usual, timing, wait = scorer.lm_options, SHORT_WAITS.batch_timing, SHORT_WAITS.first_wait
    monkeypatch.setattr(scorer, "lm_options", lambda flags: replace(usual(flags), batch_timing=timing, first_wait=wait))


def scoring(folder: Path, server: BatchServer, count: int) -> list[str]:
    """Arguments of `score.py` for so many letters."""
    judge = AspectJudge(build("debate", JUDGES["debate"].config | {"rounds": 1}))
    compiled = CompiledJudge(TASK, {"clarity": judge})
    program = save(folder / "program", compiled, lm={"spec": "openai/mock"}, evidence={}, name="x")
    lines = [
        json.dumps({"group": i.group, "source": i.source, "candidates": [{"id": i.candidate, "text": i.text}]})
        for i in items(count)
    ]
    (folder / "in.jsonl").write_text("".join(f"{text}\n" for text in lines))
    flags = {"--in": folder / "in.jsonl", "--out": folder / "out.jsonl", "--store": folder}
    flags |= {"--api-base": server.url}
    given = [str(part) for pair in flags.items() for part in pair]
    return [str(program), *given, *keys(batch="openai", preflight=False)]


def rows(folder: Path) -> list[float]:
    return [json.loads(line)["score"] for line in (folder / "out.jsonl").read_text().splitlines()]


def test_the_calls_that_try_an_lm_out_wait_for_no_job(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        assert score.main(scoring(tmp_path, server, 30)[:-2]) == 0
        assert server.direct > 0
        assert server.made_calls.keys() == JOBS.keys()


PHASES = {
    "before a job is created": ("POST", "/batches", "held"),
    "before its creation is answered": ("POST", "/batches", "silent"),
    "while it is carried out": ("GET", "/batches/batch_0", "held"),
    "before its answers are stored": ("GET", "/files/", "held"),
}
"""When the process is killed: as soon as the service has received such a request, which it does not answer."""


@pytest.mark.parametrize("phase", PHASES)
def test_scoring_that_was_killed_goes_on_with_its_jobs(phase: str, tmp_path: Path) -> None:
    method, path, fault = PHASES[phase]
    reached = threading.Event()

    def door(method_: str, path_: str, number: int) -> str | None:
        if method_ != method or not path_.startswith(path):
            return None
        reached.set()
        return fault

    with BatchServer(answer) as server:
        server.on_request = door
        command = [sys.executable, "-c", HURRIED, *scoring(tmp_path, server, 30)]
        environment = {**os.environ, "OPENAI_API_KEY": "sk-x"}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            end = time.monotonic() + 120
            while not reached.wait(0.05):
                assert process.poll() is None, process.stderr.read() if process.stderr else ""
                assert time.monotonic() < end
            process.send_signal(signal.SIGKILL)
        server.on_request = lambda method, path, number: None
        assert score.main(scoring(tmp_path, server, 30)) == 0
        assert server.made_calls == JOBS
        assert set(server.executed.values()) == {1}
    assert rows(tmp_path) == [expected(item) for item in items(30)]
    assert not recorded(tmp_path / "replies" / "openai_mock")
