"""An asynchronous engine for OpenAI-compatible chat endpoints, lean enough for thousands of calls a minute.

DSPy's native engine stops at 100 connections unless it is configured by hand, and httpx pools collapse at
128 under bursts; this one runs on aiohttp with a pool as large as the concurrency and costs 0.1 to 0.2 ms of
CPU a call. One attempt per call: retries, limits and the store of replies belong to `programs.lm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson
from dspy import lm15
from dspy.lm15 import Message, Request, Response, Usage

from programs.lm import Reply

_SETTINGS = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "seed")
_FINISH = {"stop": "stop", "length": "length", "content_filter": "content_filter", "tool_calls": "tool_call"}

_ERRORS: dict[int, type[lm15.ProviderError]] = {
    401: lm15.AuthError,
    403: lm15.AuthError,
    402: lm15.BillingError,
    408: lm15.TimeoutError,
    429: lm15.RateLimitError,
    504: lm15.TimeoutError,
}


class OpenAICompatible:
    """One attempt against `{base_url}/chat/completions`.

    Args:
        base_url: Address of the server, up to and including its version, e.g. `http://localhost:8000/v1`.
        key: Sent as a bearer token; None sends none.
        connections: Size of the pool.
        deadline: Seconds that one attempt may take in all.
    """

    def __init__(self, base_url: str, key: str | None, *, connections: int, deadline: float = 600.0) -> None:
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = key
        self._connections = connections
        self._timeout = aiohttp.ClientTimeout(total=deadline, sock_connect=10.0)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def complete(self, request: Request) -> Response:
        """Send DSPy's canonical request once; the door that DSPy's own modules use."""
        system = [] if request.system is None else [{"role": "system", "content": str(request.system)}]
        messages = [*system, *({"role": m.role, "content": m.text or ""} for m in request.messages)]
        config = request.config
        reply = await self.chat(request.model, messages, {name: getattr(config, name, None) for name in _SETTINGS})
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(reply.text),
            finish_reason=reply.finish,
            usage=Usage(
                input_tokens=reply.input_tokens,
                output_tokens=reply.output_tokens,
                cache_read_tokens=reply.cached_tokens,
            ),
        )

    async def chat(self, model: str, messages: list[dict[str, Any]], settings: Mapping[str, Any]) -> Reply:
        """Send `messages` once and return the reply.

        Raises:
            dspy.lm15.LM15Error: What went wrong, in the classes that DSPy's retry rule knows.
        """
        body = {k: v for k, v in settings.items() if v is not None and k in _SETTINGS}
        body |= {"model": model.partition("/")[2], "messages": messages}
        try:
            async with self._open().post(self._url, data=orjson.dumps(body)) as answer:
                raw = await answer.read()
                if answer.status != 200:
                    # Providers quote the key that they refuse; it must not reach a log.
                    text = raw[:500].decode(errors="replace").replace(self._key or "\0", "***")
                    raise _error(answer.status, text, answer.headers.get("Retry-After"))
        except asyncio.TimeoutError as error:
            raise lm15.TimeoutError(f"no answer within {self._timeout.total:g} s") from error
        except aiohttp.ClientError as error:
            raise lm15.TransportError(f"{type(error).__name__}: {error}") from error
        return _reply(raw)

    def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            headers = {"Content-Type": "application/json"}
            if self._key is not None:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections), timeout=self._timeout, headers=headers
            )
            self._loop = loop
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _reply(raw: bytes) -> Reply:
    """Read a 200 answer; one that is not a completion is a server error, which is worth another attempt."""
    try:
        answer = orjson.loads(raw)
        choice = answer["choices"][0]
        usage = answer.get("usage") or {}
        return Reply(
            choice["message"]["content"] or "",
            usage.get("prompt_tokens") or 0,
            usage.get("completion_tokens") or 0,
            (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            _FINISH.get(choice.get("finish_reason") or "stop", "stop"),
        )
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise lm15.ServerError(f"the server's answer is not a chat completion: {raw[:200]!r}") from error


def _error(status: int, text: str, retry_after: str | None) -> lm15.ProviderError:
    message = f"HTTP {status}: {text}"
    kind = _ERRORS.get(status) or (lm15.ServerError if status >= 500 else lm15.InvalidRequestError)
    if status == 404:
        kind = lm15.UnsupportedModelError
    wait = float(retry_after) if retry_after is not None and retry_after.replace(".", "", 1).isdigit() else None
    return kind(message, status=status, retry_after=wait)
