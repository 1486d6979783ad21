"""A server that sends whatever bytes a test wants, for as long as the client reads, over real HTTP on loopback.

with HostileServer(lambda request: endless("body")) as server: lm = make_lm("openai/m", api_base=server.url)
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any
from uuid import uuid4

from tests.loopback import LoopbackServer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

Sender = Callable[[bytes], Iterable[bytes]]
"""From a request, head and body, to the parts of what is sent for it; the connection is closed then."""


class HostileServer(LoopbackServer):
    """Answers every request by `send`."""

    def __init__(self, send: Sender) -> None:
        super().__init__()
        self._send = send
        self.requests: list[bytes] = []
        self.sent = 0
        """Bytes that were handed to the system."""

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/v1")

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def leave(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            request = head + (await reader.readexactly(int(length[1])) if length else b"")
            self.requests.append(request)
            for part in self._send(request):
                writer.write(part)
                self.sent += len(part)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def sized(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole answer that closes its connection."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"\r\n"]) + body


def completion(path: str, finish: str = "stop") -> dict[str, Any]:
    """An answer in the protocol of a path: 30 tokens of input, of these 10 cached, and 4 of output."""
    text = "Four." if finish == "stop" else "Fo"
    if path.endswith(("/messages", "/invoke")):
        message = {"id": uuid4().hex, "type": "message", "role": "assistant", "model": "m"}
        usage = {"input_tokens": 20, "cache_read_input_tokens": 10, "output_tokens": 4}
        reason = {"stop": "end_turn", "length": "max_tokens"}[finish]
        return {**message, "content": [{"type": "text", "text": text}], "stop_reason": reason, "usage": usage}
    if path.endswith("/converse"):
        reason = {"stop": "end_turn", "length": "max_tokens"}[finish]
        content = {"message": {"role": "assistant", "content": [{"text": text}]}}
        return {"output": content, "stopReason": reason, "usage": dict(inputTokens=30, outputTokens=4, totalTokens=34)}
    if path.endswith("generateContent"):
        reason = {"stop": "STOP", "length": "MAX_TOKENS"}[finish]
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": reason}
        counts = {"promptTokenCount": 30, "candidatesTokenCount": 4, "totalTokenCount": 34}
        return {"candidates": [candidate], "usageMetadata": counts}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}
    # LiteLLM reads no answer of Groq's without the tier.
    head = {"id": uuid4().hex, "object": "chat.completion", "created": 1, "model": "m", "service_tier": "default"}
    return {**head, "choices": [choice], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 10}}}


def answered(request: bytes) -> list[bytes]:
    """A good answer in the protocol of the request."""
    path = request.split()[1].decode().partition("?")[0]
    return [sized(json.dumps(completion(path)).encode(), b"Content-Type: application/json")]


_ENDLESS = {
    "body": (CHUNKED, chunk(b" " * 60_000)),
    "body until closed": (HEAD + b"\r\n", b" " * 60_000),
    "body of 1 GB": (HEAD + b"Content-Length: 1000000000\r\n\r\n", b" " * 60_000),
    "small chunks": (CHUNKED, 10_000 * chunk(b" ")),
    "chunk line": (CHUNKED + b"1;", b"x" * 60_000),
    "trailers": (CHUNKED + chunk(b"{}") + b"0\r\n", 1000 * b"X-More: and more\r\n"),
    "head": (HEAD, 1000 * b"X-More: and more\r\n"),
    "announcements": (b"", 1000 * b"HTTP/1.1 102 Processing\r\n\r\n"),
}
ENDLESS = tuple(_ENDLESS)
"""Kinds of answers without an end."""


def endless(kind: str) -> Iterator[bytes]:
    """An answer without an end, of the kind that is named."""
    first, rest = _ENDLESS[kind]
    return chain([first], repeat(rest))
