"""The wire against a server that is scripted byte by byte: what is read, and what is kept."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from debate_judge.programs.lm.http import connection as module
from debate_judge.programs.lm.http import proxy
from debate_judge.programs.lm.http.chat_completions import id_of
from debate_judge.programs.lm.http.connection import UnreachableError, WireError
from debate_judge.programs.lm.http.pool import wire
from tests.programs.scripted_server import NAMES, Pieces, ask, completion, good, http, serving

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
