"""POST to one address by aiohttp, such that no answer ever reaches another request, and none is read without end.

HTTP/1.1 has no number on an answer: the next bytes on a connection count as the answer to the last request. A server
(or a gateway before it) that sends an answer twice would shift all answers that follow by one. Therefore a connection
is used again only after a whole answer with an id that no other had. An id that a used connection brings a second time
marks a copy, which is refused; from then on, as with servers that give no ids, each request has its own connection.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from debate_judge.programs.lm import loop
from debate_judge.programs.lm.http.address import is_loopback

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes. An answer of 2,000 tokens with 20 alternatives each has about 5 million."""
_CONNECT_DEADLINE = 10.0
_IDLE = 30.0
"""Seconds after which an unused connection is closed; routers drop silent ones without notice."""
_REMEMBERED = 20_000
"""Ids of answers: more than come in the time for which an unused connection stays open."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sent back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RefusedAnswerError(aiohttp.ClientError):
    """An answer that is not read: too long, or compressed."""


class StrayAnswerError(aiohttp.ClientError):
    """A copy of an earlier answer came. The server has the request and may charge for it."""


async def guard(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Middleware that has an answer refused which is longer than `BODY_LIMIT`, or compressed: unpacked it may be of
    any size.
    """
    request.headers["Accept-Encoding"] = "identity"
    response = await send(request)
    problem = ""
    if (response.content_length or 0) > BODY_LIMIT:
        problem = "the answer is too long"
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        problem = "the answer is compressed, which was not asked for"
    if problem:
        response.close()
        raise RefusedAnswerError(problem)
    response.content = _LimitedBody(response.content)  # type: ignore[assignment]
    return response


class _LimitedBody:
    """The body of an answer, given up when it gets too long; otherwise the stream that it stands for."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream, self._size = stream, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, n: int = -1) -> bytes:
        if n >= 0:
            return self._counted(await self._stream.read(n))
        return b"".join([chunk async for chunk in self.iter_chunked(2**16)])

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        async for chunk in self._stream.iter_chunked(n):
            yield self._counted(chunk)

    def _counted(self, chunk: bytes) -> bytes:
        self._size += len(chunk)
        if self._size > BODY_LIMIT:
            raise RefusedAnswerError("the answer is too long")
        return chunk


def close_unused(sessions: list[aiohttp.ClientSession]) -> None:
    """Close the sessions of what is gone, or at the end of the process: aiohttp would complain."""

    async def close() -> None:
        while sessions:
            await sessions.pop().close()

    if sessions:
        with suppress(Exception):
            closing = loop.submit(close())
            if not loop.is_current():
                closing.result(1.0)


class Connections:
    """Connections to one address, the most recently used first. Each is an aiohttp session of its own.

    Args:
        url: Of http or https; user and password in it are sent as basic authentication, unless `headers` authorize.
        headers: Sent with every request, besides those that HTTP needs.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if "Authorization" in headers:
            url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._url = url
        self._options: dict[str, Any] = {
            "headers": headers,
            "trust_env": not is_loopback(host) and parts.scheme in getproxies() and not proxy_bypass(host),
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_DEADLINE),
            "auto_decompress": False,
            "middlewares": (guard,),
        }
        self._idle: list[aiohttp.ClientSession] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        weakref.finalize(self, close_unused, self._idle)
        self._ids: dict[str, None] = {}
        """Of the latest answers, in their order."""
        self._keeps = True
        """Whether connections are used again: each answer had an id of its own, and was the answer, so far."""

    async def post(self, body: bytes) -> Answer:
        """Send `body` once and return the answer, whatever its status; redirects are not followed.

        Raises:
            StrayAnswerError: A copy of an earlier answer came. To post again costs one more call.
            aiohttp.ClientError: The connection failed, or the answer is refused.
        """
        if self._loop is not (running := asyncio.get_running_loop()):
            # After a fork the idle ones are the parent's.
            self._loop = running
            self._idle.clear()
        while True:
            used = self._keeps and bool(self._idle)
            session, keep = self._idle.pop() if used else self._new_session(), False
            try:
                async with session.post(self._url, data=body, allow_redirects=False) as response:
                    answer = Answer(response.status, response.headers, await response.read())
                keep = self._may_keep(id_of(answer.body), used)
                return answer
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # A server may close a connection at the moment in which it is used again: no failure of the call.
                if not used:
                    raise
            except aiohttp.ClientResponseError:
                # No HTTP, such as the rest of something else.
                self._keeps = False
                raise
            finally:
                # Also when cancelled: the rest of this answer must not meet the next request.
                if keep:
                    self._idle.append(session)
                else:
                    await session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=_IDLE)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **self._options)

    def _may_keep(self, identity: str | None, used: bool) -> bool:
        """Whether a connection may be used again after an answer with this id; `used`: whether it was used before.

        Raises:
            StrayAnswerError: The answer is a copy of an earlier one.
        """
        if identity is None:
            return False
        if identity in self._ids:
            # On a new connection it is no copy: ids tell nothing about this server.
            self._keeps = False
            if used:
                raise StrayAnswerError(f"the answer {identity[:100]!r} was sent twice")
        self._ids[identity] = None
        if len(self._ids) > _REMEMBERED:
            del self._ids[next(iter(self._ids))]
        return self._keeps

    async def aclose(self) -> None:
        """Close all unused connections."""
        while self._idle:
            await self._idle.pop().close()


def id_of(body: bytes) -> str | None:
    """The id of a completion; None for any other answer, and where the server gives none."""
    try:
        completion = orjson.loads(body)
        identity = completion["id"] if completion["choices"] else None
    except (ValueError, LookupError, TypeError):
        return None
    return identity if isinstance(identity, str) and identity else None
