"""Providers and hostile servers over HTTP on loopback: protocol, rate limits, redirects, answers without an end."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import dspy
import pytest

from debate_judge.programs.hallucination.evidence import SearchError, Serper
from debate_judge.programs.lm.batch.service import BatchService
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.http.connections import BODY_LIMIT
from debate_judge.programs.lm.limits.limiter import RateLimits
from debate_judge.programs.lm.options import BatchTiming, LMOptions
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.make_lm import make_lm
from tests.hostile_server import ENDLESS, HostileServer, endless, gzip_bomb, sized
from tests.programs.engines import QUESTION, SPECS, reply_to

pytestmark = pytest.mark.integration
KEY = "sk-of-a-test-of-servers"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "ANTHROPIC", "AZURE", "COHERE", "DEEPINFRA"):
        monkeypatch.setenv(f"{provider}_API_KEY", KEY)
    monkeypatch.delenv("HOSTED_VLLM_API_KEY", raising=False)


def completion(request: bytes) -> dict[str, Any]:
    """In the protocol of the path."""
    if b"/messages HTTP" in request:
        usage = {"input_tokens": 20, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 0}
        content = [{"type": "text", "text": "Four."}]
        message = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": content}
        return {**message, "stop_reason": "end_turn", "usage": {**usage, "output_tokens": 4}}
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Four."}, "finish_reason": "stop"}
    response = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return {**response, "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 10}}}


def answered(request: bytes, *headers: bytes) -> list[bytes]:
    return [sized(json.dumps(completion(request)).encode(), b"Content-Type: application/json", *headers)]


def call(spec: str, url: str, options: LMOptions | None = None) -> tuple[Reply, JudgeLM]:
    lm = make_lm(spec, api_base=url, options=options or LMOptions())

    async def go() -> Reply:
        try:
            return await reply_to(lm, QUESTION)
        finally:
            await lm.aclose()

    return asyncio.run(go()), lm


@pytest.mark.parametrize(
    ("spec", "base", "path", "header"),
    [
        ("openai/gpt-4o-mini", "/v1", "/v1/chat/completions", f"authorization: bearer {KEY}"),
        ("anthropic/claude-sonnet-4-5", "/v1", "/v1/messages", f"x-api-key: {KEY}"),
        ("azure/mine", "", "/openai/deployments/mine/chat/completions", f"api-key: {KEY}"),
        # A local server needs no key.
        ("hosted_vllm/org/m", "/v1", "/v1/chat/completions", ""),
    ],
)
def test_path_key_and_protocol_of_a_provider(spec: str, base: str, path: str, header: str) -> None:
    with HostileServer(answered) as server:
        reply, _ = call(spec, server.origin + base)
    head, _, body = server.requests[-1].partition(b"\r\n\r\n")
    assert (reply.text, reply.input_tokens, reply.cached_tokens, reply.output_tokens) == ("Four.", 30, 10, 4)
    assert head.decode().split()[1].partition("?")[0] == path
    assert header in head.decode().lower()
    assert json.loads(body)["temperature"] == 0
    if spec.startswith("hosted_vllm"):
        assert json.loads(body)["model"] == "org/m"
        assert json.loads(body)["messages"] == QUESTION


LIMITS = (b"X-RateLimit-Limit-Requests: 120", b"X-RateLimit-Limit-Tokens: 90000")


@pytest.mark.parametrize(
    ("headers", "options", "limits"),
    [
        (LIMITS, LMOptions(), RateLimits(120, 90_000)),
        (LIMITS[1:], LMOptions(), RateLimits(None, 90_000)),
        ((b"X-RateLimit-Limit-Requests: many",), LMOptions(), RateLimits()),
        ((b"X-RateLimit-Limit-Requests: 0",), LMOptions(), RateLimits()),
        (LIMITS, LMOptions(rpm=600), RateLimits(600, 90_000)),
        (LIMITS, LMOptions(rpm=60, tpm=1_000_000), RateLimits(60, 1_000_000)),
    ],
)
def test_rate_limits_from_headers_apply_unless_the_user_set_others(
    headers: tuple[bytes, ...], options: LMOptions, limits: RateLimits
) -> None:
    with HostileServer(lambda request: answered(request, *headers)) as server:
        assert call("openai/m", server.url, options)[1].recorded_engine.limiter.limits == limits


ONCE = LMOptions(retries=0, attempt_timeout=60.0, first_wait=0.01, max_outage=0.01)
"""With these options a server that also fails the probe counts as down at once."""
MOVED = ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent")


def redirect(status: str, to: HostileServer) -> HostileServer:
    return HostileServer(lambda _: [sized(b"", b"Location: " + to.origin.encode() + b"/x", status=status.encode())])


async def search(url: str) -> None:
    await Serper(KEY, url, pause=0.0).snippets("a private question", 1)


async def upload(url: str) -> None:
    options = LMOptions(first_wait=0.01, max_wait=0.02, batch_timing=BatchTiming(max_outage=0.1))
    service = BatchService(f"{url}/v1", KEY, "openai/m", options)
    try:
        await service.upload(b'{"private": "text"}\n', "x.jsonl")
    finally:
        await service.aclose()


@pytest.mark.parametrize("send", [search, upload])
@pytest.mark.parametrize("status", MOVED)
def test_neither_a_web_search_nor_a_batch_upload_follows_a_redirect(
    status: str, send: Callable[[str], Coroutine[None, None, None]]
) -> None:
    with HostileServer(lambda _: [sized(b'{"id": "x"}')]) as other, redirect(status, other) as server:
        with pytest.raises((SearchError, dspy.LMError), match=status[:3]):
            asyncio.run(send(server.origin))
        assert server.requests
        assert other.requests == []


@pytest.mark.parametrize("spec", SPECS)
def test_a_call_follows_no_redirect(spec: str) -> None:
    with HostileServer(lambda _: [sized(b"{}")]) as other, redirect("307 Temporary", other) as server:
        with pytest.raises(dspy.LMError):
            call(spec, server.url, ONCE)
        assert other.requests == []


def peak_kb() -> int:
    """Most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_is_given_up(kind: str) -> None:
    before = peak_kb()
    with HostileServer(lambda _: endless(kind)) as server:
        with pytest.raises(dspy.LMError, match=r"too long|incomplete response|no answer in time|no call was answered"):
            call("openai/m", server.url, replace(ONCE, attempt_timeout=1.0))
        # Bytes sent before the client closes are in the buffers of the system. Chunk extensions and
        # informational responses (1xx) are skipped and not stored, until the attempt times out.
        if kind not in ("chunk line", "announcements"):
            # Six bytes are sent for each byte of a body in the smallest chunks.
            most = (6 if kind == "small chunks" else 1) * BODY_LIMIT
            assert server.sent < len(server.requests) * (most + 16 * 2**20)
    assert peak_kb() - before < 200_000


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", ["endless", "gzip", "deflate", "x-gzip"])
def test_every_transport_limits_a_body_and_unpacks_no_gzip_bomb(spec: str, kind: str) -> None:
    bomb = [sized(gzip_bomb(2**29), b"Content-Encoding: " + kind.encode())]
    with HostileServer(lambda _: endless("body") if kind == "endless" else bomb) as server:
        before = peak_kb()
        with pytest.raises(dspy.LMError):
            call(spec, server.url, ONCE)
        assert server.sent < len(server.requests) * (BODY_LIMIT + 16 * 2**20)
    # Unpacked it would be 524,288. A provider's first call imports much.
    assert peak_kb() - before < 262_144
