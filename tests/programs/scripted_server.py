"""A server that is scripted byte by byte, and calls to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from debate_judge.programs.lm.http.chat_completions import completion_id
from debate_judge.programs.lm.http.connections import ConnectionPool, HttpResponse, MismatchedResponseError

Pieces = Sequence[bytes | None]
"""What a server writes, one piece after the other; None closes the connection."""
Script = Callable[[int, int, bytes], Pieces]
"""Number of the connection, number of the request on it, both from 0, and the request's body -> the answer."""


class Server:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.requests: list[bytes] = []
        self.heads: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.connections = self.connections, self.connections + 1
        self.writers.append(writer)
        try:
            for request in range(1_000_000):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                body = await reader.readexactly(length)
                self.heads.append(head)
                self.requests.append(body)
                for piece in self.script(number, request, body):
                    if piece is None:
                        return
                    writer.write(piece)
                    # Each piece is read by itself: the client's end is on this loop too.
                    for _ in range(3):
                        await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[Server, ConnectionPool]]:
    server = Server(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    pool = ConnectionPool(server.url, {"Authorization": "Bearer k"}, completion_id)
    try:
        yield server, pool
    finally:
        await pool.aclose()
        listening.close()
        for writer in server.writers:
            writer.close()
        await asyncio.sleep(0)


def completion(body: bytes, identity: str | None) -> bytes:
    """A completion that contains the body of its request."""
    named = {} if identity is None else {"id": identity}
    return json.dumps({**named, "choices": [body.decode()]}).encode()


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def own_response(body: bytes) -> bytes:
    return http(completion(body, f"id of {body.decode()}"))


def request_of(answer: HttpResponse) -> str:
    found: str = json.loads(answer.body)["choices"][0]
    return found


async def ask(pool: ConnectionPool, names: Sequence[str]) -> list[str]:
    """Whose answers come, one call after the other."""
    return [request_of(await post(pool, name.encode())) for name in names]


async def post(pool: ConnectionPool, body: bytes) -> HttpResponse:
    """Post as a caller does: once more where something else than the answer came, and then it must come."""
    try:
        return await pool.post(body)
    except MismatchedResponseError:
        return await pool.post(body)


NAMES = ["a", "b", "c", "d"]
