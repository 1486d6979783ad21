"""POST to one address by the HTTP transport of DSPy's engines, such that no request gets the response to another one.

HTTP/1.1 does not number responses: the next bytes on a connection count as the response to the last request. A server
(or a gateway before it) that sends a response twice, or extra bytes after it, would shift all later responses by one.
Therefore a connection is reused only after a complete response with an id that was not seen before. What has another
one, or is no HTTP, is a `MismatchedResponseError`, because the server has the request and may charge for it; from then
on each connection is used once. So it is where the server's ids are not unique.

No client can detect this: the server responds twice to one request, under two new ids, and the second response arrives
after the next request was sent on that connection.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from dspy._vendor.lm15 import transports as transports

from debate_judge.programs.lm.http.address import is_loopback

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes. A response of 2,000 tokens with 20 alternatives each has about 5 million."""
_MAX_IDS = 10_000
"""Number of latest ids that are compared."""
_DAY = 86_400.0
"""Seconds. How long a call may wait is the engine's to say."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class MismatchedResponseError(transports.TransportError):
    """A connection that was used before received something other than the response to this request."""


class ConnectionPool:
    """Connections to one address; the most recently used is reused first. Belongs to one event loop.

    Args:
        url: http or https; user and password in it are sent as basic authentication, unless `headers` authorize.
        headers: Sent with every request.
        id_of: Body of a response -> its unique id, or None if it has none.
    """

    def __init__(self, url: str, headers: Mapping[str, str], id_of: Callable[[bytes], str | None]) -> None:
        parts = urlsplit(url)
        login, at, server = parts.netloc.rpartition("@")
        basic = {"Authorization": "Basic " + b64encode(unquote(login).encode()).decode()} if at else {}
        self._url = parts._replace(netloc=server).geturl()
        self._headers = list({**basic, **headers}.items())
        self._id_of = id_of
        self._transport = transports.StdlibAsyncTransport(
            read_timeout=_DAY, max_connections=10**6, trust_env=not is_loopback(parts.hostname or "")
        )
        self._ids: dict[str, None] = {}
        """The latest ids, the oldest first."""
        self._unique = True
        """Whether each response so far had an id of its own."""

    async def post(self, body: bytes) -> HttpResponse:
        """Send `body` once and return the response, whatever its status; redirects are not followed.

        Raises:
            MismatchedResponseError: Something other than the response came. To post again costs one more call.
            transports.TransportError: The connection failed, or the response is no HTTP or too long.
        """
        request, raw = transports.TransportRequest("POST", self._url, self._headers, body), bytearray()
        may_be_reused = self._unique
        try:
            response = await self._transport.stream(request)
        except transports.ProtocolError as error:
            self._unique = False
            self.close()
            if may_be_reused:
                raise MismatchedResponseError(f"not an answer to this request: {error}") from error
            raise
        async with response:
            async for chunk in response:
                raw += chunk
                if len(raw) > BODY_LIMIT:
                    raise transports.ProtocolError("the answer is too long")
        result = HttpResponse(response.status, {name.lower(): value for name, value in response.headers}, bytes(raw))
        answer_id = self._id_of(result.body)
        seen = answer_id in self._ids
        if answer_id is not None and not seen:
            self._ids[answer_id] = None
            if len(self._ids) > _MAX_IDS:
                del self._ids[next(iter(self._ids))]
        self._unique = self._unique and not seen
        if answer_id is None or not self._unique:
            self.close()
        if response.status < 200:
            raise transports.ProtocolError(f"an interim answer ({response.status}), which the transport does not skip")
        if seen and may_be_reused:
            raise MismatchedResponseError(f"the answer {answer_id!r:.100} was sent twice")
        return result

    def close(self) -> None:
        """Close the connections that are not in use. DSPy's pool has no door for that, and no way back from its end."""
        for idle in self._transport._pool._idle.values():
            while idle:
                idle.pop().close()
