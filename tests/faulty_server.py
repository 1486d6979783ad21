"""A chat server that misbehaves on script, over real HTTP on loopback.

with FaultyServer(answer, script) as server: lm = make_lm("openai/m", api_base=server.url)

A script says what happens to the n-th attempt of a call: the name of a fault from `FAULTS`, or None for a good
answer. A call is known by its body, so a script can be a plain function and a run can be repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.loopback import LoopbackServer

Script = Callable[[bytes, int], str | None]
"""Body of a call and number of its attempt, from 0 -> fault or None."""

Headers = tuple[tuple[str, str], ...]
_WAIT, _HTML = (("Retry-After", "0.05"),), (("Content-Type", "text/html"),)


def _refusal(words: str, status: int = 400) -> tuple[int, bytes, Headers]:
    return status, json.dumps({"error": {"message": words}}).encode(), ()


_RESPONSES: dict[str, tuple[int, bytes, Headers]] = {
    "400": _refusal("no such thing"),
    "credit": _refusal("Your credit balance is too low to access the API."),
    "spent": (200, b'{"error": {"type": "budget_exceeded", "message": "Budget has been exceeded!"}}', ()),
    "forbidden": (403, b"<html><h1>Sorry, you have been blocked</h1></html>", _HTML),
    "too large": (413, b"<html><h1>413 Request Entity Too Large</h1></html>", _HTML),
    "unprocessable": (422, b'{"detail": "Violated guardrail policy: secrets"}', ()),
    "no temperature": _refusal("Unsupported value: 'temperature' does not support 0.0 with this model."),
    "no max_tokens": _refusal("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."),
    "4096 tokens": _refusal("max_tokens is too large: 8000. This model supports at most 4096 completion tokens."),
    "429": (429, b'{"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}', ()),
    "429 wait": (429, b'{"error": {"message": "Rate limit reached"}}', _WAIT),
    "500": _refusal("The server had an error", 500),
    "502": (502, b"<html><h1>502 Bad Gateway</h1></html>", _HTML),
    "503": (503, b'{"error": {"message": "Overloaded"}}', _WAIT),
    "page": (200, b"<html>Please log in</html>", _HTML),
    "empty": (200, b'{"id": "x", "choices": [], "usage": null}', ()),
}
"""Faults that have nothing to do with the answer."""
_REFUSED = {"refused": (400, b'{"error": {"message": "The response was filtered", "code": "content_filter"}}', ())}
ANSWERED = {
    "twice": "a good answer, sent twice on one connection",
    "echo": "a good answer, sent again when the connection is in use again",
    "noise": "a good answer with something else behind it in the same packet, which makes it no HTTP",
    "late noise": "the same, when the connection is in use again",
    "mislabelled": "a good answer that calls itself HTML",
    "long": "the reply ends at the limit on its length",
    "copy": "a good answer with the id of all others that are equal",
    "cached": "a good answer that a gateway has given before, and says so",
    "thinking": "a good answer, with tokens of its reasoning in the total alone",
    "unreadable": "a good answer with nothing of the protocol in it",
    "withheld": "the reply was withheld by a content filter",
    "refused": "the request was refused by a content filter",
}
"""Faults that are answers all the same: a client that asks the very same again pays twice."""
_BROKEN = {
    "failed": "200 with half a text, tokens to pay, and `error` as its finish reason",
    "garbage": "200 with broken JSON, without a text",
    "slow": "nothing comes until the client has given up",
    "stalled": "half of the body comes, then nothing",
    "dropped": "the connection is closed without an answer",
    "cut": "the connection is closed halfway through the body",
}
FAULTS = {*_RESPONSES, *ANSWERED, *_BROKEN}


class FaultyServer(LoopbackServer):
    """Serves `{url}/chat/completions`.

    Args:
        answer: From a request's body to the text of a good reply.
        script: What goes wrong; by default nothing.
        latency: Seconds until an answer.
    """

    def __init__(
        self, answer: Callable[[bytes], str], script: Script = lambda body, attempt: None, *, latency: float = 0.0
    ) -> None:
        super().__init__()
        self.answer, self.script, self.latency = answer, script, latency
        self.requests = 0
        self.attempts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        """Digest of a call -> answers that count as success and were sent whole."""
        self.key: str | None = None
        """If set, requests with another key get 401."""
        self.revoke_after: int | None = None
        """Requests after which every key is refused."""
        self.refused = 0
        """Requests that came with a wrong or revoked key."""
        self.collisions = 0
        """Requests that met what was still to come of another answer."""
        self.spans: list[tuple[float, float]] = []
        """Of each answered request, when it came and when it was answered, by the monotonic clock."""
        self.gone = False
        self._connections: set[_Connection] = set()

    async def listen(self) -> None:
        self._server = await self.loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=1024, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.gone = False

    async def leave(self) -> None:
        self.gone = True
        self._server.close()
        for connection in list(self._connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    def come_back(self) -> None:
        """Listen again, on the same port."""
        self.run(self.listen())

    def leave_for(self, seconds: float) -> None:
        """Leave at once and come back later; may be called from within a script."""

        async def away() -> None:
            await self.leave()
            self.loop.call_later(seconds, lambda: self.loop.create_task(self.listen()))

        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(away()))


class _Connection(asyncio.Protocol):
    def __init__(self, server: FaultyServer) -> None:
        self.server = server
        self.buffer = bytearray()
        self.late = b""
        """What was still to come of the last answer; it meets the next request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.server._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.server._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end])
        start = head.lower().find(b"content-length:")
        length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        body = bytes(self.buffer[end + 4 : end + 4 + length])
        del self.buffer[: end + 4 + length]
        if self.late:
            self.server.collisions += 1
            self.transport.write(self.late)
            self.late = b""
        came = time.monotonic()
        asyncio.get_running_loop().call_later(self.server.latency, self.handle, head, body, came)

    def handle(self, head: bytes, body: bytes, came: float) -> None:
        server = self.server
        server.spans.append((came, time.monotonic()))
        if server.gone or self.transport.is_closing():
            return
        server.requests += 1
        wrong = server.key is not None and f"bearer {server.key}".encode().lower() not in head.lower()
        if wrong or (server.revoke_after is not None and server.requests > server.revoke_after):
            server.refused += 1
            error = b'{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}'
            self.transport.write(http(401, error))
            return
        call = hashlib.blake2b(body, digest_size=8).hexdigest()
        attempt = server.attempts[call]
        server.attempts[call] += 1
        fault = server.script(body, attempt)
        if fault is None or fault in ANSWERED:
            server.answered[call] += 1
        self.misbehave(fault, body)

    def misbehave(self, fault: str | None, body: bytes) -> None:
        text, name = self.server.answer(body), f"chat-{self.server.requests}"
        good, noise = completion(text, name=name), b"\r\nOK\r\n"
        responses = (
            _RESPONSES
            | _REFUSED
            | {
                "failed": (200, completion("[[ ## rationale ## ]]", "error", name), ()),
                "garbage": (200, good[: good.index(b'"message"')], ()),
                "mislabelled": (200, good, _HTML),
                "long": (200, completion(text[:20], "length", name), ()),
                "copy": (200, completion(text, name=text), ()),
                "cached": (200, good, (("x-litellm-cache-key", "4711"),)),
                "thinking": (200, completion(text, name=name, reasoning=3000), ()),
                "unreadable": (200, completion("I would rather not follow any format.", name=name), ()),
                "withheld": (200, completion("", "content_filter", name), ()),
            }
        )
        sent = http(*responses.get(fault or "", (200, good, ())))
        if fault in ("stalled", "cut"):
            sent = sent[: -len(good) // 2]
        self.late = {"echo": sent, "late noise": noise}.get(fault or "", b"")
        if fault == "dropped":
            self.transport.abort()
        elif fault != "slow":
            self.transport.write(sent + {"twice": sent, "noise": noise}.get(fault or "", b""))
        if fault == "cut":
            self.transport.close()


def completion(text: str, finish: str = "stop", name: str = "chat", reasoning: int = 0) -> bytes:
    """A chat completion in OpenAI's protocol, whose id is `name`, with so many tokens in the total alone."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 + reasoning}
    usage["prompt_tokens_details"] = {"cached_tokens": 40}
    return json.dumps({"id": name, "choices": [choice], "usage": usage}).encode()


def http(status: int, body: bytes, headers: Headers = ()) -> bytes:
    """An HTTP/1.1 answer, framed by its length."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (("Content-Type", "application/json"), *headers)]
    return "\r\n".join([*lines, "\r\n"]).encode() + body
