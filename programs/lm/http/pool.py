"""Connections to one address, kept between requests, such that no answer ever reaches another request.

HTTP/1.1 has no number on an answer: the next bytes on a connection count as the answer to the last request. A server
(or a gateway before it) that sends an answer twice, or something behind it, would shift all answers that follow by
one. Therefore:

- A connection is used again only after an answer that was complete, with nothing behind it, and that bore an id of
  its own. Anything else ends it: cancelled requests, errors, answers without id.
- It is not used again if anything has arrived since, be it unread by h11, by the event loop or in the socket.
- What still arrives later, between that look and the answer, is told by its id: one that this connection has brought
  before marks a copy. So is what arrives before the request is sent, or is no HTTP. The caller is told so
  (`StrayAnswerError`), for the server has the request and may charge for it; unused connections, which may bring
  copies as well, are closed, and on a new one, which can bring nothing old, the request may be made again.
- If a new connection brings an id that another has brought, ids tell nothing about this server (some send always the
  same, some draw from a few hundred). From then on every connection is used for one request only.

What no client can tell: a server whose ids are otherwise its answers' own answers one request twice, under two ids, and
the second answer arrives after the next request was written on that connection.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import h11

from debate_judge.programs.lm.address import is_loopback
from debate_judge.programs.lm.http.connection import (
    Answer,
    Connection,
    NotListeningError,
    StaleError,
    StrayAnswerError,
    UnreachableError,
)

_LOG = logging.getLogger(__name__)

_IDLE = 30.0
"""Seconds that an unused connection is trusted; routers drop silent ones without notice."""
_REQUESTS = 1000
"""Requests on one connection, which bounds the ids that it remembers; nginx has the same limit."""
_RECENT = 1000
"""Answers whose ids are compared over all connections."""

Identity = Callable[[Answer], str | None]
"""From an answer to the id by which no other answer goes; None where it has none."""


class Wire(Protocol):
    """A way to POST to one address."""

    async def post(self, body: bytes) -> Answer: ...

    async def aclose(self) -> None: ...


def wire(url: str, headers: Mapping[str, str], identity: Identity, *, connect_deadline: float = 10.0) -> Wire:
    """The way to `url`: direct, or through the proxy that the environment names for it.

    Args:
        url: Of http or https; user and password in it are sent as basic authentication.
        headers: Sent with every request, besides those that HTTP needs.
        identity: Tells answers apart.
        connect_deadline: Seconds that making a connection may take.

    Raises:
        ValueError: The address or a header cannot be sent.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no address: expected http://HOST[:PORT]/PATH or https://...")
    if parts.username is not None and "Authorization" not in headers:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers = {**headers, "Authorization": "Basic " + base64.b64encode(pair).decode()}
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
        from debate_judge.programs.lm.http.proxy import ProxiedWire

        return ProxiedWire(address, headers, connect_deadline=connect_deadline)
    return Pool(address, headers, identity, connect_deadline=connect_deadline)


class Pool:
    """Connections to one address, the most recently used first. Belongs to one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str], identity: Identity, *, connect_deadline: float) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._connect_deadline = connect_deadline
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fields = [("Host", parts.netloc), ("Accept-Encoding", "identity"), *headers.items()]
        try:
            self._request = h11.Request(method="POST", target=target, headers=fields)
        except (h11.LocalProtocolError, UnicodeEncodeError):
            # h11 quotes the header, which may be the key.
            raise ValueError("the address or the key has a character that HTTP does not allow") from None
        self._identity = identity
        self._idle: list[Connection] = []
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._ids_differ = True
        """Whether each answer has an id of its own, as far as has been seen."""

    async def post(self, body: bytes) -> Answer:
        """Send `body` once and return the answer, whatever its status.

        Raises:
            UnreachableError: No connection could be made.
            StrayAnswerError: Something else came than the answer. To post again costs one more call.
            WireError: The connection failed.
        """
        kept = self._kept()
        if kept is not None:
            try:
                return await self._exchange(kept, body)
            except StaleError as error:
                # The server has closed it at just this moment, and has not begun to answer: no failure of the call.
                _LOG.debug("a kept connection is dropped: %s", error)
            except StrayAnswerError:
                self._drop_idle()
                raise
        return await self._exchange(await self._connect(), body)

    async def _exchange(self, connection: Connection, body: bytes) -> Answer:
        kept = False
        try:
            answer = await connection.exchange(self._request, body)
            identity = self._identity(answer)
            if identity is not None:
                kept = self._is_new(identity, connection) and connection.reusable
            return answer
        finally:
            # Also when cancelled: the rest of this answer must not meet the next request.
            if kept and identity is not None:
                connection.keep(identity)
                self._idle.append(connection)
            else:
                connection.abort()

    def _is_new(self, identity: str, connection: Connection) -> bool:
        """Whether the connection may be used again after an answer with this id.

        Raises:
            StrayAnswerError: The answer is a copy of an earlier one.
        """
        if identity in connection.ids:
            raise StrayAnswerError(f"the answer {identity[:100]!r} was sent twice")
        if not connection.ids and self._ids_differ and identity in self._recent:
            self._ids_differ = False
            _LOG.info("%s gives several answers one id; its connections are not kept", self._host)
        self._recent.append(identity)
        return self._ids_differ and len(connection.ids) < _REQUESTS

    def _kept(self) -> Connection | None:
        oldest = time.monotonic() - _IDLE
        while self._idle:
            connection = self._idle.pop()
            if self._ids_differ and connection.idle_since > oldest and connection.is_quiet():
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_deadline):
                _, connection = await loop.create_connection(
                    Connection, self._host, self._port, ssl=self._tls, happy_eyeballs_delay=0.25
                )
        except ssl.SSLCertVerificationError:
            raise
        except TimeoutError as error:
            raise UnreachableError(f"no connection within {self._connect_deadline:g} s") from error
        except OSError as error:
            raise (NotListeningError if is_loopback(self._host) else UnreachableError)(str(error)) from error
        return connection

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    async def aclose(self) -> None:
        self._drop_idle()
        # The loop closes sockets in its next turn.
        await asyncio.sleep(0)
