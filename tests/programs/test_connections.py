"""Connections against a server that is scripted byte by byte: what is read, and whose answer it is."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest

from debate_judge.programs.lm.http import chat_completions
from debate_judge.programs.lm.http.chat_completions import Answer, Connections, StrayAnswerError

Pieces = Sequence[bytes | None]
"""What a server writes, one piece after the other; None closes the connection."""
Script = Callable[[int, int, bytes], Pieces]
"""Number of the connection, number of the request on it, both from 0, and the request's body -> the answer."""

NAMES = ["a", "b", "c", "d"]


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
async def serving(script: Script) -> AsyncIterator[tuple[Server, Connections]]:
    server = Server(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    pool = Connections(server.url, {"Authorization": "Bearer k"})
    try:
        yield server, pool
    finally:
        await pool.aclose()
        listening.close()
        for writer in server.writers:
            writer.close()
        await asyncio.sleep(0)


def completion(body: bytes, identity: str | None) -> bytes:
    """An answer that says which request it belongs to."""
    named = {} if identity is None else {"id": identity}
    return json.dumps({**named, "choices": [body.decode()]}).encode()


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def good(body: bytes) -> bytes:
    return http(completion(body, f"id of {body.decode()}"))


def owner(answer: Answer) -> str:
    found: str = json.loads(answer.body)["choices"][0]
    return found


async def ask(pool: Connections, names: Sequence[str]) -> list[str]:
    """Whose answers come, one call after the other; each is made again where no answer came, as a caller does."""

    async def one(name: str) -> str:
        try:
            return owner(await pool.post(name.encode()))
        except (StrayAnswerError, aiohttp.ClientResponseError):
            return owner(await pool.post(name.encode()))

    return [await one(name) for name in names]


# --- what is read ---

OK = completion(b"x", "1")
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([None], "Server disconnected"),
        ([http(OK)[:-3], None], "payload"),
        ([HEAD + b"X: " + 70_000 * b"y"], "400"),
        ([http(1001 * b"x")], "too long"),
        ([HEAD + b"\r\n" + 1001 * b"x"], "too long"),
        ([http(gzip.compress(OK), "Content-Encoding: gzip")], "compressed"),
    ],
)
def test_what_is_no_answer_is_an_error_and_ends_the_connection(
    pieces: Pieces, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_completions, "BODY_LIMIT", 1000)

    async def run() -> None:
        async with serving(lambda number, request, body: [good(body)] if number else pieces) as (server, pool):
            with pytest.raises(aiohttp.ClientError, match=words):
                await pool.post(b"a")
            assert len(server.requests) == 1
            assert await ask(pool, NAMES) == NAMES

    asyncio.run(run())


def test_user_and_password_of_the_address_are_sent_as_basic_authentication() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: [good(body)]) as (server, _):
            pool = Connections(server.url.replace("//", "//me:p%40ss@"), {})
            await pool.post(b"a")
            await pool.aclose()
            assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in server.heads[0]
            assert b"p%40ss" not in server.heads[0]

    asyncio.run(run())


# --- whose answer it is ---


class Late:
    """Holds something back until the next request on the same connection has come."""

    def __init__(self, what: Callable[[bytes], bytes]) -> None:
        self.what, self.held = what, dict[int, bytes]()

    def __call__(self, number: int, request: int, body: bytes) -> Pieces:
        late, self.held[number] = self.held.get(number, b""), self.what(body)
        return [late, good(body)] if late else [good(body)]


SCRIPTS: dict[str, Callable[[], Script]] = {
    "copy at once": lambda: lambda number, request, body: [2 * good(body)],
    "copy in the next packet": lambda: lambda number, request, body: [good(body), good(body)],
    "noise in the next packet": lambda: lambda number, request, body: [good(body), b"\r\nOK\r\n"],
    "copy at the next request": lambda: Late(good),
    "copy of the headers only": lambda: Late(lambda body: http(b"")[:20]),
    "end of the connection at the next request": lambda: (
        lambda number, request, body: [None if request else good(body)]
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_call_gets_its_own_answer(name: str) -> None:
    async def run() -> None:
        async with serving(SCRIPTS[name]()) as (_, pool):
            assert await ask(pool, NAMES) == NAMES

    asyncio.run(run())


def test_a_request_that_was_cancelled_leaves_no_answer_to_another() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: [] if body == b"slow" else [good(body)]) as (server, pool):
            assert await ask(pool, ["a"]) == ["a"]
            call = asyncio.create_task(pool.post(b"slow"))
            while b"slow" not in server.requests:
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            server.writers[0].write(good(b"slow"))
            assert await ask(pool, ["b"]) == ["b"]

    asyncio.run(run())


def test_an_answer_without_an_id_ends_the_connection() -> None:
    """A copy of an error would be taken for another error, and then shift what follows."""
    error = http(b'{"error": "slow down", "id": "1"}', status=429)

    async def run() -> None:
        script: Script = lambda number, request, body: [error] if body == b"busy" else [good(body)]  # noqa: E731
        async with serving(script) as (server, pool):
            assert (await pool.post(b"busy")).status == 429
            assert await ask(pool, NAMES) == NAMES
            assert server.connections == 2

    asyncio.run(run())


@pytest.mark.parametrize(("identity", "requests"), [(None, 6), ("", 6), ("chatcmpl-0", 7)])
def test_where_ids_tell_nothing_a_connection_is_used_once(identity: str | None, requests: int) -> None:
    names = ["a", "b", "c", "d", "e", "f"]

    async def run() -> None:
        async with serving(lambda number, request, body: [http(completion(body, identity))]) as (server, pool):
            assert await ask(pool, names) == names
            # A repeated id cannot be told from a copy, once.
            assert len(server.requests) == requests
            assert server.connections == 6

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_copies_and_noise_at_any_time_reach_no_other_call(seed: int) -> None:
    rng = random.Random(seed)
    kept = dict[int, bytes]()

    def script(number: int, request: int, body: bytes) -> Pieces:
        last, kept[number] = kept.get(number, b""), good(body)
        own = [good(body)[:40], good(body)[40:]] if rng.random() < 0.3 else [good(body)]
        extra = [rng.choice((last, good(body), b"\r\n", b"HTTP/1.1 200", http(b"", status=500)))]
        fate = rng.random()
        if fate < 0.2:
            return [*extra, *own] if last else own
        return [*own, *extra] if fate < 0.4 else own

    async def run() -> None:
        async with serving(script) as (_, pool):

            async def caller(name: str) -> None:
                for number in range(40):
                    body = f"{name}{number}"
                    try:
                        answer = await pool.post(body.encode())
                    except aiohttp.ClientError:
                        continue
                    # An error that belongs to nobody costs an attempt, never a wrong answer.
                    assert answer.status == 500 or owner(answer) == body
                    await asyncio.sleep(rng.choice((0.0, 0.0, 0.001)))

            await asyncio.gather(*(caller(name) for name in "abcdefgh"))

    asyncio.run(run())
