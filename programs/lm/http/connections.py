"""POST to one address by aiohttp, such that no answer ever reaches another request.

HTTP/1.1 has no number on an answer: the next bytes on a connection count as the answer to the last request. A server
(or a gateway before it) that sends an answer twice, or something behind it, would shift all answers that follow by
one. Therefore each connection is an aiohttp session of its own, and:

- A connection is used again only after an answer that was complete and bore an id of its own, and only if nothing has
  arrived on its socket since. Anything else ends it: cancelled requests, errors, answers without id.
- What arrives later, between that look and the answer, is told by its id: one that this connection has brought before
  marks a copy. The caller is told so (`MismatchedAnswerError`), for the server has the request and may charge for it.
- From then on every connection to this server is used for one request only; likewise if a new connection brings an id
  that another has brought, for then ids tell nothing about this server.

What no client can tell: a server whose ids are otherwise its answers' own answers one request twice, under two ids, and
the second answer arrives after the next request was written on that connection.
"""

from __future__ import annotations

import asyncio
import select
import socket
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from debate_judge.programs.lm import loop
from debate_judge.programs.lm.http.address import is_loopback

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes. An answer of 2,000 tokens with 20 alternatives each has about 5 million."""
_CONNECT_DEADLINE = 10.0
_IDLE = 30.0
"""Seconds after which an unused connection is closed; routers drop silent ones without notice."""
_REQUESTS = 1000
"""Requests on one connection, which bounds the ids that it remembers; nginx has the same limit."""
_RECENT = 1000
"""Answers whose ids are compared over all connections."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sent back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RefusedAnswerError(aiohttp.ClientError):
    """An answer that is not read: too long, or compressed."""


class MismatchedAnswerError(aiohttp.ClientError):
    """A connection that had been used before brought something else than the answer to this request."""


_ENDED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientResponseError, MismatchedAnswerError)
"""How a connection that was used before ends an exchange without the answer to it."""


def check_head(answer: aiohttp.ClientResponse) -> None:
    """Refuse an answer by its head.

    Raises:
        RefusedAnswerError: It announces a body beyond `BODY_LIMIT`, or is compressed: unpacked it may be of any size.
    """
    if (answer.content_length or 0) > BODY_LIMIT:
        raise RefusedAnswerError("the answer is too long")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RefusedAnswerError("the answer is compressed, which was not asked for")


class _CountingSocket(socket.socket):
    """Counts what it has received, for the event loop reads bytes that nobody has asked for."""

    received = 0

    def recv(self, *arguments: Any) -> bytes:
        data = super().recv(*arguments)
        self.received += len(data)
        return data

    def recv_into(self, *arguments: Any) -> int:
        size = super().recv_into(*arguments)
        self.received += size
        return size


class _Connection:
    """A session with one connection at most."""

    def __init__(self, **options: Any) -> None:
        self._sockets: list[_CountingSocket] = []
        connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=_IDLE, socket_factory=self._socket)
        self.session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **options)
        self.ids: set[str] = set()
        """Ids of the answers that it has brought."""
        self.received = 0
        """Bytes that had been read from it when its last answer was whole."""

    async def close(self) -> None:
        await self.session.close()

    def _socket(self, address: Any) -> socket.socket:
        # Of addresses that are tried one after the other.
        made = _CountingSocket(*address[:3])
        self._sockets.append(made)
        return made

    def rest(self, identity: str) -> None:
        """Note that it is unused from now on, after an answer with this id."""
        self.ids.add(identity)
        self.received = sum(sock.received for sock in self._sockets)

    def is_silent(self) -> bool:
        """Whether the event loop has read nothing since its last answer."""
        return self.received == sum(sock.received for sock in self._sockets)

    def is_quiet(self) -> bool:
        """Whether nothing has arrived since its last answer, be it read by the event loop or not, nor its end."""
        unread = select.poll()
        for sock in self._sockets:
            if sock.fileno() >= 0:
                unread.register(sock, select.POLLIN)
        return self.is_silent() and not unread.poll(0)


