"""The HTTP service: answers, refusals, limits, hundreds of requests at once, and a stop that loses none."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed: pip install 'debate-judge[serve]'")

import uvicorn

from debate_judge import load
from debate_judge.programs.lm.limits import ProviderDownError
from debate_judge.runs import serve
from debate_judge.runs.http_service import AspectScore, ServiceLimits, make_app
from debate_judge.runs.loaded import LoadedJudge
from tests.fakes import ScriptedLM
from tests.processes import read_until
from tests.runs.integration_exports import save_judge, score_for, script

pytestmark = pytest.mark.integration

__all__ = ["script"]

KEY = "0123456789abcdef"


@pytest.fixture
def judge(tmp_path: Path, lms: list[ScriptedLM]) -> Iterator[LoadedJudge]:
    with load(save_judge(tmp_path / "judge"), concurrency=64) as loaded:
        yield loaded


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The app on a free port of loopback, by the server that the command starts."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", backlog=2048))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


def test_one_text_and_many(judge: LoadedJudge) -> None:
    with served(make_app(judge)) as url, httpx.Client(base_url=url) as client:
        single = client.post("/score", json={"source": "Late!", "text": "reply 16", "aspects": ["help"]})
        assert single.json() == {
            "scores": {
                "help": {
                    "score": 4.5, "reason": "I read reply 16.", "unscored": None, "rounds": 0,
                    "stop_reason": "single call", "calls": 1.0,
                }
            }
        }  # fmt: skip
        texts = ["reply 3", "", "unreadable 1", "reply 3"]
        many = client.post("/score", json=[{"source": "Late!", "text": text} for text in texts]).json()
        assert [(answer["scores"]["tone"]["score"], answer["scores"]["tone"]["unscored"]) for answer in many] == [
            *((2.5, None), (None, "no text"), (None, "unreadable reply"), (2.5, None))
        ]
        assert client.get("/health").json()["aspects"] == ["tone", "help"]
        assert set(client.get("/openapi.json").json()["paths"]) == {"/score", "/health", "/metrics"}
        metrics = client.get("/metrics").text
        assert 'debate_requests_total{status="200"} 2.0' in metrics
        assert 'debate_scores_total{aspect="tone",unscored="unreadable reply"} 1.0' in metrics
        assert f"debate_lm_calls {float(judge.lm.meter.total.calls)}" in metrics
        for body in (
            b"{", b'{"text": "t"}', b'{"source": "s", "text": 3}', b'{"source": "s", "text": "t", "key": 1}',
            b'{"source": "s", "text": "t", "aspects": ["style"]}', b'{"source": "s", "text": "\\ud800"}',
        ):  # fmt: skip
            refused = client.post("/score", content=body, headers={"Content-Type": "application/json"})
            assert (refused.status_code, bool(refused.json()["detail"])) == (422, True), body


def test_limits(judge: LoadedJudge) -> None:
    body = {"source": "Late!", "text": "reply 3" + " " * 1000}
    with served(make_app(judge, limits=ServiceLimits(body=1000))) as url:
        assert httpx.post(f"{url}/score", json=body).status_code == 413
        # Of a length that no header tells.
        pieces = (b" " * 100 for _ in range(20))
        sent = httpx.post(f"{url}/score", content=pieces, headers={"Content-Type": "application/json"})
        assert sent.status_code == 413
    with served(make_app(judge, limits=ServiceLimits(requests=0))) as url:
        refused = httpx.post(f"{url}/score", json={"source": "s", "text": "reply 1"})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert httpx.get(f"{url}/health").status_code == 200
    with served(make_app(judge, limits=ServiceLimits(seconds=0.0))) as url:
        assert httpx.post(f"{url}/score", json={"source": "s", "text": "reply 1"}).status_code == 504


def test_a_list_shares_calls_where_the_judge_does(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    with load(save_judge(tmp_path / "judge", together=3)) as judge:
        rows = [{"source": "Late!", "text": f"reply {n}", "aspects": ["tone"]} for n in range(3)]
        with served(make_app(judge)) as url:
            answers = httpx.post(f"{url}/score", json=rows).json()
    assert [answer["scores"]["tone"]["score"] for answer in answers] == [score_for(row["text"]) for row in rows]
    assert len(lms[0].prompts) == 1


def test_a_key_is_asked_for_but_on_loopback(judge: LoadedJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(serve.KEY_VARIABLE, raising=False)
    assert [serve.bearer_key(host) for host in ("127.0.0.1", "::1", "localhost")] == [None] * 3
    monkeypatch.setenv(serve.KEY_VARIABLE, KEY)
    assert serve.bearer_key("0.0.0.0") == KEY
    question = {"source": "Late!", "text": "reply 3"}
    with served(make_app(judge, key=KEY)) as url, httpx.Client(base_url=url) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}):
            refused = client.post("/score", json=question, headers=headers)
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert [client.get(path).status_code for path in ("/metrics", "/health")] == [401, 200]
        client.headers["Authorization"] = f"Bearer {KEY}"
        for host in ("judge.example", "["):
            assert client.post("/score", json=question, headers={"Host": host}).status_code == 200
        assert KEY not in client.get("/openapi.json").text + client.get("/metrics").text


def test_what_strangers_are_not_told(judge: LoadedJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_: Any, **__: Any) -> Any:
        raise ProviderDownError("no server listens at http://10.1.2.3/v1", model="m")

    monkeypatch.setattr(judge, "ascore_many", down)
    with served(make_app(judge)) as url:
        question = {"source": "", "text": "t"}
        for host in ("evil.example", "["):
            assert httpx.post(f"{url}/score", json=question, headers={"Host": host}).status_code == 421
        answer = httpx.post(f"{url}/score", json=question)
        assert (answer.status_code, list(answer.json())) == (502, ["detail"])
        assert "10.1.2.3" not in answer.text
    empty = judge.score(source="", text="")["tone"]
    failed = replace(empty, unscored="lm error", reason="lm error: http://10.1.2.3/v1 refused")
    assert "10.1.2.3" not in AspectScore.of(failed).reason
    assert AspectScore.of(empty).reason == empty.reason == "no text: the text is empty"


def test_hundreds_of_requests_at_once_lose_and_mix_up_nothing(judge: LoadedJudge, lms: list[ScriptedLM]) -> None:
    async def ask(client: httpx.AsyncClient, n: int) -> tuple[int, float, str]:
        question = {"source": f"message {n % 7}", "text": f"reply {n}", "aspects": ["tone"]}
        answer = (await client.post("/score", json=question)).json()["scores"]["tone"]
        return n, answer["score"], answer["reason"]

    async def work(url: str) -> list[tuple[int, float, str]]:
        limits = httpx.Limits(max_connections=400)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=120) as client:
            return await asyncio.gather(*(ask(client, n) for n in range(200)))

    with served(make_app(judge)) as url:
        answers = asyncio.run(work(url))
    assert answers == [(n, score_for(f"reply {n}"), f"I read reply {n}.") for n in range(200)]
    assert len(lms[0].prompts) == 200


def test_the_command_serves_and_stops_when_it_is_told_to(tmp_path: Path) -> None:
    export = save_judge(tmp_path / "judge", lm="offline")
    command = [sys.executable, "-m", "debate_judge.runs.serve", str(export), "--port", "0", "--store", "store"]
    environment = {**os.environ, serve.KEY_VARIABLE: KEY}
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            output = read_until(process, "running on")
            url = output.split("running on ")[1].split()[0]
            headers = {"Authorization": f"Bearer {KEY}"}
            question = {"source": "Late!", "text": "Sorry, it ships today."}
            answer = httpx.post(f"{url}/score", json=question, headers=headers, timeout=60)
            assert 1 <= answer.json()["scores"]["tone"]["score"] <= 5
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, -signal.SIGTERM)
            assert KEY not in output + process.stderr.read()
        finally:
            process.kill()
