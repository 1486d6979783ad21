"""The LM that all roles ask, with its store of replies, its limits and its count of calls.

`JudgeLM` is a `dspy.LM` with one more method, `ask`: an asynchronous call that looks into a store of replies
first, joins identical calls in flight, and leaves pace, retries and budget to `programs.lm.limits.caller`. Every role
speaks through it; everything else in DSPy sees an ordinary LM.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import dspy

from debate_judge.programs.lm.address import destination
from debate_judge.programs.lm.engines import RequestEngine
from debate_judge.programs.lm.http.chat_completions import OpenAICompatible
from debate_judge.programs.lm.limits import prefix_warmup
from debate_judge.programs.lm.limits.caller import Caller
from debate_judge.programs.lm.limits.sync_calls import SyncCalls
from debate_judge.programs.lm.local_engine import LocalEngine
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Memory, Messages, Reply, ReplyStore, SharedStore
from debate_judge.programs.lm.sharing.claims import CallClaim
from debate_judge.programs.lm.stored_engine import AwaitedEngine, StoredEngine
from debate_judge.programs.lm.usage import Meter

if TYPE_CHECKING:
    from debate_judge.programs.lm.batch.dispatcher import BatchDispatcher


class JudgeLM(dspy.LM):
    """A `dspy.LM` whose debate calls go through `ask`. Make one with `make_lm`.

    Args:
        model: Model string as DSPy knows it.
        engine: Makes one attempt at a call, asynchronously; has `complete` for DSPy's requests, perhaps `chat` as well.
        endpoint: Where the calls go, so that two servers with one model name never share replies.
        store: Replies already paid for.
        concurrency: Most calls in flight.
        options: Pace, retries, budget.
        price: Of the model, where it is known.
        batches: From the store and the meter to what sends calls in batch jobs, if that is wanted.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: Any,
        endpoint: str = "",
        store: ReplyStore | None = None,
        concurrency: int = 16,
        options: LMOptions | None = None,
        price: Price | None = None,
        batches: Callable[[ReplyStore, Meter], BatchDispatcher | None] = lambda store, meter: None,
        **kwargs: Any,
    ) -> None:
        self.endpoint = endpoint
        self._asked_at = endpoint
        """As it goes into the identity of a call."""
        self.store: ReplyStore = Memory() if store is None else store
        # What is computed in this process costs less than a look at what others do.
        shared = isinstance(self.store, SharedStore) and not isinstance(engine, LocalEngine)
        self._shared = cast(SharedStore, self.store) if shared else None
        self.meter = Meter()
        self.price = price
        self.context: int | None = None
        """Tokens that a prompt may have, where it is known."""
        self.concurrency = concurrency
        limit = kwargs.get("max_tokens")
        self.caller = Caller(model, concurrency, options or LMOptions(), price, self._control, control_tokens=limit)
        self._line = engine if hasattr(engine, "chat") else RequestEngine(lambda: engine)
        if isinstance(self._line, OpenAICompatible):
            self._line.on_rate_limits = self.caller.on_rate_limits
        self.sync_calls = SyncCalls()
        """How DSPy's synchronous modules get onto the loop of all other calls."""
        self._seconds: list[JudgeLM] = []
        self.batches = batches(self.store, self.meter)
        """Where calls go out in batch jobs, the way that `ask` takes."""
        self._flying: dict[str, asyncio.Future[None]] = {}
        self.prefix_warmup: bool = getattr(engine, "caches_prefixes", True)
        """Whether calls outside batches wait for the first about their source (`programs.lm.limits.prefix_warmup`)."""
        # DSPy's own cache and retries stay off: the store and the caller do their work.
        self._awaited = AwaitedEngine(engine, self)
        super().__init__(
            model,
            engine=StoredEngine(self._awaited, self),
            async_engine=self._awaited,
            num_retries=0,
            cache=False,
            **kwargs,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeLM:
        # Optimizers copy programs together with what they hold; connections and counters are not copied.
        return self

    @property
    def destination(self) -> str | None:
        """Where the calls go, for people; None where nothing leaves the process."""
        return None if isinstance(self._line, LocalEngine) else destination(self.model, self.endpoint)

    def beside(self, first: JudgeLM, role: str) -> JudgeLM:
        """Make this LM, before its first call, a second one of the run of `first`: they share counts and budget.

        Args:
            first: The LM of the run.
            role: What the counts call the calls of DSPy's own modules to this one.
        """
        self.meter = first.meter
        self.meter.prices[role] = self.price
        self.caller.share_budget(first.caller, self.price)
        self._awaited.role = role
        self.sync_calls = first.sync_calls
        first._seconds.append(self)
        return self

    def without_batches(self) -> JudgeLM:
        """The same LM, with the same store, counts and limits, whose calls go out at once and in no batch job."""
        one = copy.copy(self)
        one.batches = None
        return one

    def another_sample(self, number: int, temperature: float) -> JudgeLM:
        """The same LM, limiter, budget and store, whose calls are not those of any other number.

        The number goes into the identity of the calls and not into the calls; an LM without a temperature (reasoning
        models, the offline LM) is given none.
        """
        one = copy.copy(self)
        # Not the setting `sample`: a judge that samples by itself uses it, and its samples would be the same each time.
        one._asked_at = f"{self._asked_at} repeat {number}"
        if self.kwargs.get("temperature") is not None:
            one.kwargs = {**self.kwargs, "temperature": temperature}
        return one

    async def aclose(self) -> None:
        """Close the connections of the running loop, those of the LMs beside this one included."""
        for one in (self, *self._seconds):
            if one.batches is not None:
                await one.batches.aclose()
            await one.close_connections()

    async def close_connections(self) -> None:
        """Close the connections of the running loop, but for those of batch jobs."""
        close = getattr(self._line, "aclose", None)
        if close is not None:
            await close()

    def call_key(self, messages: Messages, **settings: Any) -> str:
        """Identity of a call: model, endpoint, settings of the LM and of the call, messages; nothing secret."""
        return self._key(messages, {**self.kwargs, **settings})[0]

    def kept(self, messages: Messages, **settings: Any) -> tuple[str, Reply] | None:
        """Key and reply of a call that `ask` has made; None if the store does not have them any more."""
        key = self.call_key(messages, **settings)
        reply = self.store.get(key)
        limit = {**self.kwargs, **settings}.get("max_tokens")
        if reply is not None and reply.finish == "length" and limit:
            key = self.call_key(messages, **{**settings, "max_tokens": 4 * limit})
            reply = self.store.get(key)
        return None if reply is None else (key, reply)

    def _key(self, messages: Messages, settings: dict[str, Any]) -> tuple[str, int]:
        """The key of a call, and the size of its texts in bytes."""
        known = {k: v for k, v in settings.items() if v is not None}
        digest = hashlib.blake2b(
            json.dumps([self.model, self._asked_at, known], sort_keys=True).encode(), digest_size=16
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
            dspy.LMError: The call failed for good; `programs.lm.errors.fatal` tells whether all others would too.
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
            # The same call is in flight for another caller; if it fails or is cancelled, this caller makes it.
            await asyncio.wait((self._flying[key],))
        if stored is not None:
            self.meter.hit(role, stored, batch=self.batches is not None)
            return stored

        landed = self._flying[key] = asyncio.get_running_loop().create_future()
        claim = self.new_claim(key)

        def over() -> None:
            del self._flying[key]
            landed.set_result(None)
            claim.release()

        handed_on = False
        try:
            if (found := await claim.fetch()) is not None:
                self.meter.hit(role, found, batch=self.batches is not None)
                return found
            if self.batches is not None:
                way = partial(self.batches.chat, key, role, messages, settings)
                reply = await self.caller.call_in_batch(way, size, settings.get("max_tokens"))
                # It is in the store already, with all that came in the same job.
                self.meter.spend(role, reply, batch=True)
                return reply
            async with prefix_warmup.turn(messages, self.caller.limiter.full) as led:

                async def send() -> Reply:
                    try:
                        reply: Reply = await self._line.chat(self.model, messages, settings)
                        return reply
                    finally:
                        led()

                handed_on = True
                keep = partial(self.keep, key, role)
                reply = await self.caller.call(send, size, settings.get("max_tokens"), keep, over, claim=claim)
            if claim.found is not None:
                self.meter.hit(role, reply)
                return reply
        finally:
            # If it is cancelled, its request may still bring the reply; until then no one else makes the call.
            if not handed_on:
                over()
        if self.caller.limiter.crowded:
            # Replies come in bursts: those who wait for the places that became free go out first, all of them,
            # and only then is what came with them read and thought about.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return reply

    def new_claim(self, key: str) -> CallClaim:
        """The claim of a call, for this process to make it while no other does."""
        return CallClaim(self._shared, key)

    async def once(self, key: str, role: str, find: Callable[[], Awaitable[Reply]]) -> Reply:
        """What is stored under `key`, or what `find` returns: called once for all that ask, in other processes too."""
        while (stored := self.store.get(key)) is None and key in self._flying:
            await asyncio.wait((self._flying[key],))
        if stored is not None:
            return stored
        landed = self._flying[key] = asyncio.get_running_loop().create_future()
        claim = CallClaim(self.store if isinstance(self.store, SharedStore) else None, key)
        try:
            if await claim.fetch() is None:
                await claim.wait()
            if (found := claim.found) is None:
                found = await find()
                self.store.put(key, role, found)
            return found
        finally:
            del self._flying[key]
            landed.set_result(None)
            claim.release()

    async def _control(self) -> Reply:
        """A call that any model can answer, sent when calls fail and it is in doubt who is to blame."""
        self.meter.ask("control")
        # No two answers are answers to the same call, in this run or another: a gateway may keep what it answered.
        text = f"Reply with OK. ({uuid.uuid4().hex[:12]})"
        reply: Reply = await self._line.chat(self.model, [{"role": "user", "content": text}], self.kwargs)
        self.meter.spend("control", reply)
        return reply

    def keep(self, key: str, role: str, reply: Reply) -> None:
        """Store and count a reply that has just been given."""
        self.store.put(key, role, reply)
        self.meter.spend(role, reply)
