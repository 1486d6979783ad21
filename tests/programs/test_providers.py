"""Each provider of the README's table as it would be reached: path, key and protocol, over HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.make_lm import make_lm
from tests.programs.engines import reply_to


@dataclass
class Provider:
    """A server that remembers the last request and answers in either protocol."""

    address: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def provider() -> Iterator[Provider]:
    seen = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.path = self.path
            seen.headers = {name.lower(): value for name, value in self.headers.items()}
            seen.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(_anthropic() if self.path.endswith("/messages") else _openai()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seen.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield seen
    server.shutdown()
    server.server_close()


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
    provider: Provider, monkeypatch: pytest.MonkeyPatch, spec: str, variable: str, base: str, path: str, header: Any
) -> None:
    monkeypatch.setenv(variable, "sk-1")
    reply = asked(spec, provider.address + base)
    assert (reply.text, reply.input_tokens, reply.cached_tokens, reply.output_tokens) == ("Four.", 30, 10, 4)
    assert provider.path.partition("?")[0] == path
    assert provider.headers[header[0]] == header[1]
    assert provider.body["temperature"] == 0


@pytest.mark.parametrize("spec", ["openai/llama3.1", "hosted_vllm/org/model"])
def test_a_local_server_needs_no_key(provider: Provider, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    for variable in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    assert asked(spec, provider.address + "/v1").text == "Four."
    assert provider.path == "/v1/chat/completions"
    assert provider.body["model"] == spec.partition("/")[2]
    assert provider.body["messages"][0] == {"role": "system", "content": "Be brief."}
