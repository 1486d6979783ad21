"""`ConnectionPool` with a server that is scripted byte by byte: which responses are read, which connections reused."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import aiohttp
import pytest

from debate_judge.programs.lm.http import connections as module
from debate_judge.programs.lm.http.chat_completions import completion_id
from debate_judge.programs.lm.http.connections import ConnectionPool
from tests.programs.scripted_server import NAMES, Pieces, ask, completion, http, own_response, serving

pytestmark = pytest.mark.integration

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
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + http(OK)], 1),
    ],
)
def test_an_answer_is_read_however_it_is_framed(pieces: Pieces, connections: int) -> None:
    """The second number is how many connections two requests take: 1 where the first may be used again."""

    async def run() -> None:
        async with serving(lambda number, request, body: pieces if not number + request else [own_response(body)]) as (
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
        ([None], "Server disconnected"),
        ([b"SSH-2.0-OpenSSH_9\r\n\r\n"], "400"),
        ([b"<html>Please log in</html>\r\n\r\n"], "400"),
        ([http(OK)[:-3], None], "payload"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", None], "payload"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"], ""),
        ([HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"], "400"),
        ([HEAD + b"Content-Length: much\r\n\r\n"], "400"),
        ([HEAD + b"X: " + 70_000 * b"y"], "400"),
        ([http(OK) + b"more"], "Bad status line"),
        ([http(1001 * b"x")], "too long"),
        ([HEAD + b"\r\n" + 1001 * b"x"], "too long"),
        ([http(gzip.compress(OK), "Content-Encoding: gzip")], "compressed"),
        ([http(zlib.compress(OK), "Content-Encoding: deflate")], "compressed"),
    ],
)
def test_a_malformed_response_is_an_error_and_closes_the_connection(
    pieces: Pieces, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_LIMIT", 1000)

    async def run() -> None:
        async with serving(lambda number, request, body: [own_response(body)] if number else pieces) as (server, pool):
            with pytest.raises(aiohttp.ClientError, match=words):
                await pool.post(b"a")
            assert len(server.requests) == 1
            assert await ask(pool, NAMES) == NAMES
            assert server.connections == 2

    asyncio.run(run())


def test_no_connection_is_an_error_of_its_own() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: []) as (server, _):
            url = server.url
        with pytest.raises(aiohttp.ClientConnectorError):
            await ConnectionPool(url, {}, completion_id).post(b"")

    asyncio.run(run())


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="does not allow") as caught:
        ConnectionPool("http://127.0.0.1:1/v1", {"Authorization": "Bearer sk-1\nX: y"}, completion_id)
    assert "sk-1" not in str(caught.value)


def test_user_and_password_of_the_address_are_sent_as_basic_authentication() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: [own_response(body)]) as (server, _):
            pool = ConnectionPool(server.url.replace("//", "//me:p%40ss@"), {}, completion_id)
            await pool.post(b"a")
            await pool.aclose()
            assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in server.heads[0]
            assert b"p%40ss" not in server.heads[0]

    asyncio.run(run())
