"""HTTP/1.1 answers from bytes: the head, a body by length, in chunks or until the end, gzip undone."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

_HEAD_LIMIT, _BODY_LIMIT = 64 * 1024, 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sent back."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case; of a header that stands twice, the last."""
    body: bytes


class WireError(ConnectionError):
    """The connection failed, or what came over it is not HTTP."""


class UnreachableError(WireError):
    """No connection could be made."""


class Reader:
    """Reads one answer out of the pieces in which it arrives; answers that only announce another are skipped."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._start = 0
        self._length: int | None = None
        self._chunked = False
        self._body = bytearray()
        self.keeps_open = False
        """Whether the server leaves the connection open after this answer."""

    @property
    def begun(self) -> bool:
        return bool(self._data) or self._status > 0

    def feed(self, data: bytes) -> Answer | None:
        """Take in `data`; returns the answer once it is whole.

        Raises:
            WireError: This is not HTTP, or there is more than the one answer that was asked for.
        """
        self._data += data
        while not self._status:
            if not self._take_head():
                return None
        if self._chunked:
            return self._take_chunks()
        if self._length is None:
            if len(self._data) > _BODY_LIMIT:
                raise WireError("the answer is too long")
            return None
        end = self._start + self._length
        return self._answer(bytes(self._data[self._start : end]), end) if len(self._data) >= end else None

    def end(self) -> Answer | None:
        """The server has closed the connection: the answer, if that was its way to end it."""
        if self._status and not self._chunked and self._length is None:
            return self._answer(bytes(self._data[self._start :]), len(self._data))
        return None

    def _take_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > _HEAD_LIMIT:
                raise WireError("the answer's head has no end")
            return False
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        version, code = first[:8], first[9:12]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not code.isdecimal() or len(code) < 3:
            raise WireError(f"not an HTTP answer: {first[:60]!r}")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        status, self._start = int(code), end + 4
        if status < 200:
            del self._data[: self._start]
            return bool(self._data)
        self._status, self._headers = status, headers
        connection = headers.get("connection", "").lower()
        self.keeps_open = "close" not in connection and (version == "HTTP/1.1" or "keep-alive" in connection)
        self._frame(headers)
        return True

    def _frame(self, headers: dict[str, str]) -> None:
        """Find out how the body ends (RFC 9112, section 6.3)."""
        if "transfer-encoding" in headers:
            self._chunked = headers["transfer-encoding"].lower().endswith("chunked")
        elif self._status in (204, 304):
            self._length = 0
        elif "content-length" in headers:
            length = headers["content-length"]
            if not length.isdecimal() or int(length) > _BODY_LIMIT:
                raise WireError(f"the answer's length is {length[:40]!r}")
            self._length = int(length)

    def _take_chunks(self) -> Answer | None:
        while True:
            line = self._data.find(b"\r\n", self._start)
            if line < 0:
                return None
            digits = bytes(self._data[self._start : line]).partition(b";")[0].strip()
            if not digits or len(digits) > 8 or digits.strip(b"0123456789abcdefABCDEF"):
                raise WireError(f"not a chunk's size: {digits[:20]!r}")
            size = int(digits, 16)
            if size == 0:
                # Trailers, if any, end with an empty line, as a head does.
                end = self._data.find(b"\r\n\r\n", line)
                return self._answer(bytes(self._body), end + 4) if end >= 0 else None
            if len(self._body) + size > _BODY_LIMIT:
                raise WireError("the answer is too long")
            if len(self._data) < line + 2 + size + 2:
                return None
            self._body += self._data[line + 2 : line + 2 + size]
            del self._data[: line + 2 + size + 2]
            self._start = 0

    def _answer(self, body: bytes, end: int) -> Answer:
        if len(self._data) > end or (self._length is None and not self._chunked):
            # What follows was not asked for; nobody can tell what the next answer would belong to.
            self.keeps_open = False
        if self._headers.get("content-encoding", "identity").lower() in ("gzip", "deflate"):
            try:
                body = zlib.decompress(body, wbits=47)
            except zlib.error as error:
                raise WireError(f"the answer cannot be unpacked: {error}") from error
        return Answer(self._status, self._headers, body)
