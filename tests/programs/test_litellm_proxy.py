"""Debates through a gateway that we did not write: the proxy of LiteLLM, with its cache, before a server that counts.

    LITELLM_PROXY=/path/to/litellm pytest -n 0 -m integration tests/programs/test_litellm_proxy.py

The program is that of an environment of its own with `pip install 'litellm[proxy]'`, whose libraries are not ours.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dspy
import pytest

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.limits import ProviderDownError
from debate_judge.programs.lm.replies import ReplyStore, SqlStore
from debate_judge.programs.lm.settings import LMOptions
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner import JudgeRunner
from tests.faulty_server import FaultyServer
from tests.processes import wait_for_server
from tests.programs.faults import answer, expected, items, judge, scores

PROGRAM = os.environ.get("LITELLM_PROXY")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(PROGRAM is None, reason="LITELLM_PROXY does not name the program of litellm[proxy]"),
]
KEY = "sk-of-the-proxy-1234"
CONFIG = """
model_list:
  - model_name: brain
    litellm_params: &deployment {{model: openai/mock, api_base: "{url}", api_key: sk-of-the-server}}
  - model_name: poor
    litellm_params: {{<<: *deployment, input_cost_per_token: 1.0, max_budget: 0.01, budget_duration: 1d}}
litellm_settings: {{cache: true, cache_params: {{type: local}}}}
general_settings: {{master_key: {key}}}
"""
WAITS = LMOptions(attempt_timeout=60.0, first_wait=0.01, max_wait=0.2, max_outage=0.5)


@contextmanager
def proxy(folder: Path, server: FaultyServer, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The proxy, listening on the port."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(url=server.url, key=KEY))
    command = [str(PROGRAM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environment) as run:
        try:
            wait_for_server(run, f"http://127.0.0.1:{port}/health/liveliness", folder / "log")
            yield run
        finally:
            run.kill()


def brain(port: int, path: str = "/v1", store: ReplyStore | None = None, model: str = "brain") -> JudgeLM:
    return make_lm(f"openai/{model}", api_base=f"http://127.0.0.1:{port}{path}", options=WAITS, store=store)


def test_debates_through_a_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    work = items(40)
    with FaultyServer(answer, latency=0.01) as server:
        with proxy(tmp_path, server, port) as process:
            # With and without the version in its address.
            for path in ("/v1", ""):
                assert scores(judge(brain(port, path), work[:10])) == [expected(item) for item in work[:10]]
            # Its cache answers the samples of a score with one reply.
            with JudgeRunner(brain(port), progress=False) as runner:
                runner.judge(Debate(rounds=0, score_mode="sampled:3"), work[:1])
            assert "several samples are one reply" in caplog.text
            monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
            with pytest.raises(dspy.LMAuthError):
                judge(brain(port), work[10:12])
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            # The first calls use the budget up.
            with pytest.raises(dspy.LMBillingError, match="crossed budget"):
                judge(brain(port, model="poor"), work[:20])
            # Killed in the midst, after 20 more calls.
            end = server.requests + 20
            server.script = lambda body, attempt: process.kill() if server.requests == end else None
            with closing(SqlStore(tmp_path / "store")) as store, pytest.raises(ProviderDownError):
                judge(brain(port, store=store), work[10:])
        server.script = lambda body, attempt: None
        paid = server.requests
        with proxy(tmp_path, server, port), closing(SqlStore(tmp_path / "store")) as store:
            assert scores(judge(brain(port, store=store), work[10:])) == [expected(item) for item in work[10:]]
        # Only what was in flight is asked for again: 30 texts, of which every second has four calls, else two.
        assert server.requests - paid <= 30 * 3 - 20 + 16
