"""DSPy's own HTTP transport with a limit on the body of an answer, for the providers that only DSPy can speak to."""

from __future__ import annotations

from collections.abc import AsyncIterator

from dspy._vendor.lm15.transports import StdlibAsyncTransport
from dspy._vendor.lm15.transports._types import AsyncTransportResponse, TransportRequest
from dspy.lm15 import TransportError

from debate_judge.programs.lm.http.connection import BODY_LIMIT


class LimitedTransport(StdlibAsyncTransport):
    """Gives up an answer that is compressed or whose body exceeds `BODY_LIMIT`. It belongs to one event loop."""

    async def _do_stream(self, request: TransportRequest) -> AsyncTransportResponse:
        response = await super()._do_stream(request)
        if (response.header("content-encoding") or "identity").lower() != "identity":
            # It is unpacked as it is read, whatever comes out. No answer of this kind was asked for.
            await response.aclose()
            raise TransportError("the answer is compressed, which was not asked for")
        response._chunks = _limited(response._chunks)
        return response


async def _limited(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > BODY_LIMIT:
            raise TransportError("the answer is too long")
        yield chunk
