"""One HTTP/1.1 connection on asyncio: h11 reads and writes the protocol, this file moves the bytes.

aiohttp builds a dozen objects a request that a fixed address and fixed headers do not need, and cannot tell whether
anything unread is left on a connection, which decides whether it may be used again (`programs.lm.http.pool`).
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import h11

HEAD_LIMIT, BODY_LIMIT = 64 * 1024, 64 * 1024 * 1024
"""Bytes. An answer of 2,000 tokens with 20 alternatives each has about 5 million."""
PIECES_LIMIT = 100_000
"""Chunks of a body, and answers that announce the answer. Each costs the time of a line, however short it is."""

_END = h11.EndOfMessage()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sent back."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case; of a header that occurs twice, the last."""
    body: bytes


class WireError(ConnectionError):
    """The connection failed, or what came over it is not HTTP."""


class UnreachableError(WireError):
    """No connection could be made."""


class NotListeningError(UnreachableError):
    """No connection could be made to a port of this machine, where no network can be to blame."""


class StaleError(WireError):
    """A connection that had been used before ended without a byte of an answer; a new one may bring it."""


class StrayAnswerError(WireError):
    """A connection that had been used before brought something else than the answer to this request.

    The server has the request and may charge for it; a new connection brings the answer to another one.
    """


class Connection(asyncio.Protocol):
    """Carries one request at a time. After any error it must be aborted."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self._waiter: asyncio.Future[Answer] | None = None
        self._head: h11.Response | None = None
        self._body = bytearray()
        self._pieces = 0
        self._unread: select.poll | None = None
        self.reusable = False
        """Whether the last answer ended cleanly and both sides may go on."""
        self.ids: set[str] = set()
        """Ids of the answers that it has brought."""
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        # An answer may be minutes away; without this a dead peer would never be noticed.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(select, "poll"):
            self._unread = select.poll()
            self._unread.register(raw.fileno(), select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether the connection is open and nothing has arrived since its last answer.

        The socket itself is asked, because the event loop may not have read yet what the system has received.
        """
        return not self._transport.is_closing() and not (self._unread is not None and self._unread.poll(0))

    async def exchange(self, request: h11.Request, body: bytes) -> Answer:
        """Send a request and return its answer.

        Args:
            request: Without a length, so that it can be the same for all calls: h11 takes longer to check the headers
                of a request than to read an answer.
            body: Sent behind it, with its length.

        Raises:
            StaleError: The connection was used before, and ended before an answer.
            StrayAnswerError: The connection was used before, and what came cannot be the answer to this request.
            WireError: The connection broke, or the answer cannot be read.
        """
        self._waiter = asyncio.get_running_loop().create_future()
        self._head, self._body, self._pieces, self.reusable = None, bytearray(), 0, False
        head = self._http.send(request)
        self._http.send(_END)
        # Head and body in one call, so that a short request goes out in one packet.
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head[:-2], len(body), body))
        return await self._waiter

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            # Nothing was asked for: the next request must not meet this.
            self.reusable = False
            self.abort()
            return
        self._http.receive_data(data)
        self._read()

    def connection_lost(self, reason: Exception | None) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if reason is not None or self._head is None:
            self._fail(f"the connection broke: {reason or 'closed by the server'}", StaleError)
            return
        # The end of the connection may be the end of the body (RFC 9112, section 6.3).
        self._http.receive_data(b"")
        self._read()

    def _read(self) -> None:
        """Take in what has been received, up to the end of the answer. Answers that announce another are skipped."""
        try:
            while (event := self._http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                self._pieces += 1
                if self._pieces > PIECES_LIMIT:
                    self._fail("the answer comes in too many pieces")
                    return
                if isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > BODY_LIMIT:
                        self._fail("the answer is too long")
                        return
                elif isinstance(event, h11.Response):
                    self._head = event
                elif isinstance(event, h11.EndOfMessage):
                    self._finish()
                    return
        except h11.RemoteProtocolError as error:
            self._fail(f"not a whole HTTP answer: {str(error)[:200]}")

    def _finish(self) -> None:
        assert self._waiter is not None
        assert self._head is not None
        http, unsent = self._http, self._transport.get_write_buffer_size()
        if unsent and self.ids:
            # It may be a refusal of the body, which a new connection will bring again, or a copy, which it will not.
            self._fail("an answer came before the request was sent")
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._head.headers}
        try:
            body = unpacked(bytes(self._body), headers)
        except (zlib.error, ValueError) as error:
            self._fail(f"the answer cannot be unpacked: {error}")
            return
        self.reusable = http.our_state is http.their_state is h11.DONE and not (unsent or http.trailing_data[0])
        if self.reusable:
            http.start_next_cycle()
        self._waiter.set_result(Answer(self._head.status_code, headers, body))

    def _fail(self, why: str, on_old: type[WireError] = StrayAnswerError) -> None:
        """Give up on the answer; a request that has met nothing but old bytes, or none, is worth a new connection."""
        assert self._waiter is not None
        old = bool(self.ids) and (self._head is None or self._transport.get_write_buffer_size() > 0)
        self._waiter.set_exception(on_old(why) if old else WireError(why))

    def keep(self, identity: str) -> None:
        """Note that the connection is unused from now on, after an answer with this id."""
        self.ids.add(identity)
        self.idle_since = time.monotonic()

    def abort(self) -> None:
        self._transport.abort()


def unpacked(body: bytes, headers: Mapping[str, str]) -> bytes:
    """The body of an answer as it was before it was compressed.

    Raises:
        zlib.error: It cannot be unpacked.
        ValueError: It is too long, or cut off.
    """
    if headers.get("content-encoding", "identity").lower() not in ("gzip", "deflate"):
        return body
    # 47: either format, told by its header. The limit holds for what comes out as well: zeros shrink a thousandfold.
    unpacker = zlib.decompressobj(wbits=47)
    body = unpacker.decompress(body, BODY_LIMIT)
    if not unpacker.eof:
        raise ValueError("it is too long, or cut off")
    return body
