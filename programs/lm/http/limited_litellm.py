"""LiteLLM's client with a limit on the body of an answer, for the providers that only LiteLLM can speak to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import aiohttp
from dspy.clients.engines import AsyncLiteLLMEngine
from dspy.lm15 import Request

from debate_judge.programs.lm.http.connection import BODY_LIMIT

if TYPE_CHECKING:
    from aiohttp.connector import Connection


class RefusedError(aiohttp.ClientPayloadError):
    """An answer that is not read: its body exceeds `BODY_LIMIT` or is compressed, or it sends the call elsewhere."""


class LimitedBody:
    """The body of an answer, given up when it gets too long; otherwise the stream that it stands for."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream
        self._size = 0

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
            raise RefusedError("the answer is too long")
        return chunk


class LimitedResponse(aiohttp.ClientResponse):
    """An answer whose body is limited, and not compressed: unpacked it could be of any size.

    A redirect ends the call, for LiteLLM would follow it with the text, and with some providers' keys.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        if 300 <= self.status < 400:
            self.close()
            raise RefusedError(f"the server answers {self.status} and names another address, which is not followed")
        if self.headers.get("Content-Encoding", "identity").lower() != "identity":
            self.close()
            raise RefusedError("the answer is compressed, which was not asked for")
        self.content = LimitedBody(self.content)  # type: ignore[assignment]
        return self


class LimitedLiteLLM(AsyncLiteLLMEngine):
    """DSPy's engine around LiteLLM, which is handed a session of our own. It belongs to the running event loop."""

    def __init__(self, **options: Any) -> None:
        super().__init__(model_type="chat", **options)
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), response_class=LimitedResponse, auto_decompress=False, trust_env=True
        )

    def _arguments(self, request: Request, streaming: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = super()._arguments(request, streaming=streaming)
        return {**found, "shared_session": self._session}

    async def aclose(self) -> None:
        await super().aclose()
        await self._session.close()
