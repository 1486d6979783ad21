"""No call gets the response to another one, whatever a connection still receives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import aiohttp
import pytest

from tests.programs.scripted_server import (
    NAMES,
    Pieces,
    Script,
    ask,
    completion,
    http,
    own_response,
    request_of,
    serving,
)

pytestmark = pytest.mark.integration


def copies_at_once(number: int, request: int, body: bytes) -> Pieces:
    return [2 * own_response(body)]


def copies_a_little_later(number: int, request: int, body: bytes) -> Pieces:
    return [own_response(body), own_response(body)]


def noise_a_little_later(number: int, request: int, body: bytes) -> Pieces:
    return [own_response(body), b"\r\nOK\r\n"]


class Late:
    """Holds something back until the next request on the same connection has come."""

    def __init__(self, what: Callable[[bytes], bytes]) -> None:
        self.what, self.held = what, dict[int, bytes]()

    def __call__(self, number: int, request: int, body: bytes) -> Pieces:
        late, self.held[number] = self.held.get(number, b""), self.what(body)
        return [late, own_response(body)] if late else [own_response(body)]


SCRIPTS: dict[str, Callable[[], Script]] = {
    "copy at once": lambda: copies_at_once,
    "copy in the next packet": lambda: copies_a_little_later,
    "noise in the next packet": lambda: noise_a_little_later,
    "copy at the next request": lambda: Late(own_response),
    "copy of the headers only": lambda: Late(lambda body: http(b"")[:20]),
    "noise at the next request": lambda: Late(lambda body: b"\r\nOK\r\n"),
    "end of the connection at the next request": lambda: (
        lambda number, request, body: [None if request else own_response(body)]
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_call_gets_its_own_answer(name: str) -> None:
    async def run() -> None:
        async with serving(SCRIPTS[name]()) as (_, pool):
            assert await ask(pool, NAMES) == NAMES

    asyncio.run(run())


def test_unread_bytes_in_the_socket_close_the_connection() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: [own_response(body)]) as (server, pool):
            assert await ask(pool, ["a"]) == ["a"]
            # Nothing is awaited in between, so that only the system knows of it.
            server.writers[0].write(own_response(b"a"))
            assert await ask(pool, ["b"]) == ["b"]
            assert (server.connections, server.requests) == (2, [b"a", b"b"])

    asyncio.run(run())


def test_a_request_that_was_cancelled_leaves_no_answer_to_another() -> None:
    async def run() -> None:
        async with serving(lambda number, request, body: [] if body == b"slow" else [own_response(body)]) as (
            server,
            pool,
        ):
            assert await ask(pool, ["a"]) == ["a"]
            call = asyncio.create_task(pool.post(b"slow"))
            while b"slow" not in server.requests:
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            server.writers[0].write(own_response(b"slow"))
            assert await ask(pool, ["b"]) == ["b"]

    asyncio.run(run())


def test_a_response_without_an_id_closes_the_connection() -> None:
    """A copy of an error would be taken for another error, and then shift what follows."""
    error = http(b'{"error": "slow down", "id": "1"}', status=429)

    async def run() -> None:
        async with serving(lambda number, request, body: [error] if body == b"busy" else [own_response(body)]) as (
            server,
            pool,
        ):
            assert (await pool.post(b"busy")).status == 429
            assert await ask(pool, NAMES) == NAMES
            assert server.connections == 2

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
        last, kept[number] = kept.get(number, b""), own_response(body)
        own = [own_response(body)[:40], own_response(body)[40:]] if rng.random() < 0.3 else [own_response(body)]
        extra = [rng.choice((last, own_response(body), b"\r\n", b"HTTP/1.1 200", http(b"", status=500)))]
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
                    except aiohttp.ClientError:
                        continue
                    # A stray error response costs an attempt, but never gives a wrong answer.
                    assert answer.status == 500 or request_of(answer) == body
                    await asyncio.sleep(rng.choice((0.0, 0.0, 0.001)))

            await asyncio.gather(*(caller(name) for name in "abcdefgh"))

    asyncio.run(run())
