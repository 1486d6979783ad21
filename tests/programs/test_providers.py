"""Each provider of the README's table over HTTP on loopback: path, key and protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.make_lm import make_lm
from tests.hostile_server import HostileServer, sized
from tests.programs.engines import reply_to

pytestmark = pytest.mark.integration


def _openai() -> dict[str, Any]:
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}
    usage["prompt_tokens_details"] = {"cached_tokens": 10}  # type: ignore[assignment]
    choice = {"index": 0, "message": {"role": "assistant", "content": "Four."}, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _anthropic() -> dict[str, Any]:
    usage = {"input_tokens": 20, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 0, "output_tokens": 4}
    content = [{"type": "text", "text": "Four."}]
    message = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": content}
    return {**message, "stop_reason": "end_turn", "usage": usage}


def answered(request: bytes) -> list[bytes]:
    """In the protocol of the path."""
    answer = _anthropic() if b"/messages HTTP" in request else _openai()
    return [sized(json.dumps(answer).encode(), b"Content-Type: application/json")]


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer(answered) as running:
        yield running


def seen(server: HostileServer) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Path, headers and body of the last request."""
    head, _, body = server.requests[-1].partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return first.split()[1], headers, json.loads(body)


def asked(spec: str, api_base: str) -> Reply:
    async def ask() -> Reply:
        lm = make_lm(spec, api_base=api_base)
        try:
            messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}]
            return await reply_to(lm, messages)
        finally:
            await lm.aclose()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("spec", "variable", "base", "path", "header"),
    [
        ("openai/gpt-4o-mini", "OPENAI_API_KEY", "/v1", "/v1/chat/completions", ("authorization", "Bearer sk-1")),
        ("hosted_vllm/org/m", "HOSTED_VLLM_API_KEY", "/v1", "/v1/chat/completions", ("authorization", "Bearer sk-1")),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY", "/v1", "/v1/messages", ("x-api-key", "sk-1")),
        ("azure/mine", "AZURE_API_KEY", "", "/openai/deployments/mine/chat/completions", ("api-key", "sk-1")),
    ],
)
def test_a_hosted_provider(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch, spec: str, variable: str, base: str, path: str, header: Any
) -> None:
    monkeypatch.setenv(variable, "sk-1")
    reply = asked(spec, server.origin + base)
    address, headers, body = seen(server)
    assert (reply.text, reply.input_tokens, reply.cached_tokens, reply.output_tokens) == ("Four.", 30, 10, 4)
    assert address.partition("?")[0] == path
    assert headers[header[0]] == header[1]
    assert body["temperature"] == 0


@pytest.mark.parametrize("spec", ["openai/llama3.1", "hosted_vllm/org/model"])
def test_a_local_server_needs_no_key(server: HostileServer, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    for variable in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    assert asked(spec, server.url).text == "Four."
    address, _, body = seen(server)
    assert address == "/v1/chat/completions"
    assert body["model"] == spec.partition("/")[2]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
