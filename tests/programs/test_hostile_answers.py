"""Endless and compressed responses over real HTTP: the call fails, and memory does not grow."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from dataclasses import replace

import dspy
import pytest

from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.http.connections import BODY_LIMIT
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.hostile_server import ENDLESS, HEAD, HostileServer, endless, gzip_bomb, sized
from tests.programs.engines import QUESTION, SPECS, reply_to

pytestmark = pytest.mark.integration

ONCE = LMOptions(retries=0, attempt_timeout=60.0, first_wait=0.01, max_outage=0.01)
"""With these options a server that also fails the probe counts as down at once."""


def by_ask(lm: JudgeLM) -> None:
    asyncio.run(reply_to(lm, QUESTION))


def in_a_run(lm: JudgeLM) -> None:
    with JudgeRunner(lm, progress=False):
        lm("Propose.")


CALLERS = {"ask": by_ask, "DSPy's modules in a run": in_a_run}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hostile-answers-test")
    for provider in ("ANTHROPIC", "COHERE", "DEEPINFRA"):
        monkeypatch.setenv(f"{provider}_API_KEY", "sk-hostile-answers-test")


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_is_given_up(kind: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with HostileServer(lambda _: endless(kind)) as server:
        lm = make_lm("openai/m", api_base=server.url, options=replace(ONCE, attempt_timeout=1.0))
        with pytest.raises(dspy.LMError, match=r"too long|incomplete response|no answer in time|no call was answered"):
            by_ask(lm)
        # Bytes sent before the client closes are in the buffers of the system. Chunk extensions and
        # informational responses (1xx) are skipped and not stored, until the attempt times out.
        if kind not in ("chunk line", "announcements"):
            # Six bytes are sent for each byte of a body in the smallest chunks.
            most = (6 if kind == "small chunks" else 1) * BODY_LIMIT
            assert server.sent < len(server.requests) * (most + 16 * 2**20)
    # Kilobytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
@pytest.mark.parametrize("spec", SPECS)
def test_the_limit_on_a_body_is_the_same_whoever_calls(spec: str, caller: Callable[[JudgeLM], None]) -> None:
    with HostileServer(lambda _: endless("body")) as server:
        # OpenAI's client, which LiteLLM uses for some, keeps the reason to itself.
        with pytest.raises(dspy.LMError, match=r"too long|Connection error|no call was answered"):
            caller(make_lm(spec, api_base=server.url, options=ONCE))
        assert server.sent < len(server.requests) * (BODY_LIMIT + 16 * 2**20)


def test_a_slow_body_ends_at_the_timeout() -> None:
    class Dripping(HostileServer):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD + b"Content-Length: 100\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" ")
                await asyncio.sleep(0.02)

    with Dripping(lambda _: []) as server:
        options = replace(ONCE, attempt_timeout=0.5)
        with pytest.raises(dspy.LMError, match=r"no answer in time|no call was answered"):
            by_ask(make_lm("openai/m", api_base=server.url, options=options))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"x-gzip"])
def test_a_gzip_bomb_is_not_unpacked(spec: str, coding: bytes) -> None:
    bomb = gzip_bomb(2**29)
    with HostileServer(lambda _: [sized(bomb, b"Content-Encoding: " + coding)]) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(dspy.LMError):
            by_ask(make_lm(spec, api_base=server.url, options=ONCE))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # Kilobytes; unpacked it would be 524,288. A provider's first call imports much.
    assert grown < 262_144


def test_answers_that_announce_a_gigabyte_are_not_read() -> None:
    """Without the limit, sixteen at once took 2.2 GB."""

    async def calls(lm: JudgeLM) -> list[object]:
        questions = [[{"role": "user", "content": f"{n}?"}] for n in range(16)]
        return await asyncio.gather(*(reply_to(lm, question) for question in questions), return_exceptions=True)

    with HostileServer(lambda _: endless("body of 1 GB")) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        results = asyncio.run(calls(make_lm("openai/m", api_base=server.url, options=ONCE)))
        assert all(isinstance(result, dspy.LMError) for result in results)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert server.sent < len(server.requests) * 16 * 2**20
    # Kilobytes.
    assert grown < 200_000


@pytest.mark.parametrize("kind", ["body", "trailers", "bomb"])
def test_a_proxy_gets_the_same_limits_as_a_server(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = sized(gzip_bomb(2**28), b"Content-Encoding: gzip")
    with HostileServer(lambda _: [bomb] if kind == "bomb" else endless(kind)) as server:
        monkeypatch.setenv("http_proxy", server.origin)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        lm = make_lm("openai/m", api_base="http://elsewhere.invalid/v1", options=replace(ONCE, attempt_timeout=2.0))
        with pytest.raises(dspy.LMError):
            by_ask(lm)
        assert server.sent < len(server.requests) * (BODY_LIMIT + 16 * 2**20)
