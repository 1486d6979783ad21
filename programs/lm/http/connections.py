"""POST to one address by aiohttp, such that no request ever gets the response to another one.

HTTP/1.1 does not number responses: the next bytes on a connection count as the response to the last request. A server
(or a gateway before it) that sends a response twice, or extra bytes after it, would shift all later responses by one.
Therefore each connection is an aiohttp session of its own, and:

1. A connection is reused only after a response that was complete and had a new id, and only if nothing has arrived on
   its socket since. Anything else closes it: cancelled requests, errors, responses without id.
2. A copy that arrives later is recognised by its id, which this connection has received before. The caller gets a
   `MismatchedResponseError`, because the server has the request and may charge for it.
3. From then on every connection to this server is used for one request only; likewise if a new connection receives an
   id that another one has received, because then the server's ids are not unique.

No client can detect this: the server responds twice to one request, under two new ids, and the second response arrives
after the next request was sent on that connection.
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
"""Bytes. A response of 2,000 tokens with 20 alternatives each has about 5 million."""
_CONNECT_TIMEOUT = 10.0
_IDLE_TIMEOUT = 30.0
"""Seconds after which an unused connection is closed; routers drop silent ones without notice."""
_MAX_REQUESTS = 1000
"""Requests on one connection; bounds the ids that it remembers. nginx has the same limit."""
_MAX_RECENT_IDS = 1000
"""Number of latest ids, over all connections, that are compared."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RejectedResponseError(aiohttp.ClientError):
    """A response that is not read: too long, or compressed."""


class MismatchedResponseError(aiohttp.ClientError):
    """A reused connection received something other than the response to this request."""


_CONNECTION_ERRORS = (
    aiohttp.ServerDisconnectedError,
    aiohttp.ClientOSError,
    aiohttp.ClientResponseError,
    MismatchedResponseError,
)
"""Errors of a reused connection on which the response did not come."""


def check_headers(response: aiohttp.ClientResponse) -> None:
    """Refuse a response by its headers.

    Raises:
        RejectedResponseError: Its length is above `BODY_LIMIT`, or it is compressed: unpacked it may have any size.
    """
    if (response.content_length or 0) > BODY_LIMIT:
        raise RejectedResponseError("the answer is too long")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RejectedResponseError("the answer is compressed, although the request excludes that")


class _CountingSocket(socket.socket):
    """Counts the bytes it has received, because the event loop also reads unexpected ones."""

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
    """A session with at most one connection."""

    def __init__(self, **options: Any) -> None:
        self._sockets: list[_CountingSocket] = []
        connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=_IDLE_TIMEOUT, socket_factory=self._socket)
        self.session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **options)
        self.ids: set[str] = set()
        """Ids of the responses that it has received."""
        self.received = 0
        """Bytes that had been read from it when its last response was complete."""

    async def close(self) -> None:
        await self.session.close()

    def _socket(self, address: Any) -> socket.socket:
        # Called for each address of the host that is tried.
        sock = _CountingSocket(*address[:3])
        self._sockets.append(sock)
        return sock

    def mark_idle(self, response_id: str) -> None:
        """Record that it is idle after a response with this id."""
        self.ids.add(response_id)
        self.received = sum(sock.received for sock in self._sockets)

    def received_nothing(self) -> bool:
        """Whether the event loop has read nothing since its last response."""
        return self.received == sum(sock.received for sock in self._sockets)

    def is_reusable(self) -> bool:
        """Whether nothing has arrived since its last response, read by the event loop or not, and it is still open."""
        poll = select.poll()
        for sock in self._sockets:
            if sock.fileno() >= 0:
                poll.register(sock, select.POLLIN)
        return self.received_nothing() and not poll.poll(0)


def close_sessions(sessions: list[Any]) -> None:
    """Close the sessions of an object that was collected, or at exit: aiohttp would warn about open ones."""

    async def close() -> None:
        while sessions:
            await sessions.pop().close()

    if sessions:
        with suppress(Exception):
            closing = loop.submit(close())
            if not loop.is_current():
                closing.result(1.0)


