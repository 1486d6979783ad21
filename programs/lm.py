"""From a spec to an LM: `offline`, any OpenAI-compatible endpoint, anything that DSPy or LiteLLM knows.

`JudgeLM` is a `dspy.LM` with one door more, `ask`: an asynchronous call that looks into a store of replies
first, joins identical calls in flight, limits how many run at once, retries in one place and counts what
was really spent. Every role speaks through it; everything else in DSPy sees an ordinary LM.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import dspy
from dspy.clients.errors import error_boundary
from dspy.lm15 import Config, Message, Request, Response, Usage
from dspy._vendor.lm15.serde import request_to_dict

OFFLINE = "offline"
"""The spec of the embedded stand-in that answers by text statistics."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as it is stored: nothing in it identifies a key or an account."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that the provider served from its prefix cache."""
    finish: str = "stop"
    logprobs: Sequence[Sequence[tuple[str, float]]] | None = None
    """Where the call asked for them: for each token, that token and the others that were likely there."""


class ReplyStore(Protocol):
    """Where replies are kept so that no call is paid twice. `runs.journal` keeps them in files."""

    def get(self, key: str) -> Reply | None: ...

    def put(self, key: str, role: str, reply: Reply) -> None: ...


class Memory:
    """A store that lasts as long as the process."""

    def __init__(self) -> None:
        self._replies: dict[str, Reply] = {}

    def get(self, key: str) -> Reply | None:
        return self._replies.get(key)

    def put(self, key: str, role: str, reply: Reply) -> None:
        self._replies[key] = reply


@dataclass
class Meter:
    """What was asked and what was really sent, by role. Replies from the store cost nothing again."""

    asked: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def spend(self, role: str, reply: Reply) -> None:
        self.executed[role] += 1
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens
        self.cached_tokens += reply.cached_tokens


class JudgeLM(dspy.LM):
    """A `dspy.LM` whose debate calls go through `ask`. Make one with `make_lm`.

    Args:
        model: Model string as DSPy knows it.
        engine: Synchronous engine, used by DSPy's own modules (instruction proposers).
        async_engine: Asynchronous engine, used by `ask`; it belongs to one event loop.
        endpoint: Where the calls go, so that two servers with one model name never share replies.
        store: Replies already paid for.
        concurrency: Calls in flight at once.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: Any,
        async_engine: Any,
        endpoint: str = "",
        store: ReplyStore | None = None,
        concurrency: int = 16,
        **kwargs: Any,
    ) -> None:
        # DSPy's own cache stays off: the store of replies does its work, and survives a kill.
        super().__init__(
            model, engine=_StoredEngine(engine, self), async_engine=async_engine, num_retries=3, cache=False, **kwargs
        )
        self.endpoint = endpoint
        self.store: ReplyStore = Memory() if store is None else store
        self.meter = Meter()
        self.concurrency = concurrency
        self._flying: dict[str, asyncio.Future[None]] = {}
        self._gates: dict[int, asyncio.Semaphore] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeLM:
        # Optimizers copy programs together with what they hold; connections and counters are not copied.
        return self

    async def aclose(self) -> None:
        """Close the connections of `ask`; call it on the loop that used them."""
        close = getattr(self._async_engine_spec, "aclose", None)
        if close is not None:
            await close()

    def call_key(self, messages: list[dict[str, Any]], **settings: Any) -> str:
        """Identity of a call: model, endpoint, settings of the LM and of the call, messages; nothing secret."""
        known = {k: v for k, v in {**self.kwargs, **settings}.items() if v is not None}
        digest = hashlib.blake2b(
            json.dumps([self.model, self.endpoint, known], sort_keys=True).encode(), digest_size=16
        )
        for message in messages:
            content = message["content"].encode()
            # The length keeps two messages from running into one another.
            digest.update(f"{message['role']} {len(content)} ".encode())
            digest.update(content)
        return digest.hexdigest()

    async def ask(self, messages: list[dict[str, Any]], role: str, **settings: Any) -> Reply:
        """Return the reply to `messages`, from the store if it was ever given before.

        A reply that was cut off by the limit on its length is asked for once more with four times the limit.

        Args:
            messages: System and user texts.
            role: Who asks, for the count of calls.
            settings: Of this call only, e.g. `temperature`; a `sample` number asks for one more sample.

        Raises:
            dspy.LMError: The call failed for good; retries are over.
        """
        reply = await self._ask(messages, role, settings)
        limit = {**self.kwargs, **settings}.get("max_tokens")
        if reply.finish == "length" and limit:
            reply = await self._ask(messages, role, {**settings, "max_tokens": 4 * limit})
        return reply

    async def _ask(self, messages: list[dict[str, Any]], role: str, settings: dict[str, Any]) -> Reply:
        self.meter.asked[role] += 1
        key = self.call_key(messages, **settings)
        while (stored := self.store.get(key)) is None and key in self._flying:
            # Somebody is asking the very same; if that fails or is cancelled, this caller asks in turn.
            await asyncio.wait((self._flying[key],))
        if stored is not None:
            return stored
        landed = asyncio.get_running_loop().create_future()
        self._flying[key] = landed
        try:
            async with self._gate():
                reply = await self._attempts(messages, {**self.kwargs, **settings})
            self.store.put(key, role, reply)
            self.meter.spend(role, reply)
            return reply
        finally:
            del self._flying[key]
            landed.set_result(None)

    def _gate(self) -> asyncio.Semaphore:
        loop = id(asyncio.get_running_loop())
        return self._gates.setdefault(loop, asyncio.Semaphore(self.concurrency))

    async def _attempts(self, messages: list[dict[str, Any]], settings: dict[str, Any]) -> Reply:
        for attempt in range(self.num_retries + 1):
            try:
                with error_boundary(self.model, unexpected=True):
                    return await self._send(messages, settings)
            except dspy.LMError as error:
                if attempt == self.num_retries or not dspy.is_retryable_lm_error(error):
                    raise
                # Jitter keeps callers that failed together from coming back together; no result depends on it.
                wait = getattr(error, "retry_after", None) or min(2.0**attempt, 30.0) * random.uniform(0.5, 1.5)
                await asyncio.sleep(min(wait, 60.0))
        raise AssertionError("unreachable")

    async def _send(self, messages: list[dict[str, Any]], settings: dict[str, Any]) -> Reply:
        chat = getattr(self._async_engine_spec, "chat", None)
        if chat is not None:
            # An engine of this project takes messages as they are; DSPy's request objects would cost more
            # than the rest of the call.
            return await chat(self.model, messages, settings)
        return reply_of(await self._async_engine_spec.complete(_request(self.model, messages, settings)))


