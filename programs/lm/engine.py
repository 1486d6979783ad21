"""The one path of a call: a request of DSPy's in, its recorded response out.

Look the call up in the store, else take a place from the limiter, reserve the budget, ask with retries, store the
reply, return it. Identical calls in flight are made once, in this process and (but for batch jobs) in all that share
the store. A call whose caller is cancelled while a request is out goes on: the answer is paid for, so it is kept.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from dspy import lm15
from dspy.lm15 import Config, Message, Request, Response, TokenLogprob, TopLogprob, Usage

from debate_judge.programs.lm import loop
from debate_judge.programs.lm.errors import BROKEN, NOT_LISTENING, STRAY, clean_error, concerns_all_calls, retryable
from debate_judge.programs.lm.limits.failures import OVERLOADED, OutageWatch, RetryWait
from debate_judge.programs.lm.limits.limiter import Budget, Limiter, PrefixWarmup, TokenEstimator, TokenNeed
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Messages, Reply, ReplyStore, reply_or_claim
from debate_judge.programs.lm.usage import CALL_TAG, CallTag, Meter

if TYPE_CHECKING:
    from debate_judge.programs.lm.batch.engine import BatchEngine

_SETTINGS = ("temperature", "max_tokens", "top_p", "seed", "logprobs")
"""The settings of a request that are sent."""
_SORTED = json.JSONEncoder(sort_keys=True)
_HASHED = 2047
"""Bytes. For more, hashlib lets another thread run, and to get its turn again takes longer than the hash."""


class Transport(Protocol):
    """Makes one attempt at a call. `LocalEngine` is one that answers inside the process."""

    async def chat(self, model: str, messages: Messages, settings: dict[str, Any]) -> Reply:
        """Send `messages` once; raises the errors of `dspy.lm15`."""
        ...

    async def aclose(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Call:
    """A call on its way."""

    key: str
    tag: CallTag
    messages: Messages = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    """UTF-8 bytes of its texts."""
    task: asyncio.Task[Reply] = field(init=False)
    wanted: bool = True
    """Whether its caller still waits."""
    claimed: bool = False
    place: TokenNeed | None = None
    """What it keeps its place with while it waits after a refusal for being too fast."""
    recalled: bool = False
    """Whether its reply came from the store."""
    out: bool = False
    """Whether a request is out. Its answer is paid for, so it is awaited even if the caller is gone."""
    attempts: int = 0
    failures: int = 0
    """Attempts that failed; refusals for being too fast count only while no other call is answered."""
    spent: float = 0.0
    """Seconds of its attempts and pauses; waiting for a place is not counted."""
    answers: int = 0
    """Answers to all calls at its latest failure."""
    alone: bool = True
    """Whether no call at all was answered between its last two failures."""


class RecordedEngine:
    """DSPy's asynchronous engine of a `JudgeLM`. Its work is done on the loop of all LM traffic (`programs.lm.loop`).

    Args:
        model: PROVIDER/MODEL.
        endpoint: Where the calls go, as it enters their keys.
        transport: Makes one attempt at a call.
        store: Of replies.
        concurrency: Most calls in flight.
        options: Limits, waits, budget.
        price: Needed for a budget in money.
        warmup: Whether the first call about a source goes ahead.
    """

    def __init__(
        self, model: str, endpoint: str, transport: Transport, store: ReplyStore, *, concurrency: int,
        options: LMOptions, price: Price | None, warmup: bool,
    ) -> None:  # fmt: skip
        self.model, self.endpoint, self.transport, self.store = model, endpoint, transport, store
        self.meter = Meter()
        self.role = CallTag().role
        """What the accounts call calls without a tag."""
        self.defaults: dict[str, Any] = {}
        """Settings of a probe."""
        self.batches: BatchEngine | None = None
        """Where calls go in batch jobs, if that is wanted."""
        self._concurrency, self._options, self._warmup = concurrency, options, PrefixWarmup() if warmup else None
        self._budget = Budget(options.budget, price) if options.budget else None
        self._estimator = TokenEstimator()
        self._wait = RetryWait(options.first_wait, options.longest_wait)
        self._equal = Counter[str]()
        self._begin()

    def _begin(self) -> None:
        """Start with nothing in flight."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flying: dict[str, _Call] = {}
        self.limiter = Limiter(self._concurrency, self._options, self._budget)
        self._ahead = asyncio.Semaphore(max(1, self._concurrency // 8))
        """Of calls that are claimed before they have a place."""
        self._batch_gate = Limiter(sys.maxsize, LMOptions(), self._budget)
        self._outages = OutageWatch(self.model, self._options, self.probe)

    def share(self, other: RecordedEngine, role: str, price: Price | None) -> None:
        """From before the first call on, count in the meter of `other` as `role`, and take its budget, at `price`."""
        self.meter, self.role = other.meter, role
        self._budget = None if other._budget is None else other._budget.shared(price)
        self._begin()

    def variant(self, **attributes: Any) -> RecordedEngine:
        """The same engine with other attributes; store, limits, budget and connections are shared."""
        copied = copy.copy(self)
        vars(copied).update(attributes)
        return copied

    async def complete(self, request: Request) -> Response:
        """The response to a request, from the store if it was ever given before.

        A reply that was cut off by the limit on its length is asked for once more with four times the limit.

        Raises:
            dspy.lm15.LM15Error: The call failed for good.
            dspy.LMError: The provider is down, or the budget is spent.
        """
        return await loop.on_loop(self._complete(request))

    async def _complete(self, request: Request) -> Response:
        key, reply = await self._reply(request)
        limit = request.config.max_tokens
        if reply.finish == "length" and limit:
            key, reply = await self._reply(replace(request, config=replace(request.config, max_tokens=4 * limit)))
        return response_of(request.model, key, reply)

    async def _reply(self, request: Request) -> tuple[str, Reply]:
        messages, settings = messages_of(request), settings_of(request)
        if (tag := CALL_TAG.get()) is None:
            tag, key = CallTag(self.role), self._next_key(request)
        else:
            key = key_of(self.model, self.endpoint, messages, {**settings, "sample": tag.sample})
        size = sum(len(message["content"].encode()) for message in messages)
        call = _Call(key, tag, messages, settings, size)
        self.meter.ask(tag.role)
        reply = await self._once(call, self._make if self.batches is None else self._make_in_batch)
        if call.recalled:
            self.meter.hit(tag.role, reply, round=tag.round, batch=self.batches is not None)
        return key, reply

    def _next_key(self, request: Request) -> str:
        # The n-th of equal requests is the n-th one of any process that asks in the same order.
        first = untagged_key(self.endpoint, request, 0)
        self._equal[first] += 1
        return untagged_key(self.endpoint, request, self._equal[first])

    async def once(self, key: str, role: str, find: Callable[[], Awaitable[Reply]]) -> Reply:
        """As `JudgeLM.once`."""

        async def make(call: _Call) -> Reply:
            if (reply := await self._reply_or_claim(call)) is None:
                reply = await find()
                await self._keep(call, reply)
            return reply

        return await loop.on_loop(self._once(_Call(key, CallTag(role)), make))

    async def _once(self, call: _Call, make: Callable[[_Call], Awaitable[Reply]]) -> Reply:
        """The stored reply, or what `make` brings, which is called once for all that ask at the same time."""
        running = asyncio.get_running_loop()
        if self._loop not in (None, running):
            # A process was forked, and what was in flight belongs to its parent.
            self._begin()
        self._loop = running
        while True:
            if (reply := await self.store.get(call.key)) is not None:
                call.recalled = True
                return reply
            if (flying := self._flying.get(call.key)) is None:
                break
            # If it fails or is cancelled, this caller makes the call.
            await asyncio.wait((flying.task,))
        self._flying[call.key] = call
        call.task = asyncio.create_task(self._released(call, make))
        call.task.add_done_callback(lambda task: self._landed(call, task))
        try:
            return await asyncio.shield(call.task)
        except asyncio.CancelledError:
            call.wanted = False
            if not call.out:
                call.task.cancel()
            raise

    async def _released(self, call: _Call, make: Callable[[_Call], Awaitable[Reply]]) -> Reply:
        try:
            return await make(call)
        finally:
            if call.claimed:
                await self.store.release(call.key)

    def _landed(self, call: _Call, task: asyncio.Task[Reply]) -> None:
        del self._flying[call.key]
        if not task.cancelled():
            # The failure of a request that no call waits for interests nobody; asyncio would print it.
            task.exception()

    async def _make(self, call: _Call) -> Reply:
        """Make a call again and again until it is answered or has failed for good."""
        tries = 0
        try:
            while True:
                try:
                    return await self._attempt(call)
                except Exception as error:
                    if not retryable(error):
                        raise
                    tries += 1
                    pause = self._wait.seconds(error, tries)
                    if self._gives_up(call, error):
                        self._leave(call)
                        if call.wanted and call.alone and await self._outages.was_down():
                            # It starts over.
                            tries, pause, call.spent = 0, 0.0, 0.0
                        elif not self._is_rate_limited(call, error):
                            raise
                        call.failures = 0
                call.spent += pause
                await asyncio.sleep(pause)
        finally:
            self._leave(call)

    def _leave(self, call: _Call, *, pass_on: bool = True) -> None:
        """Give back the place of a call, if it has one."""
        if call.place is not None:
            self.limiter.release(call.place, pass_on=pass_on)
            call.place = None

    def _gives_up(self, call: _Call, error: Exception) -> bool:
        options = self._options
        absent = getattr(error, "provider_code", None) == NOT_LISTENING and not self._outages.answers
        return absent or not call.wanted or call.failures > options.retries or call.spent >= options.deadline

    def _is_rate_limited(self, call: _Call, error: Exception) -> bool:
        """Whether a provider that answers others has refused a call for its pace, which is no failure of its own."""
        in_time = call.spent < self._options.deadline
        return getattr(error, "status", None) == 429 and call.wanted and in_time

    async def _attempt(self, call: _Call) -> Reply:
        """Wait for a turn, a place and the claim, send once, and keep the reply."""
        turn: AbstractAsyncContextManager[None] = nullcontext()
        if self._warmup is not None and not call.attempts:
            turn = self._warmup.turn(call.messages)
        async with turn:
            self._leave(call, pass_on=False)
            need = self._estimator.need(call.size, call.settings.get("max_tokens"))
            if (reply := await self._place(call, need)) is not None:
                call.recalled = True
                return reply
            call.place = need
            try:
                reply = await self._send(call, need)
            except Exception as error:
                # After a refusal it keeps its place while it waits: another call would only be refused there as well.
                if getattr(error, "status", None) != 429:
                    self._leave(call)
                raise
            self._leave(call)
        await self._keep(call, reply)
        return reply

    async def _place(self, call: _Call, need: TokenNeed) -> Reply | None:
        """Wait for the claim and for a place; the reply, and no place, if another process has brought it meanwhile.

        A few calls are claimed ahead, so that no place is empty while the store is asked; no more, so that processes
        which want the same calls share them out among themselves. What holds a claim waits for nothing but a place, and
        what waits for another process has neither: no two processes can wait for each other.
        """
        while not call.claimed:
            async with self._ahead:
                answer = await self.store.take(call.key)
                if isinstance(answer, Reply):
                    return answer
                if answer:
                    call.claimed = True
                    await self._take_place(call, need)
                    return None
            if (reply := await self._reply_or_claim(call)) is not None:
                return reply
        await self._take_place(call, need)
        return None

    async def _reply_or_claim(self, call: _Call) -> Reply | None:
        """Wait for another process; its reply, or None if the claim is now this one's."""
        reply = await reply_or_claim(self.store, call.key)
        call.claimed = reply is None
        return reply

    async def _take_place(self, call: _Call, need: TokenNeed) -> None:
        await self.limiter.acquire(need, first=call.attempts > 0)
        try:
            await self._outages.wait()
        except BaseException:
            self.limiter.release(need, unused=True)
            raise

    async def _send(self, call: _Call, need: TokenNeed) -> Reply:
        """Send once and take in what comes of it."""
        sent = time.monotonic()
        if not call.attempts:
            call.answers = self._outages.answers
        call.attempts, call.out = call.attempts + 1, True
        left = self._options.deadline - call.spent
        try:
            async with asyncio.timeout(min(self._options.attempt, left) if left > 0 else self._options.attempt):
                reply = await self.transport.chat(self.model, call.messages, call.settings)
        except Exception as raised:
            call.out = False
            error = clean_error(raised)
            self._failed(call, error, need, sent)
            raise error from None
        self._answered(reply, call.tag, need, call.size)
        self.limiter.succeeded()
        return reply

    async def _keep(self, call: _Call, reply: Reply) -> None:
        await self.store.put(call.key, call.tag.role, reply)
        # The claim ended with it.
        call.claimed = False

    def _answered(self, reply: Reply, tag: CallTag, need: TokenNeed, size: int) -> None:
        self._outages.answers += 1
        self.meter.spend(tag.role, reply, round=tag.round)
        self._settle(reply, need, size)

    def _failed(self, call: _Call, error: Exception, need: TokenNeed, sent: float) -> None:
        """Take in a failed attempt: slow all calls down, or end them, where that is called for."""
        status, options = getattr(error, "status", None), self._options
        self._forfeit(error, need)
        if not retryable(error):
            # The provider has answered, if only to refuse: it is not down.
            self._outages.answers += status is not None
            if concerns_all_calls(error):
                self.limiter.fail(error)
            return
        call.alone, call.answers = call.answers == self._outages.answers, self._outages.answers
        # The limiter slows down until there are no refusals; only if nobody at all is answered is one a failure.
        call.failures += status != 429 or call.alone
        call.spent += time.monotonic() - sent
        if status in OVERLOADED or isinstance(error, lm15.TimeoutError):
            self.limiter.congested(sent, min(getattr(error, "retry_after", None) or 0.0, options.longest_wait))

    def _forfeit(self, error: Exception, need: TokenNeed) -> None:
        """Charge what a request may have cost whose answer came too late or was lost."""
        too_late = isinstance(error, lm15.TimeoutError) and error.status is None
        if self._budget is not None and (too_late or getattr(error, "provider_code", None) in (STRAY, BROKEN)):
            self._budget.forfeit(need)

    async def probe(self) -> None:
        """A call that any model can answer, sent when calls fail and it is in doubt who is to blame."""
        # No two answers are answers to the same call, in this run or another: a gateway may keep what it answered.
        text = f"Reply with OK. ({uuid.uuid4().hex[:12]})"
        need = self._estimator.need(len(text), self.defaults.get("max_tokens"))
        if self._budget is not None and not self._budget.admits(need):
            raise self._budget.spent()
        self.meter.ask("probe")
        # It waits for no place, but takes one: calls that wait must not find the budget spent by what it reserves.
        self.limiter.take(need)
        try:
            async with asyncio.timeout(self._options.attempt):
                reply = await self.transport.chat(self.model, [{"role": "user", "content": text}], self.defaults)
            self._answered(reply, CallTag("probe"), need, 0)
        except Exception as raised:
            error = clean_error(raised)
            self._forfeit(error, need)
            raise error from None
        finally:
            self.limiter.release(need)

    async def _make_in_batch(self, call: _Call) -> Reply:
        """Make a call that goes out in a batch job, which takes its time and repeats it if need be."""
        need = replace(self._estimator.need(call.size, call.settings.get("max_tokens")), batch=True)
        await self._batch_gate.acquire(need)
        try:
            assert self.batches is not None
            reply = await self.batches.ask(call.key, call.tag.role, call.messages, call.settings)
            # It is in the store already, with all that came in the same job. Charged before its reservation ends.
            self.meter.spend(call.tag.role, reply, round=call.tag.round, batch=True)
            self._settle(reply, need, call.size)
            return reply
        except Exception as error:
            if concerns_all_calls(error):
                self._batch_gate.fail(error)
            raise
        finally:
            self._batch_gate.release(need)

    def _settle(self, reply: Reply, need: TokenNeed, size: int) -> None:
        """Charge a reply, in place of what was estimated."""
        used = self._estimator.used(size, reply)
        if not need.batch:
            self.limiter.used(need, sum(used))
        if self._budget is not None:
            self._budget.charge(used, reply.cached_tokens, batch=need.batch)

    async def aclose(self, *, drain: bool = True) -> None:
        """End all calls and close the connections; `drain` waits for answers that are on their way, which are paid."""
        await loop.on_loop(self._aclose(drain))

    async def _aclose(self, drain: bool) -> None:
        calls = {call.task: call for call in self._flying.values()}
        for task, call in calls.items():
            if not (drain and call.out):
                task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        if self.batches is not None:
            await self.batches.aclose()
        await self.transport.aclose()


def messages_of(request: Request) -> Messages:
    """The texts of a request, the system's first."""
    turns = [{"role": m.role, "content": m.text or ""} for m in request.messages]
    system = request.system
    if system is None:
        return turns
    text = system if isinstance(system, str) else "".join(part.text for part in system if part.type == "text")
    return [{"role": "system", "content": text}, *turns]


def settings_of(request: Request) -> dict[str, Any]:
    """The settings of a request that are sent, without those that are left to the provider."""
    config = request.config
    return {name: value for name in _SETTINGS if (value := getattr(config, name)) is not None}


def key_of(model: str, endpoint: str, messages: Messages, settings: Mapping[str, Any]) -> str:
    """Identity of a call of a judge; nothing secret is in it."""
    known = {name: value for name, value in settings.items() if value is not None}
    digest = hashlib.blake2b(_SORTED.encode([model, endpoint, known]).encode(), digest_size=16)
    for message in messages:
        content = message["content"].encode()
        # The length keeps two messages from running into one another.
        digest.update(f"{message['role']} {len(content)} ".encode())
        for start in range(0, len(content), _HASHED):
            digest.update(content[start : start + _HASHED])
    return digest.hexdigest()


def untagged_key(endpoint: str, request: Request, number: int) -> str:
    """Identity of the `number`-th of equal requests that carry no tag."""
    messages = [{"role": m.role, "parts": [{"type": "text", "text": m.text or ""}]} for m in request.messages]
    config = {f.name: v for f in fields(Config) if (v := getattr(request.config, f.name)) not in (None, (), {})}
    content: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.system is not None:
        content["system"] = messages_of(request)[0]["content"]
    if config:
        content["config"] = config
    text = json.dumps([endpoint, content], sort_keys=True, ensure_ascii=False, default=repr)
    first = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return hashlib.blake2b(f"{first} {number}".encode(), digest_size=16).hexdigest()


def response_of(model: str, key: str, reply: Reply) -> Response:
    """A reply as DSPy's modules want it; its id is the key that it is stored under."""
    finish: Any = reply.finish if reply.finish in ("stop", "length", "content_filter") else "stop"
    logprobs = reply.logprobs and tuple(
        TokenLogprob(*tokens[0], top=tuple(TopLogprob(*other) for other in tokens[1:])) for tokens in reply.logprobs
    )
    usage = Usage(
        input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, cache_read_tokens=reply.cached_tokens
    )
    message = Message.assistant(reply.text)
    return Response(id=key, model=model, message=message, finish_reason=finish, usage=usage, logprobs=logprobs or None)
