"""Keys and texts are never sent to another address that a server redirects to."""

from __future__ import annotations

import asyncio

import dspy
import pytest

from debate_judge.programs.hallucination.evidence import SearchError, Serper
from debate_judge.programs.lm.batch.service import BatchService
from debate_judge.programs.lm.options import BatchTiming, LMOptions
from debate_judge.programs.make_lm import make_lm
from tests.hostile_server import HostileServer, sized
from tests.programs.engines import QUESTION, SPECS, ask

pytestmark = pytest.mark.integration

MOVED = ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent")


def redirect(status: str, to: HostileServer) -> HostileServer:
    return HostileServer(lambda _: [sized(b"", b"Location: " + to.origin.encode() + b"/x", status=status.encode())])


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "ANTHROPIC", "COHERE", "DEEPINFRA"):
        monkeypatch.setenv(f"{provider}_API_KEY", "sk-redirect-test-key")


@pytest.mark.parametrize("status", MOVED)
def test_the_key_of_a_web_search_follows_no_redirect(status: str) -> None:
    with HostileServer(lambda _: [sized(b"{}")]) as other, redirect(status, other) as server:
        with pytest.raises(SearchError, match=status[:3]):
            asyncio.run(Serper("web-search-key", server.origin, pause=0.0).snippets("a private question", 1))
        assert len(server.requests) == 1
        assert other.requests == []


@pytest.mark.parametrize("status", MOVED)
def test_a_batch_upload_follows_no_redirect(status: str) -> None:
    async def upload(url: str) -> None:
        options = LMOptions(first_wait=0.01, max_wait=0.02, batch_timing=BatchTiming(max_outage=0.1))
        service = BatchService(url, "sk-redirect-test-key", "openai/m", options)
        try:
            await service.upload(b'{"private": "text"}\n', "x.jsonl")
        finally:
            await service.aclose()

    with HostileServer(lambda _: [sized(b'{"id": "x"}')]) as other, redirect(status, other) as server:
        with pytest.raises(dspy.LMError, match=status[:3]):
            asyncio.run(upload(server.url))
        assert server.requests
        assert other.requests == []


@pytest.mark.parametrize("spec", SPECS)
def test_a_call_follows_no_redirect(spec: str) -> None:
    options = LMOptions(retries=0, first_wait=0.01, max_outage=0.01)
    with HostileServer(lambda _: [sized(b"{}")]) as other, redirect("307 Temporary", other) as server:
        with pytest.raises(dspy.LMError):
            ask(make_lm(spec, api_base=server.url, options=options), QUESTION)
        assert other.requests == []


FORMS = (
    "-5",
    "nan",
    "9" * 400,
    "soon",
    "\u00b9",
    "Mon, 01 Jan 0001 00:00:00 GMT",
    "Mon, 01 Jan 2124 00:00:00 +99999999",
)


@pytest.mark.parametrize("spec", ["openai/m", "anthropic/m"])
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_no_form_of_retry_after_costs_a_call(form: str, spec: str) -> None:
    """Two 429s with this Retry-After, then an answer."""
    waits = LMOptions(first_wait=0.01, max_wait=0.02)
    ok = {
        "openai/m": b'{"id": "a", "choices": [{"message": {"content": "fine"}}]}',
        "anthropic/m": b'{"id": "a", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", '
        b'"content": [{"type": "text", "text": "fine"}], "usage": {"input_tokens": 3, "output_tokens": 1}}',
    }[spec]

    def send(request: bytes) -> list[bytes]:
        if len(server.requests) > 2:
            return [sized(ok, b"Content-Type: application/json")]
        body = b'{"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}'
        return [sized(body, b"Retry-After: " + form.encode("latin-1"), status=b"429 Slow")]

    server = HostileServer(send)
    with server:
        (reply,) = ask(make_lm(spec, api_base=server.url, options=waits), QUESTION)
    assert reply.text == "fine"
    assert len(server.requests) == 3