def _request(model: str, messages: list[dict[str, Any]], settings: dict[str, Any]) -> Request:
    """DSPy's canonical request for the engines that want one."""
    system = next((m["content"] for m in messages if m["role"] == "system"), None)
    turns = tuple(
        Message.user(m["content"]) if m["role"] == "user" else Message.assistant(m["content"])
        for m in messages
        if m["role"] != "system"
    )
    options = {k: v for k, v in settings.items() if v is not None and k != "sample"}
    options["max_tokens"] = options.pop("max_completion_tokens", options.pop("max_tokens", None))
    return Request(model=model, messages=turns, system=system, config=Config(**options))


class _StoredEngine:
    """The engine that DSPy's own modules call (instruction proposers), with the same store and meter.

    Equal requests are meant as new samples there, so the n-th one of a process has its own key; a run that
    is repeated asks in the same order and finds each of them again.
    """

    def __init__(self, engine: Any, lm: JudgeLM) -> None:
        self._engine = engine
        self._lm = lm
        self._asked: Counter[str] = Counter()

    def complete(self, request: Request) -> Response:
        lm = self._lm
        lm.meter.asked["proposer"] += 1
        text = json.dumps([lm.endpoint, request_to_dict(request)], sort_keys=True, ensure_ascii=False)
        first = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._asked[first] += 1
        key = hashlib.blake2b(f"{first} {self._asked[first]}".encode(), digest_size=16).hexdigest()
        stored = lm.store.get(key)
        if stored is None:
            stored = reply_of(self._engine.complete(request))
            lm.store.put(key, "proposer", stored)
            lm.meter.spend("proposer", stored)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(stored.text),
            finish_reason="stop",
            usage=Usage(input_tokens=stored.input_tokens, output_tokens=stored.output_tokens),
        )