def close_unused(owned: list[Any]) -> None:
    """Close what an object owned that is gone, or at the end of the process: aiohttp would complain."""

    async def close() -> None:
        while owned:
            await owned.pop().close()

    if owned:
        with suppress(Exception):
            closing = loop.submit(close())
            if not loop.is_current():
                closing.result(1.0)


class Connections:
    """Connections to one address, the most recently used first.

    Args:
        url: Of http or https; user and password in it are sent as basic authentication, unless `headers` authorize.
        headers: Sent with every request, besides those that HTTP needs.
        identity: From the body of an answer to the id by which no other answer goes; None where it has none.

    Raises:
        ValueError: A header cannot be sent.
    """

    def __init__(self, url: str, headers: Mapping[str, str], identity: Callable[[bytes], str | None]) -> None:
        if any(not (value.isascii() and value.isprintable()) for value in headers.values()):
            # Not quoted, for it may be the key.
            raise ValueError("the key has a character that HTTP does not allow")
        parts = urlsplit(url)
        host = parts.hostname or ""
        if "Authorization" in headers:
            url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._url, self._identity = url, identity
        self._options: dict[str, Any] = {
            "headers": {**headers, "Accept-Encoding": "identity"},
            "trust_env": not is_loopback(host) and parts.scheme in getproxies() and not proxy_bypass(host),
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_DEADLINE),
            "auto_decompress": False,
        }
        self._idle: list[_Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        weakref.finalize(self, close_unused, self._idle)
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._keeps = True
        """Whether connections are used again: each answer had an id of its own, and was the answer, so far."""

    async def post(self, body: bytes) -> Answer:
        """Send `body` once and return the answer, whatever its status; redirects are not followed.

        Raises:
            MismatchedAnswerError: Something else came than the answer. To post again costs one more call.
            aiohttp.ClientError: The connection failed, or the answer is refused.
        """
        if self._loop is not (running := asyncio.get_running_loop()):
            # After a fork the idle ones are the parent's.
            self._loop = running
            self._idle.clear()
        kept = await self._kept()
        if kept is not None:
            try:
                return await self._exchange(kept, body)
            except _ENDED as error:
                if not kept.is_silent():
                    self._keeps = False
                    raise MismatchedAnswerError(f"not an answer to this request: {error}"[:200]) from error
                # The server has closed it at just this moment, and has not begun to answer: no failure of the call.
        return await self._exchange(_Connection(**self._options), body)

    async def _exchange(self, connection: _Connection, body: bytes) -> Answer:
        identity, kept = None, False
        try:
            async with connection.session.post(self._url, data=body, allow_redirects=False) as response:
                check_head(response)
                raw = bytearray()
                async for part in response.content.iter_any():
                    raw += part
                    if len(raw) > BODY_LIMIT:
                        raise RefusedAnswerError("the answer is too long")
                answer = Answer(response.status, response.headers, bytes(raw))
            identity = self._identity(answer.body)
            kept = identity is not None and self._is_new(identity, connection)
            return answer
        finally:
            # Also when cancelled: the rest of this answer must not meet the next request.
            if kept and identity is not None:
                connection.rest(identity)
                self._idle.append(connection)
            else:
                await connection.close()

    def _is_new(self, identity: str, connection: _Connection) -> bool:
        """Whether the connection may be used again after an answer with this id.

        Raises:
            MismatchedAnswerError: The answer is a copy of an earlier one.
        """
        if identity in connection.ids:
            raise MismatchedAnswerError(f"the answer {identity[:100]!r} was sent twice")
        if not connection.ids and identity in self._recent:
            self._keeps = False
        self._recent.append(identity)
        return self._keeps and len(connection.ids) < _REQUESTS

    async def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if self._keeps and connection.is_quiet():
                return connection
            await connection.close()
        return None

    async def aclose(self) -> None:
        """Close all unused connections."""
        while self._idle:
            await self._idle.pop().close()
