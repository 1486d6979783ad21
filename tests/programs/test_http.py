"""The wire against a server that is scripted byte by byte: what is read, what is kept, and whose answer it is."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from debate_judge.programs.lm.http import connection as module
from debate_judge.programs.lm.http import proxy
from debate_judge.programs.lm.http.chat_completions import id_of
from debate_judge.programs.lm.http.connection import Answer, StrayAnswerError, UnreachableError, WireError
from debate_judge.programs.lm.http.pool import Pool, wire

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
async def serving(script: Script) -> AsyncIterator[tuple[Server, Pool]]:
    server = Server(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    pool = wire(server.url, {"Authorization": "Bearer k"}, id_of)
    assert isinstance(pool, Pool)
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


async def ask(pool: Pool, names: Sequence[str]) -> list[str]:
    """Whose answers come, one call after the other."""
    return [owner(await post(pool, name.encode())) for name in names]


async def post(pool: Pool, body: bytes) -> Answer:
    """Post as a caller does: once more where something else than the answer came, and then it must come."""
    try:
        return await pool.post(body)
    except StrayAnswerError:
        return await pool.post(body)


NAMES = ["a", "b", "c", "d"]


# --- what is read ---

OK = completion(b"x", "1")
CHUNKED = b"%x;note=1\r\n%b\r\n%x\r\n%b\r\n0\r\nTrailer: t\r\n\r\n" % (5, OK[:5], len(OK) - 5, OK[5:])
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("pieces", "connections"),
    [
        ([http(OK)], 1),
        ([http(OK)[:30], http(OK)[30:70], http(OK)[70:]], 1),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED], 1),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED[:9], CHUNKED[9:20], CHUNKED[20:]], 1),
        ([HEAD + b"\r\n" + OK[:4], OK[4:], None], 2),
        ([b"HTTP/1.0 200 OK\r\n\r\n" + OK, None], 2),
        ([http(OK, "Connection: close")], 2),
        ([http(gzip.compress(OK), "Content-Encoding: gzip")], 1),
        ([http(zlib.compress(OK), "Content-Encoding: deflate")], 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + http(OK)], 1),
        ([http(OK) + b"more"], 2),
    ],
)
def test_an_answer_is_read_however_it_is_framed(pieces: Pieces, connections: int) -> None:
    """The second number is how many connections two requests take: 1 where the first may be used again."""

    async def run() -> None:
        async with serving(lambda number, request, body: pieces if not number + request else [good(body)]) as (
            server,
            pool,
        ):
            answer = await pool.post(b"first")
            assert (answer.status, answer.body) == (200, OK)
            assert await ask(pool, ["second"]) == ["second"]
            assert server.connections == connections
            assert server.heads[0].startswith(b"POST /v1 HTTP/1.1\r\nHost: 127.0.0.1:")
            assert b"\r\nAuthorization: Bearer k\r\n" in server.heads[0]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([None], "closed by the server"),
        ([b"SSH-2.0-OpenSSH_9\r\n\r\n"], "not a whole HTTP answer"),
        ([b"<html>Please log in</html>\r\n\r\n"], "not a whole HTTP answer"),
        ([http(OK)[:-3], None], "not a whole HTTP answer"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", None], "not a whole HTTP answer"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"], "not a whole HTTP answer"),
        ([HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"], "not a whole HTTP answer"),
        ([HEAD + b"Content-Length: much\r\n\r\n"], "not a whole HTTP answer"),
        ([HEAD + b"X: " + 70_000 * b"y"], "not a whole HTTP answer"),
        ([http(1001 * b"x")], "too long"),
        ([HEAD + b"\r\n" + 1001 * b"x"], "too long"),
        ([http(gzip.compress(1001 * b"x"), "Content-Encoding: gzip")], "cannot be unpacked"),
        ([http(gzip.compress(OK)[:-9], "Content-Encoding: gzip")], "cannot be unpacked"),
        ([http(OK, "Content-Encoding: gzip")], "cannot be unpacked"),
    ],
)
def test_what_is_no_answer_is_an_error_and_ends_the_connection(
    pieces: Pieces, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_LIMIT", 1000)

    async def run() -> None:
        async with serving(lambda number, request, body: [good(body)] if number else pieces) as (server, pool):
            with pytest.raises(WireError, match=words):
                await pool.post(b"a")
            assert len(server.requests) == 1
            assert await ask(pool, NAMES) == NAMES
            assert server.connections == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([http(1001 * b"x")], "too long"),
        ([HEAD + b"\r\n" + 5000 * b"x", None], "too long"),
        ([http(gzip.compress(1001 * b"x"), "Content-Encoding: gzip")], "cannot be unpacked"),
        ([http(gzip.compress(OK)[:-9], "Content-Encoding: gzip")], "cannot be unpacked"),
        ([http(OK)[:-3], None], "ClientPayloadError"),
        ([http(gzip.compress(OK), "Content-Encoding: gzip")], None),
        ([http(OK)], None),
    ],
)
def test_the_way_through_a_proxy_has_the_same_limits(
    pieces: Pieces, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (module, proxy):
        monkeypatch.setattr(place, "BODY_LIMIT", 1000)

    async def run() -> None:
        async with serving(lambda number, request, body: pieces) as (server, _):
            way = proxy.ProxiedWire(server.url, {}, connect_deadline=10.0)
            try:
                if words is None:
                    assert (await way.post(b"a")).body == OK
                else:
                    with pytest.raises(WireError, match=words):
                        await way.post(b"a")
            finally:
                await way.aclose()

    asyncio.run(run())


def test_no_connection_is_an_error_of_its_own() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: []) as (server, _):
            url = server.url
        with pytest.raises(UnreachableError):
            await wire(url, {}, id_of).post(b"")

    asyncio.run(run())


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="does not allow") as caught:
        wire("http://127.0.0.1:1/v1", {"Authorization": "Bearer sk-1\nX: y"}, id_of)
    assert "sk-1" not in str(caught.value)


def test_user_and_password_of_the_address_are_sent_as_basic_authentication() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: [good(body)]) as (server, _):
            pool = wire(server.url.replace("//", "//me:p%40ss@"), {}, id_of)
            await pool.post(b"a")
            await pool.aclose()
            assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in server.heads[0]
            assert b"p%40ss" not in server.heads[0]

    asyncio.run(run())


# --- whose answer it is ---


def copies_at_once(number: int, request: int, body: bytes) -> Pieces:
    return [2 * good(body)]


def copies_a_little_later(number: int, request: int, body: bytes) -> Pieces:
    return [good(body), good(body)]


def noise_a_little_later(number: int, request: int, body: bytes) -> Pieces:
    return [good(body), b"\r\nOK\r\n"]


class Late:
    """Holds something back until the next request on the same connection has come."""

    def __init__(self, what: Callable[[bytes], bytes]) -> None:
        self.what, self.held = what, dict[int, bytes]()

    def __call__(self, number: int, request: int, body: bytes) -> Pieces:
        late, self.held[number] = self.held.get(number, b""), self.what(body)
        return [late, good(body)] if late else [good(body)]


SCRIPTS: dict[str, Callable[[], Script]] = {
    "copy at once": lambda: copies_at_once,
    "copy in the next packet": lambda: copies_a_little_later,
    "noise in the next packet": lambda: noise_a_little_later,
    "copy at the next request": lambda: Late(good),
    "copy of the headers only": lambda: Late(lambda body: http(b"")[:20]),
    "noise at the next request": lambda: Late(lambda body: b"\r\nOK\r\n"),
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


def test_what_is_unread_in_the_socket_ends_the_connection() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: [good(body)]) as (server, pool):
            assert await ask(pool, ["a"]) == ["a"]
            # Nothing is awaited in between, so that only the system knows of it.
            server.writers[0].write(good(b"a"))
            assert await ask(pool, ["b"]) == ["b"]
            assert (server.connections, server.requests) == (2, [b"a", b"b"])

    asyncio.run(run())


def test_an_answer_that_comes_before_the_request_is_sent_is_not_its_answer() -> None:
    """An unknown id does not help here: the request is far larger than what the system takes at once."""
    large = 64 * 1024 * 1024 * b"x"

    async def run() -> None:
        async with serving(lambda number, request, body: [good(body[:5])]) as (server, pool):
            assert await ask(pool, ["a"]) == ["a"]
            call = asyncio.create_task(post(pool, large))
            await asyncio.sleep(0)
            server.writers[0].write(good(b"stray"))
            assert owner(await call) == "xxxxx"
            assert server.connections == 2

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
        async with serving(lambda number, request, body: [error] if body == b"busy" else [good(body)]) as (
            server,
            pool,
        ):
            assert (await pool.post(b"busy")).status == 429
            assert await ask(pool, NAMES) == NAMES
            assert server.connections == 2

    asyncio.run(run())


@pytest.mark.parametrize(("identity", "requests"), [(None, 6), ("", 6), ("chatcmpl-0", 7)])
def test_where_ids_tell_nothing_a_connection_is_used_once(identity: str | None, requests: int) -> None:
    """Of equal ids one call more tells that they are usual: on a new connection nothing can be a copy."""
    names = ["a", "b", "c", "d", "e", "f"]

    async def run() -> None:
        async with serving(lambda number, request, body: [http(completion(body, identity))]) as (server, pool):
            assert await ask(pool, names) == names
            assert len(server.requests) == requests
            assert server.connections == 6

    asyncio.run(run())


def test_ids_drawn_from_a_few_cost_few_calls() -> None:
    rng = random.Random(1)
    names = [f"n{i}" for i in range(2000)]

    async def run() -> None:
        script: Script = lambda number, request, body: [http(completion(body, f"chatcmpl-{rng.randrange(999)}"))]  # noqa: E731
        async with serving(script) as (server, pool):
            assert await ask(pool, names) == names
            assert len(server.requests) < 2020

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(5))
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
                for number in range(60):
                    body = f"{name}{number}"
                    try:
                        answer = await pool.post(body.encode())
                    except WireError:
                        continue
                    # An error that belongs to nobody costs an attempt, never a wrong answer.
                    assert answer.status == 500 or owner(answer) == body
                    await asyncio.sleep(rng.choice((0.0, 0.0, 0.001)))

            await asyncio.gather(*(caller(name) for name in "abcdefgh"))

    asyncio.run(run())
