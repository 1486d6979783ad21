"""The engines behind an LM: ours where the protocol is OpenAI's, DSPy's native ones, then LiteLLM, elsewhere.

Also the doors by which DSPy's own modules reach them (instruction proposers, judges under a trace), so that
every call is counted, kept and retried in the same place.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from dspy.lm15 import Config, Message, Request, Response, ServerError, Usage

from debate_judge.programs.lm.address import COMPATIBLE, key_variable
from debate_judge.programs.lm.reply import Messages, Reply, sound_reply


def engine_for(spec: str, api_base: str | None, concurrency: int) -> Any:
    """An engine for PROVIDER/MODEL, which makes one attempt per call."""
    from dspy.clients.engines import AsyncLM15Engine
    from dspy.lm15 import LM15Error, RouterConfig

    from debate_judge.programs.lm.http.limited_transport import LimitedTransport

    try:
        provider = AsyncLM15Engine(RouterConfig()).resolve(spec).provider
    except LM15Error:
        _known_to_litellm(spec)
        from debate_judge.programs.lm.http.limited_litellm import LimitedLiteLLM

        options = {"api_base": api_base} if api_base else {}
        return RequestEngine(lambda: LimitedLiteLLM(**options))
    prefix = spec.partition("/")[0]
    # Pasted with a line break, it would be no header.
    key = (os.environ.get(key_variable(spec)) or "").strip() or None
    if prefix in COMPATIBLE and (key or api_base or prefix != "openai"):
        from debate_judge.programs.lm.http.chat_completions import OpenAICompatible

        return OpenAICompatible(api_base or COMPATIBLE[prefix], key)

    def native() -> AsyncLM15Engine:
        config = RouterConfig(
            # A local server that wants no key still needs DSPy to be given one.
            api_keys={provider: key or "unused"} if key or api_base else None,
            base_urls={provider: api_base} if api_base else None,
            transport=LimitedTransport(max_connections=concurrency + 2),
        )
        return AsyncLM15Engine(config)

    return RequestEngine(native, cached_apart="anthropic" in provider)


def _known_to_litellm(spec: str) -> None:
    """Refuse at once what no call could reach.

    Raises:
        ValueError: Neither DSPy nor LiteLLM knows the provider.
    """
    import contextlib
    import difflib
    import io

    import litellm

    try:
        # It prints advice of its own.
        with contextlib.redirect_stdout(io.StringIO()):
            litellm.get_llm_provider(spec)
    except litellm.exceptions.BadRequestError:
        prefix = spec.partition("/")[0]
        near = difflib.get_close_matches(prefix, [str(getattr(p, "value", p)) for p in litellm.provider_list], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no provider is called {prefix!r}{hint}") from None


class RequestEngine:
    """Messages in, reply out, by an engine that wants DSPy's requests and gives its responses.

    Args:
        make: Makes the asynchronous engine, once for each event loop.
        cached_apart: Whether its provider leaves cached tokens out of the input tokens, as Anthropic does.
    """

    def __init__(self, make: Callable[[], Any], *, cached_apart: bool = False) -> None:
        self._make = make
        self._cached_apart = cached_apart
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def complete(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        engine = self._engines.get(loop)
        if engine is None:
            engine = self._engines[loop] = self._make()
        response: Response = await engine.complete(request)
        if not (response.message.text or response.usage.output_tokens) and response.finish_reason == "stop":
            # What a gateway says with status 200 when it has failed; such a reply must not be kept.
            raise ServerError("the server's answer has no text and names no tokens")
        return response

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        """Send `messages` once; errors are the engine's."""
        response = await self.complete(request_of(model, messages, settings))
        return reply_of(response, cached_apart=self._cached_apart)

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        for one in (engine, getattr(getattr(engine, "config", None), "transport", None)):
            close = getattr(one, "aclose", None)
            if close is not None:
                await close()


def request_of(model: str, messages: Messages, settings: Mapping[str, Any]) -> Request:
    """DSPy's canonical request."""
    system = next((m["content"] for m in messages if m["role"] == "system"), None)
    turns = tuple(
        Message.user(m["content"]) if m["role"] == "user" else Message.assistant(m["content"])
        for m in messages
        if m["role"] != "system"
    )
    options = {k: v for k, v in settings.items() if v is not None and k != "sample"}
    options["max_tokens"] = options.pop("max_completion_tokens", options.pop("max_tokens", None))
    return Request(model=model, messages=turns, system=system, config=Config(**options))


def reply_of(response: Response, *, cached_apart: bool = False) -> Reply:
    """The part of a response that is kept."""
    usage = response.usage
    cached = usage.cache_read_tokens or 0
    apart = cached + (usage.cache_write_tokens or 0) if cached_apart else 0
    tokens = tuple(
        ((t.token, t.logprob), *((other.token, other.logprob) for other in t.top)) for t in response.logprobs or ()
    )
    counts = ((usage.input_tokens or 0) + apart, usage.output_tokens, cached)
    return sound_reply(response.message.text or "", counts, response.finish_reason, tokens)


def response_of(model: str, reply: Reply) -> Response:
    """A stored reply as DSPy's modules want it."""
    return Response(
        id=None,
        model=model,
        message=Message.assistant(reply.text),
        finish_reason="stop",
        usage=Usage(
            input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, cache_read_tokens=reply.cached_tokens
        ),
    )