def reply_of(response: Response) -> Reply:
    """The part of a response that is kept."""
    usage = response.usage
    return Reply(
        response.message.text or "",
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        usage.cache_read_tokens or 0,
        response.finish_reason,
        tuple(
            ((t.token, t.logprob), *((other.token, other.logprob) for other in t.top)) for t in response.logprobs or ()
        )
        or None,
    )


def make_lm(
    spec: str,
    *,
    api_base: str | None = None,
    store: ReplyStore | None = None,
    concurrency: int = 16,
    temperature: float | None = 0.0,
    max_tokens: int | None = 2000,
) -> JudgeLM:
    """Make the LM that `spec` names. Keys come from the environment only.

    Args:
        spec: `offline`, or PROVIDER/MODEL such as `openai/gpt-4o-mini` or `anthropic/claude-sonnet-4-5`.
        api_base: Address of an OpenAI-compatible server for that provider name.
        store: Replies already paid for; in memory by default.
        concurrency: Calls in flight at once.
        temperature: Sampling temperature; 0 as in DEBATE, appendix E.1. Reasoning models get none.
        max_tokens: Ceiling of a reply, in tokens. Reasoning models get none.

    Raises:
        ValueError: The spec is not `offline` and has no provider prefix.
        dspy.LMError: The provider is unknown, or its key is missing.
    """
    if spec == OFFLINE:
        from programs import offline

        return JudgeLM(
            offline.MODEL,
            engine=offline.OfflineEngine(),
            async_engine=offline.AsyncOfflineEngine(),
            store=store,
            concurrency=concurrency,
        )
    if "/" not in spec:
        raise ValueError(f"{spec!r} is not an LM: give 'offline' or PROVIDER/MODEL, e.g. openai/gpt-4o-mini")
    from dspy.clients.lm import _is_openai_reasoning_model

    if _is_openai_reasoning_model(spec):
        temperature = max_tokens = None
    engine, async_engine = _engines(spec, api_base, concurrency)
    return JudgeLM(
        spec,
        engine=engine,
        async_engine=async_engine,
        endpoint=_without_credentials(api_base or ""),
        store=store,
        concurrency=concurrency,
        temperature=temperature,
        max_tokens=max_tokens,
    )


_COMPATIBLE = {"openai": "https://api.openai.com/v1", "hosted_vllm": "http://localhost:8000/v1"}
"""Provider prefixes that speak OpenAI's chat protocol, with their usual address."""


def _engines(spec: str, api_base: str | None, concurrency: int) -> tuple[Any, Any]:
    """Our own HTTP engine where the protocol is OpenAI's; DSPy's native engines, then LiteLLM, elsewhere."""
    from dspy.clients.engines import AsyncLiteLLMEngine, AsyncLM15Engine, LiteLLMEngine, LM15Engine
    from dspy.lm15 import LM15Error, RouterConfig

    try:
        provider = LM15Engine(RouterConfig()).resolve(spec).provider
    except LM15Error:
        options = {"api_base": api_base} if api_base else {}
        return LiteLLMEngine(model_type="chat", **options), AsyncLiteLLMEngine(model_type="chat", **options)
    prefix = spec.partition("/")[0]
    key = os.environ.get(f"{prefix.upper()}_API_KEY")
    # A local server that wants no key still needs DSPy to be given one.
    config = RouterConfig(
        api_keys={provider: key or "unused"} if key or api_base else None,
        base_urls={provider: api_base} if api_base else None,
        max_connections=concurrency + 2,
    )
    if prefix in _COMPATIBLE and (key or api_base or prefix != "openai"):
        from programs.http_engine import OpenAICompatible

        address = api_base or os.environ.get(f"{prefix.upper()}_API_BASE") or _COMPATIBLE[prefix]
        return LM15Engine(config), OpenAICompatible(address, key, connections=concurrency + 2)
    return LM15Engine(config), AsyncLM15Engine(config)


def _without_credentials(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path
