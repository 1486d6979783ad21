"""POST to one address by aiohttp, such that no request ever gets the response to another one.

HTTP/1.1 does not number responses: the next bytes on a connection count as the response to the last request. A server
(or a gateway before it) that sends a response twice, or extra bytes after it, would shift all later responses by one.
Therefore each connection is an aiohttp session of its own, and is reused only after a complete response with an id that
was not seen before. What comes on a reused connection and is no such response is a `MismatchedResponseError`, because
the server has the request and may charge for it; from then on each connection is used once. So it is where the server's
ids are not unique.

No client can detect this: the server responds twice to one request, under two new ids, and the second response arrives
after the next request was sent on that connection.
"""

from __future__ import annotations

import weakref
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
_MAX_IDS = 10_000
"""Number of latest ids that are compared."""


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


def check_headers(response: aiohttp.ClientResponse) -> None:
    """Refuse a response by its headers.

    Raises:
        RejectedResponseError: Its length is above `BODY_LIMIT`, or it is compressed: unpacked it may have any size.
    """
    if (response.content_length or 0) > BODY_LIMIT:
        raise RejectedResponseError("the answer is too long")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RejectedResponseError("the answer is compressed, although the request excludes that")


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
        self._idle: list[aiohttp.ClientSession] = []
        weakref.finalize(self, close_sessions, self._idle)
        self._ids: dict[str, None] = {}
        """The latest ids, the oldest first."""
        self._reuse = True
        """Whether connections are reused: so far each response had a unique id and matched its request."""

    async def post(self, body: bytes) -> HttpResponse:
        """Send `body` once and return the response, whatever its status; redirects are not followed.

        Raises:
            MismatchedResponseError: Something other than the response came. To post again costs one more call.
            aiohttp.ClientError: The connection failed, or the response is rejected.
        """
        if self._reuse and self._idle:
            try:
                return await self._exchange(self._idle.pop(), body, reused=True)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # The server has just closed the idle connection: try a new one.
                pass
            except aiohttp.ClientResponseError as error:
                self._reuse = False
                raise MismatchedResponseError(f"not an answer to this request: {error}"[:200]) from error
        connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=_IDLE_TIMEOUT)
        session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **self._options)
        return await self._exchange(session, body, reused=False)

    async def _exchange(self, session: aiohttp.ClientSession, body: bytes, *, reused: bool) -> HttpResponse:
        reusable = False
        try:
            async with session.post(self._url, data=body, allow_redirects=False) as response:
                check_headers(response)
                raw = bytearray()
                async for chunk in response.content.iter_any():
                    raw += chunk
                    if len(raw) > BODY_LIMIT:
                        raise RejectedResponseError("the answer is too long")
                result = HttpResponse(response.status, response.headers, bytes(raw))
            response_id = self._id_of(result.body)
            if response_id in self._ids:
                # On a new connection it can be no copy: the server's ids are not unique.
                self._reuse = False
                if reused:
                    raise MismatchedResponseError(f"the answer {response_id[:100]!r} was sent twice")
            elif response_id is not None:
                self._ids[response_id] = None
                if len(self._ids) > _MAX_IDS:
                    del self._ids[next(iter(self._ids))]
                reusable = self._reuse
            return result
        finally:
            # Also when cancelled: the rest of this response must not reach the next request.
            if reusable:
                self._idle.append(session)
            else:
                await session.close()

    async def aclose(self) -> None:
        """Close all idle connections."""
        while self._idle:
            await self._idle.pop().close()
