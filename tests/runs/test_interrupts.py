"""Ctrl-C while calls are in flight: their replies are stored, the same command continues and asks nothing twice; a
second one ends at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from debate_judge.programs.offline import OfflineTransport
from tests.config_keys import keys
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.processes import read_until
from tests.programs.debates import score_reply
from tests.runs.integration_exports import save_judge

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
CONCURRENCY = 8


def answer(body: bytes) -> str:
    """What the offline stand-in replies."""
    *system, user = (message["content"] for message in json.loads(body)["messages"])
    return OfflineTransport().answer("".join(system[:1]), user, {}).text


def start(folder: Path, server: FaultyServer, command: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "debate_judge.optimize.cli", command, *arguments],
        cwd=folder, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": f"{ROOT / '.src'}:{ROOT}", "OPENAI_BASE_URL": server.url,
             "OPENAI_API_KEY": "sk-of-a-test-of-interrupts"},
        # A process that a shell started in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def arguments_of(command: str, folder: Path) -> list[str]:
    common = ["--data", str(small_corpus(folder)), "--aspects", "coherence", "--lm", "openai/m", *keys(report="none")]
    common += ["--concurrency", str(CONCURRENCY), "--store", "store"]
    compiling = ["--max-rounds", "1", "--effort", "light", "--folds", "1", *keys(trials=4)]
    return [*common, *(compiling if command == "compile" else ["--judges", "single,debate"])]


def interrupt(process: subprocess.Popen[str], server: FaultyServer, requests: int) -> None:
    """Interrupt the process when the server has had so many requests in all."""
    while process.poll() is None and server.requests < requests:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("command", ["compile", "compare"])
def test_what_is_in_flight_is_stored_and_the_same_command_continues(
    command: str, tmp_path: Path, new_tables: Callable[[Path], None]
) -> None:
    new_tables(tmp_path / "store" / "mlflow.db")
    arguments = arguments_of(command, tmp_path)
    with FaultyServer(answer, latency=0.1) as server:
        process = start(tmp_path, server, command, *arguments)
        interrupt(process, server, 20)
        sent = server.requests
        errors = process.communicate(timeout=120)[1]
        assert (process.returncode, "Traceback" in errors) == (130, False), errors
        assert "command again" in errors
        # Those that the server had not read, and those that were sent before the process noticed.
        assert server.requests <= sent + 2 * CONCURRENCY
        assert server.requests == server.answered.total()
        process = start(tmp_path, server, command, *arguments)
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
    assert max(server.answered.values()) == 1


@pytest.mark.parametrize("command", ["compile", "compare"])
def test_a_second_interrupt_waits_for_no_reply(
    command: str, tmp_path: Path, new_tables: Callable[[Path], None]
) -> None:
    new_tables(tmp_path / "store" / "mlflow.db")

    def script(body: bytes, attempt: int) -> str | None:
        return "slow" if server.requests > 20 else None

    with FaultyServer(answer, script) as server:
        process = start(tmp_path, server, command, *arguments_of(command, tmp_path))
        interrupt(process, server, 21 + CONCURRENCY // 2)
        errors = read_until(process, "are in flight and paid for")
        process.send_signal(signal.SIGINT)
        # An attempt has five minutes to be answered.
        errors += process.communicate(timeout=120)[1]
        assert (process.returncode, "Traceback" in errors) == (130, False), errors


def test_a_service_answers_what_it_has_accepted_and_a_refused_text_is_no_other_ones_business(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")

    def script(body: bytes, attempt: int) -> str | None:
        return next((fault for fault in ("forbidden", "too large") if fault.encode() in body), None)

    def ask(text: str) -> float | None:
        body = {"source": "Late!", "text": text, "aspects": ["tone"]}
        score: float | None = httpx.post(f"{url}/score", json=body, timeout=120).json()["scores"]["tone"]["score"]
        return score

    export = save_judge(tmp_path / "judge", lm="openai/m")
    with FaultyServer(lambda body: score_reply(4), script, latency=0.5) as server, ThreadPoolExecutor(4) as pool:
        process = start(tmp_path, server, "serve", str(export), "--port", "0", "--store", "store")
        output = read_until(process, "running on")
        url = output.split("running on ")[1].split()[0]
        assert f"texts go to {server.url}" in output
        assert list(pool.map(ask, ("forbidden", "too large", "one", "two"))) == [None, None, 4, 4]
        server.latency = 3.0
        late = [pool.submit(ask, f"late {number}") for number in range(3)]
        while "debate_requests_in_flight 3.0" not in httpx.get(f"{url}/metrics").text:
            assert not any(answer.done() for answer in late)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=120)[1]
        assert [answer.result() for answer in late] == [4, 4, 4]
        assert (process.returncode, "Traceback" in errors) == (0, False), errors