class ConnectionPool:
    """Connections to one address; the most recently used is reused first.

    Args:
        url: http or https; user and password in it are sent as basic authentication, unless `headers` authorize.
        headers: Sent with every request.
        id_of: Body of a response -> its unique id, or None if it has none.

    Raises:
        ValueError: A header cannot be sent.
    """

    def __init__(self, url: str, headers: Mapping[str, str], id_of: Callable[[bytes], str | None]) -> None:
        if any(not (value.isascii() and value.isprintable()) for value in headers.values()):
            # Not quoted, because it may be the key.
            raise ValueError("the key has a character that HTTP does not allow")
        parts = urlsplit(url)
        host = parts.hostname or ""
        if "Authorization" in headers:
            url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._url, self._id_of = url, id_of
        self._options: dict[str, Any] = {
            "headers": {**headers, "Accept-Encoding": "identity"},
            "trust_env": not is_loopback(host) and parts.scheme in getproxies() and not proxy_bypass(host),
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
            "auto_decompress": False,
        }
        self._idle: list[_Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        weakref.finalize(self, close_sessions, self._idle)
        self._recent_ids: deque[str] = deque(maxlen=_MAX_RECENT_IDS)
        self._reuse = True
        """Whether connections are reused: so far each response had a unique id and matched its request."""

    async def post(self, body: bytes) -> HttpResponse:
        """Send `body` once and return the response, whatever its status; redirects are not followed.

        Raises:
            MismatchedResponseError: Something other than the response came. To post again costs one more call.
            aiohttp.ClientError: The connection failed, or the response is rejected.
        """
        if self._loop is not (running := asyncio.get_running_loop()):
            # After a fork the idle connections belong to the parent.
            self._loop = running
            self._idle.clear()
        reused = await self._idle_connection()
        if reused is not None:
            try:
                return await self._exchange(reused, body)
            except _CONNECTION_ERRORS as error:
                if not reused.received_nothing():
                    self._reuse = False
                    raise MismatchedResponseError(f"not an answer to this request: {error}"[:200]) from error
                # The server has just closed the idle connection, before any response: try a new one.
        return await self._exchange(_Connection(**self._options), body)

    async def _exchange(self, connection: _Connection, body: bytes) -> HttpResponse:
        response_id, reusable = None, False
        try:
            async with connection.session.post(self._url, data=body, allow_redirects=False) as response:
                check_headers(response)
                raw = bytearray()
                async for chunk in response.content.iter_any():
                    raw += chunk
                    if len(raw) > BODY_LIMIT:
                        raise RejectedResponseError("the answer is too long")
                result = HttpResponse(response.status, response.headers, bytes(raw))
            response_id = self._id_of(result.body)
            reusable = response_id is not None and self._may_reuse(response_id, connection)
            return result
        finally:
            # Also when cancelled: the rest of this response must not reach the next request.
            if reusable and response_id is not None:
                connection.mark_idle(response_id)
                self._idle.append(connection)
            else:
                await connection.close()

    def _may_reuse(self, response_id: str, connection: _Connection) -> bool:
        """Whether the connection may be reused after a response with this id.

        Raises:
            MismatchedResponseError: The response is a copy of an earlier one.
        """
        if response_id in connection.ids:
            raise MismatchedResponseError(f"the answer {response_id[:100]!r} was sent twice")
        if not connection.ids and response_id in self._recent_ids:
            self._reuse = False
        self._recent_ids.append(response_id)
        return self._reuse and len(connection.ids) < _MAX_REQUESTS

    async def _idle_connection(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if self._reuse and connection.is_reusable():
                return connection
            await connection.close()
        return None

    async def aclose(self) -> None:
        """Close all idle connections."""
        while self._idle:
            await self._idle.pop().close()
