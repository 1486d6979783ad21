"""A chat server for benchmarks: OpenAI's protocol, fixed latency, replies that are a function of the prompt.

    python -m tests.bench.mock_server --port 8765 --latency 0.2

The debate about `Item-<k>` lasts k mod 4 rounds of criticism and then ends with NO ISSUE. Prints its port as
its first line, so that port 0 can be used. `GET /stats` counts requests, and how many of them differ, since the last
`POST /reset`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

ITEM = re.compile(rb"Item-(\d+)")
REASON = (
    "The summary keeps the main event and the place, leaves out the second cause and states the date with more "
    "certainty than the article does; the order of events follows the source closely."
)


def text_of(body: bytes) -> str:
    match = ITEM.search(body)
    item = int(match[1]) if match else 0
    heard = body.count(b"Critic, round ")
    if b"[[ ## feedback ## ]]" not in body:
        return f"[[ ## rationale ## ]]\n{REASON}\n\n[[ ## score ## ]]\n{1 + (item * 7 + heard) % 5}"
    return f"[[ ## feedback ## ]]\n{REASON if heard < item % 4 else 'NO ISSUE'}"


@contextmanager
def started(latency: float, jitter: float = 0.0) -> Iterator[str]:
    """Run the server in a process of its own on a free port; yields its address."""
    command = [sys.executable, "-m", "tests.bench.mock_server", "--latency", str(latency), "--jitter", str(jitter)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


class Server:
    def __init__(self, latency: float, jitter: float) -> None:
        self.latency, self.jitter = latency, jitter
        self.times: list[float] = []
        """When the requests came."""
        self.different: set[int] = set()

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.times.append(time.monotonic())
        self.different.add(hash(body))
        identity = {"id": f"mock-{len(self.times)}", "model": "mock"}
        await asyncio.sleep(self.latency * (1.0 + self.jitter * random.uniform(-1.0, 1.0)))
        text = text_of(body)
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": len(text) // 4}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return web.json_response({**identity, "choices": [choice], "usage": usage})

    async def stats(self, request: web.Request) -> web.Response:
        seconds = self.times[-1] - self.times[0] if self.times else 0.0
        return web.json_response({"requests": len(self.times), "different": len(self.different), "seconds": seconds})

    async def reset(self, request: web.Request) -> web.Response:
        self.times.clear()
        self.different.clear()
        return web.json_response({})


async def serve(port: int, latency: float, jitter: float) -> None:
    server, app = Server(latency, jitter), web.Application(client_max_size=1 << 30)
    app.router.add_get("/stats", server.stats)
    app.router.add_post("/reset", server.reset)
    app.router.add_post("/{path:.*}", server.chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds from request to answer")
    parser.add_argument("--jitter", type=float, default=0.0, help="share of the latency by which it varies")
    given = parser.parse_args(argv)
    asyncio.run(serve(given.port, given.latency, given.jitter))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
