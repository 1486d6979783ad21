"""`ConnectionPool` with a server that is scripted byte by byte: which responses are used, which connections reused, and
that no call gets the response to another one, whatever a connection still receives."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from types import SimpleNamespace

import aiohttp
import pytest

from debate_judge.programs.lm.http import connections as module
from debate_judge.programs.lm.http.chat_completions import completion_id
from debate_judge.programs.lm.http.connections import ConnectionPool, HttpResponse, MismatchedResponseError

Pieces = Sequence[bytes | None]
"""What a server writes, one piece after the other; None closes the connection."""
Script = Callable[[int, int, bytes], Pieces]
"""Number of the connection, number of the request on it, both from 0, and the request's body -> the answer."""


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[SimpleNamespace, ConnectionPool]]:
    """A server by a script, with what it has received, and a pool of connections to it."""
    seen = SimpleNamespace(connections=0, requests=[], heads=[], writers=[])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, seen.connections = seen.connections, seen.connections + 1
        seen.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            for request in range(1_000_000):
                seen.heads.append(await reader.readuntil(b"\r\n\r\n"))
                length = int(seen.heads[-1].lower().partition(b"content-length:")[2].split()[0])
                seen.requests.append(await reader.readexactly(length))
                for piece in script(number, request, seen.requests[-1]):
                    if piece is None:
                        return
                    writer.write(piece)
                    # Each piece is read by itself: the client's end is on this loop too.
                    for _ in range(3):
                        await asyncio.sleep(0)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://me:p%40ss@127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    pool = ConnectionPool(address, {}, completion_id)
    try:
        yield seen, pool
    finally:
        await pool.aclose()
        listening.close()
        for writer in seen.writers:
            writer.close()
        await asyncio.sleep(0)


def completion(body: bytes, identity: str | None) -> bytes:
    """A completion that contains the body of its request."""
    named = {} if identity is None else {"id": identity}
    return json.dumps({**named, "choices": [body.decode()]}).encode()


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def response_to(body: bytes) -> bytes:
    return http(completion(body, f"id of {body.decode()}"))


async def ask(pool: ConnectionPool, names: Sequence[str]) -> list[str]:
    """Whose answers come, one call after the other."""
    return [json.loads((await post(pool, name.encode())).body)["choices"][0] for name in names]


async def post(pool: ConnectionPool, body: bytes) -> HttpResponse:
    """Post as a caller does: once more where something else than the answer came, and then it must come."""
    try:
        return await pool.post(body)
    except MismatchedResponseError:
        return await pool.post(body)


NAMES = ["a", "b", "c", "d"]
pytestmark = pytest.mark.integration
OK = completion(b"x", "1")


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([None], "Server disconnected"),
        ([http(OK)[:-3], None], "payload"),
        ([http(OK) + b"more"], "Bad status line"),
        ([http(1001 * b"x")], "too long"),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + 1001 * b"x"], "too long"),
        ([http(gzip.compress(OK), "Content-Encoding: gzip")], "compressed"),
    ],
)
def test_a_malformed_response_is_an_error_and_closes_the_connection(
    pieces: Pieces, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_LIMIT", 1000)

    async def run() -> None:
        async with serving(lambda number, request, body: [response_to(body)] if number else pieces) as (server, pool):
            with pytest.raises(aiohttp.ClientError, match=words):
                await pool.post(b"a")
            assert len(server.requests) == 1
            assert await ask(pool, NAMES) == NAMES
            assert server.connections == 2

    asyncio.run(run())


def test_what_may_still_answer_another_call_closes_the_connection() -> None:
    # A copy of an error, which has no id, would be taken for another error, and then shift what follows.
    error = http(b'{"error": "slow down", "id": "1"}', status=429)

    def script(number: int, request: int, body: bytes) -> Pieces:
        return {b"busy": [error], b"slow": []}.get(body, [response_to(body)])

    async def run() -> None:
        async with serving(script) as (server, pool):
            assert (await pool.post(b"busy")).status == 429
            assert await ask(pool, ["a"]) == ["a"]
            assert server.connections == 2
            # Nothing is awaited in between, so that only the system knows of it.
            server.writers[1].write(response_to(b"a"))
            assert await ask(pool, ["b"]) == ["b"]
            cancelled = asyncio.create_task(pool.post(b"slow"))
            while b"slow" not in server.requests:
                await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            server.writers[2].write(response_to(b"slow"))
            assert await ask(pool, ["c"]) == ["c"]
            assert (server.connections, server.requests) == (4, [b"busy", b"a", b"b", b"slow", b"c"])
            # User and password of the address are sent as basic authentication and not in the address.
            assert all(b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in head for head in server.heads)
            assert not any(b"p%40ss" in head for head in server.heads)

    asyncio.run(run())


@pytest.mark.parametrize(("identity", "requests"), [(None, 6), ("", 6), ("chatcmpl-0", 7)])
def test_without_unique_ids_a_connection_is_used_once(identity: str | None, requests: int) -> None:
    """Of equal ids one call more tells that they are usual: on a new connection nothing can be a copy."""
    names = ["a", "b", "c", "d", "e", "f"]

    async def run() -> None:
        async with serving(lambda number, request, body: [http(completion(body, identity))]) as (server, pool):
            assert await ask(pool, names) == names
            assert len(server.requests) == requests
            assert server.connections == 6

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(5))
def test_copies_and_noise_at_any_time_reach_no_other_call(seed: int) -> None:
    rng = random.Random(seed)
    responses = dict[int, bytes]()

    def script(number: int, request: int, body: bytes) -> Pieces:
        last, responses[number] = responses.get(number, b""), response_to(body)
        pieces = [responses[number][:40], responses[number][40:]] if rng.random() < 0.3 else [responses[number]]
        extra = [rng.choice((last, responses[number], b"\r\n", b"HTTP/1.1 200", http(b"", status=500)))]
        fate = rng.random()
        if fate < 0.2:
            return [*extra, *pieces] if last else pieces
        return [*pieces, *extra] if fate < 0.4 else pieces

    async def caller(pool: ConnectionPool, name: str) -> None:
        for number in range(60):
            body = f"{name}{number}"
            try:
                answer = await pool.post(body.encode())
            except aiohttp.ClientError:
                continue
            # A stray error response costs an attempt, but never gives a wrong answer.
            assert answer.status == 500 or json.loads(answer.body)["choices"] == [body]
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.001)))

    async def run() -> None:
        async with serving(script) as (_, pool):
            await asyncio.gather(*(caller(pool, name) for name in "abcdefgh"))

    asyncio.run(run())
