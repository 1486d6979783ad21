"""A chat server for benchmarks: OpenAI's protocol, fixed latency, replies that are a function of the prompt.

    python tests/bench/mock_server.py --port 8765 --latency 0.2

The debate about `Item-<k>` lasts k mod 4 rounds of criticism and then ends with NO ISSUE. Prints its port as
its first line, so that port 0 can be used. `GET /stats` counts requests, and how many of them differ, since the last
`POST /reset`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ITEM = re.compile(rb"Item-(\d+)")
REASON = (
    "The summary keeps the main event and the place, leaves out the second cause and states the date with more "
    "certainty than the article does; the order of events follows the source closely."
)


def text_of(body: bytes) -> str:
    """The text of the reply to a request."""
    found = ITEM.search(body)
    item = int(found[1]) if found else 0
    heard = body.count(b"Critic, round ")
    if b"[[ ## decision ## ]]" not in body:
        return f"[[ ## rationale ## ]]\n{REASON}\n\n[[ ## score ## ]]\n{1 + (item * 7 + heard) % 5}"
    if heard < item % 4:
        return f"[[ ## review ## ]]\n{REASON}\n\n[[ ## decision ## ]]\nISSUE\n\n[[ ## feedback ## ]]\n{REASON}"
    return f"[[ ## review ## ]]\n{REASON}\n\n[[ ## decision ## ]]\nNO ISSUE\n\n[[ ## feedback ## ]]\n"


@contextmanager
def started(latency: float, jitter: float = 0.0) -> Iterator[str]:
    """Run the server in a process of its own on a free port; yields its address."""
    command = [sys.executable, str(Path(__file__)), "--latency", str(latency), "--jitter", str(jitter)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


class Server:
    """State shared by all connections."""

    def __init__(self, latency: float, jitter: float) -> None:
        self.latency, self.jitter = latency, jitter
        self.reset()

    def reset(self) -> None:
        self.requests = 0
        self.different: set[int] = set()
        self.first = self.last = 0.0
        self.cpu = time.process_time()

    def note(self, body: bytes) -> None:
        self.requests += 1
        self.different.add(hash(body))
        self.last = time.monotonic()
        self.first = self.first or self.last

    def reply(self, body: bytes) -> bytes:
        text = text_of(body)
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": len(text) // 4}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        identity = {"id": f"mock-{self.requests}", "model": "mock"}
        return json.dumps({**identity, "choices": [choice], "usage": usage}).encode()


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.buffer[:end]).lower()
            start = head.find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + length])
            del self.buffer[: end + 4 + length]
            self.handle(head.split(b" ")[1], body)

    def handle(self, path: bytes, body: bytes) -> None:
        if path == b"/stats":
            cpu = time.process_time() - self.server.cpu
            counts = {"requests": self.server.requests, "different": len(self.server.different)}
            self.send(json.dumps({**counts, "seconds": self.server.last - self.server.first, "cpu": cpu}).encode())
        elif path == b"/reset":
            self.server.reset()
            self.send(b"{}")
        else:
            self.server.note(body)
            loop = asyncio.get_running_loop()
            wait = self.server.latency * (1.0 + self.server.jitter * random.uniform(-1.0, 1.0))
            loop.call_later(wait, self.send, self.server.reply(body))

    def send(self, payload: bytes) -> None:
        if not self.transport.is_closing():
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
            self.transport.write(head.encode() + payload)


async def serve(port: int, latency: float, jitter: float) -> None:
    state = Server(latency, jitter)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds from request to answer")
    parser.add_argument("--jitter", type=float, default=0.0, help="share of the latency by which it varies")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port, arguments.latency, arguments.jitter))
