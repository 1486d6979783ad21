"""From a spec to an LM: `offline`, any OpenAI-compatible endpoint, anything that DSPy or LiteLLM knows.

`JudgeLM` is a `dspy.LM` with one door more, `ask`: an asynchronous call that looks into a store of replies
first, joins identical calls in flight, and leaves pace, retries and budget to `programs.calling`. Every role
speaks through it; everything else in DSPy sees an ordinary LM.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dspy

from data.errors import InputError
from programs import pilots
from programs.batch_setup import line_for, require_batchable
from programs.calling import Caller
from programs.calls import Memory, Messages, Reply, ReplyStore
from programs.engines import (
    AsyncStoredEngine,
    RequestEngine,
    StoredEngine,
    address_of,
    engines_for,
    without_credentials,
)
from programs.http_engine import OpenAICompatible
from programs.lm_options import LMOptions
from programs.meter import Meter
from programs.paces import usual_pace
from programs.prices import Price, price_of

if TYPE_CHECKING:
    from programs.batch_line import BatchLine

__all__ = ["OFFLINE", "JudgeLM", "LMOptions", "Memory", "Meter", "Reply", "ReplyStore", "make_lm"]

OFFLINE = "offline"
"""The spec of the embedded stand-in that answers by text statistics."""


class JudgeLM(dspy.LM):
    """A `dspy.LM` whose debate calls go through `ask`. Make one with `make_lm`.

    Args:
        model: Model string as DSPy knows it.
        engine: Synchronous engine, used by DSPy's own modules (instruction proposers).
        async_engine: Asynchronous engine, used by `ask`; it belongs to one event loop.
        endpoint: Where the calls go, so that two servers with one model name never share replies.
        store: Replies already paid for.
        concurrency: Most calls in flight.
        options: Pace, retries, budget.
        price: Of the model, where it is known.
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
        options: LMOptions | None = None,
        price: Price | None = None,
        **kwargs: Any,
    ) -> None:
        self.endpoint = endpoint
        self.store: ReplyStore = Memory() if store is None else store
        self.meter = Meter()
        self.price = price
        self.concurrency = concurrency
        self.caller = Caller(model, concurrency, options or LMOptions(), price, self._control)
        self._line = async_engine if hasattr(async_engine, "chat") else RequestEngine(async_engine)
        if isinstance(self._line, OpenAICompatible):
            self._line.told = self.caller.told
        self.batches: BatchLine | None = None
        """Where calls go out in batch jobs, the way that `ask` takes."""
        self._flying: dict[str, asyncio.Future[None]] = {}
        self.pilots: bool = getattr(async_engine, "caches_prefixes", True)
        """Whether calls that do not go out in batches wait for the first about their source (`programs.pilots`)."""
        # DSPy's own cache and retries stay off: the store and the caller do their work.
        super().__init__(
            model,
            engine=StoredEngine(engine, self),
            async_engine=AsyncStoredEngine(async_engine, self),
            num_retries=0,
            cache=False,
            **kwargs,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeLM:
        # Optimizers copy programs together with what they hold; connections and counters are not copied.
        return self

    async def aclose(self) -> None:
        """Close the connections of `ask`; call it on the loop that used them."""
        if self.batches is not None:
            await self.batches.aclose()
        close = getattr(self._line, "aclose", None)
        if close is not None:
            await close()

    def call_key(self, messages: Messages, **settings: Any) -> str:
        """Identity of a call: model, endpoint, settings of the LM and of the call, messages; nothing secret."""
        return self._key(messages, {**self.kwargs, **settings})[0]

    def kept(self, messages: Messages, **settings: Any) -> tuple[str, Reply] | None:
        """Key and reply of a call that `ask` has made; None if the store does not have them any more."""
        merged = {**self.kwargs, **settings}
        key = self._key(messages, merged)[0]
        reply = self.store.get(key)
        if reply is not None and reply.finish == "length" and merged.get("max_tokens"):
            longer = self._key(messages, {**merged, "max_tokens": 4 * merged["max_tokens"]})[0]
            key, reply = longer, self.store.get(longer)
        return None if reply is None else (key, reply)

    def _key(self, messages: Messages, settings: dict[str, Any]) -> tuple[str, int]:
        """The key of a call, and the size of its texts in bytes."""
        known = {k: v for k, v in settings.items() if v is not None}
        digest = hashlib.blake2b(
            json.dumps([self.model, self.endpoint, known], sort_keys=True).encode(), digest_size=16
        )
        size = 0
        for message in messages:
            content = message["content"].encode()
            size += len(content)
            # The length keeps two messages from running into one another.
            digest.update(f"{message['role']} {len(content)} ".encode())
            digest.update(content)
        return digest.hexdigest(), size

    async def ask(self, messages: Messages, role: str, **settings: Any) -> Reply:
        """Return the reply to `messages`, from the store if it was ever given before.

        A reply that was cut off by the limit on its length is asked for once more with four times the limit.

        Args:
            messages: System and user texts.
            role: Who asks, for the count of calls.
            settings: Of this call only, e.g. `temperature`; a `sample` number asks for one more sample.

        Raises:
            dspy.LMError: The call failed for good; `programs.failures.fatal` tells whether all others would too.
        """
        merged = {**self.kwargs, **settings} if settings else self.kwargs
        reply = await self._ask(messages, role, merged)
        limit = merged.get("max_tokens")
        if reply.finish == "length" and limit:
            reply = await self._ask(messages, role, {**merged, "max_tokens": 4 * limit})
        return reply

    async def _ask(self, messages: Messages, role: str, settings: dict[str, Any]) -> Reply:
        self.meter.ask(role)
        key, size = self._key(messages, settings)
        while (stored := self.store.get(key)) is None and key in self._flying:
            # Somebody is asking the very same; if that fails or is cancelled, this caller asks in turn.
            await asyncio.wait((self._flying[key],))
        if stored is not None:
            self.meter.recall(role, stored, batch=self.batches is not None)
            return stored

        landed = asyncio.get_running_loop().create_future()
        self._flying[key] = landed
        try:
            if self.batches is not None:
                way = partial(self.batches.chat, key, role, messages, settings)
                reply = await self.caller.call_in_batch(way, size, settings.get("max_tokens"))
                # It is in the store already, with all that came in the same job.
                self.meter.spend(role, reply, batch=True)
                return reply
            async with pilots.turn(messages, self.caller.limiter.full) as over:

                async def send() -> Reply:
                    try:
                        reply: Reply = await self._line.chat(self.model, messages, settings)
                        return reply
                    finally:
                        over()

                reply = await self.caller.call(send, size, settings.get("max_tokens"))
            self.keep(key, role, reply)
            if self.caller.limiter.crowded:
                # Replies come in bursts: those who wait for the places that became free go out first, all of them,
                # and only then is what came with them read and thought about.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return reply
        finally:
            del self._flying[key]
            landed.set_result(None)

    async def _control(self) -> Reply:
        """A call that any model can answer, sent when calls fail and it is in doubt who is to blame."""
        self.meter.ask("control")
        # Numbered, so that no two answers are answers to the same call.
        text = f"Reply with OK. ({self.meter.executed['control'] + 1})"
        reply: Reply = await self._line.chat(self.model, [{"role": "user", "content": text}], self.kwargs)
        self.meter.spend("control", reply)
        return reply

    def keep(self, key: str, role: str, reply: Reply) -> None:
        """Store and count a reply that has just been given."""
        self.store.put(key, role, reply)
        self.meter.spend(role, reply)


def make_lm(
    spec: str,
    *,
    api_base: str | None = None,
    store: ReplyStore | None = None,
    concurrency: int = 16,
    temperature: float | None = 0.0,
    max_tokens: int | None = 2000,
    options: LMOptions | None = None,
    engines: tuple[Any, Any] | None = None,
) -> JudgeLM:
    """Make the LM that `spec` names. Keys come from the environment only.

    Args:
        spec: `offline`, or PROVIDER/MODEL such as `openai/gpt-4o-mini` or `anthropic/claude-sonnet-4-5`.
        api_base: Address of an OpenAI-compatible server for that provider name.
        store: Replies already paid for; in memory by default.
        concurrency: Most calls in flight.
        temperature: Sampling temperature; 0 as in DEBATE, appendix E.1. Reasoning models get none.
        max_tokens: Ceiling of a reply, in tokens. Reasoning models get none.
        options: Pace, retries, budget, prices.
        engines: A synchronous and an asynchronous one that stand in for the spec's own. Calls keep their identity,
            so the store's replies are found; neither network nor key is needed.

    Raises:
        ValueError: The spec is not `offline` and has no provider prefix.
        data.errors.InputError: A budget in money was given, but no price is known; or the prices are unreadable, or
            the address is none.
        dspy.LMError: The provider is unknown, or its key is missing.
    """
    options = options or LMOptions()
    api_base = address_of(api_base)
    if options.batch is not None:
        require_batchable(spec)
    if spec == OFFLINE:
        return _offline(engines, store, concurrency, options)
    if "/" not in spec:
        raise ValueError(f"{spec!r} is not an LM: give 'offline' or PROVIDER/MODEL, e.g. openai/gpt-4o-mini")
    from dspy.clients.lm import _is_openai_reasoning_model

    if _is_openai_reasoning_model(spec):
        temperature = max_tokens = None
    options = replace(options, usual=usual_pace(spec, api_base))
    price = _price(spec, api_base, options)
    engine, async_engine = engines or engines_for(spec, api_base, concurrency)
    lm = JudgeLM(
        spec,
        engine=engine,
        async_engine=async_engine,
        endpoint=without_credentials(api_base or ""),
        store=store,
        concurrency=concurrency,
        options=options,
        price=price,
        temperature=temperature,
        max_tokens=max_tokens,
    )
    if engines is None:
        lm.batches = line_for(spec, api_base, options, lm.store, lm.meter)
    return lm


def _offline(
    engines: tuple[Any, Any] | None, store: ReplyStore | None, concurrency: int, options: LMOptions
) -> JudgeLM:
    from programs import offline

    engine, async_engine = engines or (offline.OfflineEngine(), offline.AsyncOfflineEngine())
    common: dict[str, Any] = {"store": store, "concurrency": concurrency, "options": options}
    return JudgeLM(offline.MODEL, engine=engine, async_engine=async_engine, price=Price(0.0, 0.0, 0.0), **common)


def _price(spec: str, api_base: str | None, options: LMOptions) -> Price | None:
    price = price_of(spec, options.prices, listed=api_base is None)
    if price is None and options.budget.usd is not None:
        raise InputError(
            f"nobody has said what {spec} costs",
            field="--budget",
            expected="a budget in calls or tokens, or a price",
            found=f"usd={options.budget.usd:g}",
            remedy="give --prices FILE with a section for this model, or cap calls or tokens",
        )
    return price
