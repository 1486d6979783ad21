"""The engine that all LM calls go through: a request of DSPy's in, its recorded response out.

Look the call up in the store, else acquire a slot of the limiter, reserve the budget, send with retries, store the
reply, return it. Identical calls in flight are made once, in this process and in all that share the store. A call whose
caller is cancelled after its request was sent goes on: the reply is paid for, so it is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar, TypeVarTuple

import dspy
from dspy import lm15
from dspy.lm15 import Config, Message, Request, Response, TokenLogprob, TopLogprob, Usage

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.limits import (
    MAY_BE_CHARGED,
    NOT_LISTENING,
    OVERLOAD_STATUSES,
    UNUSABLE,
    Budget,
    Limiter,
    OutageWatch,
    PrefixWarmup,
    TokenEstimate,
    TokenEstimator,
    affects_all_calls,
    is_retryable,
    redact_error,
    retry_wait,
)
from debate_judge.programs.lm.replies import (
    CALL_TAG,
    ON_REPLY,
    CallTag,
    InMemoryStore,
    LocalTransport,
    Messages,
    Meter,
    Reply,
    ReplyStore,
    wait_or_claim,
)
from debate_judge.programs.lm.settings import LMOptions, Price, destination
from debate_judge.programs.lm.transport import ProviderParameters

# --- loop ---

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_INLINE_MODULE = "dspy.clients.execution"
"""DSPy's module that runs two functions in another thread in every call, though they take some 50 microseconds."""


class _Loop(asyncio.SelectorEventLoop):
    """Runs functions of `_INLINE_MODULE` directly: a thread switch costs 0.1 ms of CPU, twice their time."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        # `asyncio.to_thread` wraps the function so that it runs in a copy of the context.
        function = func.args[0] if isinstance(func, partial) and func.args else func
        if getattr(function, "__module__", "") != _INLINE_MODULE:
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


_started: list[asyncio.AbstractEventLoop] = []
_starting = threading.Lock()


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, running. A forked process has none: start processes by `spawn`."""
    with _starting:
        if not _started:
            _started.append(_Loop())
            threading.Thread(target=_started[0].run_forever, name="debate-loop", daemon=True).start()
    return _started[0]


def submit(coro: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `coro` on the loop, in a copy of the caller's context."""
    # The callback that makes the task runs in a copy of this thread's context, and so does the task.
    return asyncio.run_coroutine_threadsafe(coro, event_loop())


def run(coro: Coroutine[Any, Any, T]) -> T:
    """Run `coro` on the loop and wait for its result; an interrupt here cancels it there.

    May be called in any thread, also in one with a running loop of its own (a notebook's), which it blocks meanwhile.

    Raises:
        RuntimeError: It is called on the loop itself, which would wait for itself.
    """
    if is_current():
        coro.close()
        raise RuntimeError("synchronous call on the loop of all LM calls; await `acall` instead")
    future = submit(coro)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def on_loop(coro: Coroutine[Any, Any, T]) -> T:
    """Await `coro` on the loop, from any loop; cancelling this cancels it there."""
    return await (coro if is_current() else asyncio.wrap_future(submit(coro)))


def is_current() -> bool:
    """Whether the caller runs on the loop."""
    try:
        return asyncio.get_running_loop() in _started
    except RuntimeError:
        return False


async def gather(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """`asyncio.gather`, with DSPy's trace in the order of the arguments: optimizers sample calls from the trace, which
    must not depend on which reply came first."""
    trace = dspy.settings.trace
    if trace is None:
        return list(await asyncio.gather(*awaitables))

    async def traced(awaitable: Awaitable[T]) -> tuple[T, list[Any]]:
        with dspy.context(trace=[]):
            return await awaitable, dspy.settings.trace

    results = await asyncio.gather(*map(traced, awaitables))
    trace.extend(call for _, calls in results for call in calls)
    return [result for result, _ in results]


# --- samples ---

_LOG = logging.getLogger(__name__)

_MAX_ANSWERS = 10_000
"""Number of latest answers that are compared."""


class CopyWatch:
    """Says, once, that an LM's samples are copies of each other, so that their mean is that of a single one.

    Args:
        model: For the message.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._answers: dict[int, None] = {}
        """The latest answers with their questions and ids, hashed, the oldest first."""
        self._said = False

    def observe(self, messages: Messages, sample: int | None, reply: Reply) -> None:
        """Compare a reply that the server has just given with earlier samples; `sample` is the number of its sample."""
        if self._said or sample is None:
            return
        answer = hash((*(message["content"] for message in messages), reply.id, reply.text))
        is_copy = reply.id is not None and answer in self._answers
        if is_copy or reply.from_cache:
            self._said = True
            how = "with the id of another one" if is_copy else "from its cache"
            _LOG.warning(
                "%s: the server answers a sample %s, so that several samples are one reply; switch the cache of the "
                "gateway off, or choose the score mode text", self._model, how,
            )  # fmt: skip
        self._answers[answer] = None
        if len(self._answers) > _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]


# --- engine ---

_SETTINGS = ("temperature", "max_tokens", "top_p", "seed", "logprobs")
"""The fields of a request's config that are sent."""
_SORTED_JSON = json.JSONEncoder(sort_keys=True)
_HASH_CHUNK = 2047
"""Bytes. For more, hashlib releases the GIL, and to get it back takes longer than the hash."""


class Transport(Protocol):
    """Makes one attempt at a call. `LocalTransport` is the one that answers inside the process."""

    async def chat(self, model: str, messages: Messages, settings: dict[str, Any]) -> Reply:
        """Send `messages` once; raises the errors of `dspy.lm15`."""
        ...

    async def aclose(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Call:
    """A call from its lookup in the store to its reply."""

    key: str
    tag: CallTag
    messages: Messages = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    """UTF-8 bytes of its texts."""
    task: asyncio.Task[Reply] = field(init=False)
    began: float = field(default_factory=time.monotonic)
    awaited: bool = True
    """Whether its caller still awaits it."""
    claimed: bool = False
    slot: TokenEstimate | None = None
    """What it acquired its slot of the limiter with; kept during the pause after a 429."""
    from_store: bool = False
    """Whether its reply came from the store."""
    in_flight: bool = False
    """Whether a request was sent and is not answered yet; its reply is paid for, so it is awaited in any case."""
    attempts: int = 0
    failures: int = 0
    """Attempts that failed; a 429 counts only if no other call is answered."""
    elapsed: float = 0.0
    """Seconds of its attempts and pauses, without waiting for slots."""
    responses_seen: int = 0
    """`OutageWatch.responses` at its first attempt or latest failure."""
    outage_suspected: bool = True
    """Whether no call at all was answered between its last two failures."""


class RecordedEngine:
    """DSPy's asynchronous engine of a `JudgeLM`. It runs on the event loop of all LM calls (see `event_loop`).

    Args:
        model: PROVIDER/MODEL.
        endpoint: Address of the server, as it enters the keys of calls.
        transport: Makes one attempt at a call.
        store: Of replies.
        concurrency: Maximum number of calls in flight.
        options: Limits, waits, budget.
        price: Needed for a budget in money.
        warmup: Whether the other calls about a source wait for the first one (`PrefixWarmup`).
    """

    def __init__(
        self, model: str, endpoint: str, transport: Transport, store: ReplyStore, *, concurrency: int,
        options: LMOptions, price: Price | None, warmup: bool,
    ) -> None:  # fmt: skip
        self.model, self.endpoint, self.transport, self.store = model, endpoint, transport, store
        self.meter = Meter()
        self.role = CallTag().role
        """Role of calls without a tag, in the usage accounts."""
        self.probe_settings: dict[str, Any] = {}
        self._concurrency, self._options, self._warmup = concurrency, options, PrefixWarmup() if warmup else None
        self._budget = Budget(options.budget, price)
        self._estimator = TokenEstimator()
        self._repeats = Counter[str]()
        self._parameters = ProviderParameters(model)
        self._copies = CopyWatch(model)
        self._running: dict[str, _Call] = {}
        self._ended = False
        self.limiter = Limiter(concurrency, options, self._budget)
        self._outages = OutageWatch(model, options, self.probe, lambda error: self.limiter.fail_all(error))

    def share_run(self, other: RecordedEngine, role: str, price: Price | None) -> None:
        """Before the first call: count in the meter of `other`, as `role`, and use its budget, at `price`."""
        self.meter, self.role = other.meter, role
        self.share_budget(other, price)

    def share_budget(self, other: RecordedEngine, price: Price | None) -> None:
        """Before the first call: use the budget of `other`, at `price`."""
        self._budget = other._budget.with_price(price)
        self.limiter = Limiter(self._concurrency, self._options, self._budget)

    async def complete(self, request: Request) -> Response:
        """The response to a request, from the store if it is there.

        A reply that was cut off at `max_tokens` is requested once more with four times as many.

        Raises:
            dspy.lm15.LM15Error: The call failed for good.
            dspy.LMError: The provider is down, or the budget is spent.
        """
        return await on_loop(self._complete(request))

    async def _complete(self, request: Request) -> Response:
        key, reply = await self._reply(request)
        limit = request.config.max_tokens
        if reply.finish == "length" and limit and self._parameters.allow_more_tokens(limit):
            longer = replace(request, config=replace(request.config, max_tokens=4 * limit))
            # Where the provider allows no longer reply, the one that was cut off stands.
            with suppress(lm15.InvalidRequestError, lm15.ContextLengthError):
                key, reply = await self._reply(longer)
        return response_of(request.model, key, reply)

    async def _reply(self, request: Request) -> tuple[str, Reply]:
        messages, settings = messages_of(request), settings_of(request)
        if (tag := CALL_TAG.get()) is None:
            tag, key = CallTag(self.role), self._next_key(request)
        else:
            key = key_of(self.model, self.endpoint, messages, {**settings, "sample": tag.sample})
        size = sum(len(message["content"].encode()) for message in messages)
        call = _Call(key, tag, messages, settings, size)
        if self._ended:
            raise asyncio.CancelledError
        self.meter.count_request(tag.role)
        try:
            reply = await self._deduplicate(call, self._call_directly)
        except Exception:
            self.meter.failed[tag.role] += 1
            raise
        if call.from_store:
            self.meter.count_hit(tag.role, reply, round=tag.round)
        if (on_reply := ON_REPLY.get()) is not None:
            on_reply(key, reply)
        return key, reply

    def _next_key(self, request: Request) -> str:
        # The n-th of equal requests has the key of the n-th one in any process that sends them in the same order.
        base_key = untagged_key(self.endpoint, request, 0)
        self._repeats[base_key] += 1
        return untagged_key(self.endpoint, request, self._repeats[base_key])

    async def get_or_create(self, key: str, role: str, create: Callable[[], Awaitable[Reply]]) -> Reply:
        """See `JudgeLM.get_or_create`."""

        async def make(call: _Call) -> Reply:
            if (reply := await self._wait_or_claim(call)) is None:
                reply = await create()
                await self._put(call, reply)
            return reply

        return await on_loop(self._deduplicate(_Call(key, CallTag(role)), make))

    async def _deduplicate(self, call: _Call, make: Callable[[_Call], Awaitable[Reply]]) -> Reply:
        """The stored reply, or that of `make`, which is called once for all concurrent callers with the same key."""
        while True:
            if (reply := await self.store.get(call.key)) is not None:
                call.from_store = True
                return reply
            if (running := self._running.get(call.key)) is None:
                break
            # If it fails or is cancelled, this caller makes the call.
            await asyncio.wait((running.task,))
        self._running[call.key] = call
        call.task = asyncio.create_task(self._run(call, make))
        call.task.add_done_callback(lambda task: self._on_done(call, task))
        try:
            return await asyncio.shield(call.task)
        except asyncio.CancelledError:
            call.awaited = False
            if not call.in_flight:
                call.task.cancel()
            raise

    async def _run(self, call: _Call, make: Callable[[_Call], Awaitable[Reply]]) -> Reply:
        try:
            return await make(call)
        finally:
            if call.claimed:
                await self.store.release(call.key)

    def _on_done(self, call: _Call, task: asyncio.Task[Reply]) -> None:
        del self._running[call.key]
        if not task.cancelled():
            # Otherwise asyncio would log the exception of a task that nothing awaits any more.
            task.exception()

    async def _call_directly(self, call: _Call) -> Reply:
        """Make a call, with retries, until it is answered or has failed for good."""
        retries = 0
        try:
            while True:
                try:
                    return await self._attempt(call)
                except Exception as error:
                    if self._may_concern_one_text(error):
                        raise await self._confirmed(call, error) from None
                    if not is_retryable(error):
                        raise
                    retries += 1
                    pause = retry_wait(error, retries, self._options.first_wait, self._options.max_wait)
                    if self._should_give_up(call, error):
                        self._release_slot(call)
                        if call.awaited and call.outage_suspected and await self._outages.was_down():
                            # It starts over.
                            retries, pause, call.elapsed = 0, 0.0, 0.0
                        elif not self._is_rate_limited(call, error):
                            raise
                        call.failures = 0
                call.elapsed += pause
                await asyncio.sleep(pause)
        finally:
            self._release_slot(call)

    def _may_concern_one_text(self, error: Exception) -> bool:
        """Whether only a harmless call shows what a refusal is about: firewalls forbid single texts, the words about an
        empty account may be quoted from one, and before any call was answered the provider may refuse all of them."""
        status = getattr(error, "status", None)
        if isinstance(error, (lm15.AuthError, lm15.BillingError)):
            return status not in (None, 401, 402)
        return type(error) is lm15.InvalidRequestError and status is not None and not self._outages.answered

    async def _confirmed(self, call: _Call, error: Exception) -> Exception:
        """The error of all calls if the provider refuses a harmless call too, else that of this call alone."""
        self._release_slot(call)
        try:
            await self._outages.was_down()
        except Exception as of_all_calls:
            return of_all_calls
        if isinstance(error, lm15.InvalidRequestError):
            return error
        return lm15.InvalidRequestError(f"only this text was refused: {error}", status=getattr(error, "status", None))

    def _release_slot(self, call: _Call, *, wake: bool = True) -> None:
        """Release the slot of a call, if it has one."""
        if call.slot is not None:
            self.limiter.release(call.slot, wake=wake)
            call.slot = None

    def _should_give_up(self, call: _Call, error: Exception) -> bool:
        options = self._options
        not_listening = getattr(error, "provider_code", None) == NOT_LISTENING and not self._outages.responses
        # Each attempt that brought an unusable response is paid for.
        retries = min(options.retries, 1) if getattr(error, "provider_code", None) == UNUSABLE else options.retries
        return not_listening or not call.awaited or call.failures > retries or call.elapsed >= options.deadline

    def _is_rate_limited(self, call: _Call, error: Exception) -> bool:
        """Whether the call met a rate limit (429) and still has time: that is no failure of its own."""
        in_time = call.elapsed < self._options.deadline
        return getattr(error, "status", None) == 429 and call.awaited and in_time

    async def _attempt(self, call: _Call) -> Reply:
        """Wait for the prefix, a slot and the claim; send once; store the reply."""
        in_order: AbstractAsyncContextManager[None] = nullcontext()
        if self._warmup is not None and not call.attempts:
            in_order = self._warmup.in_order(call.messages)
        async with in_order:
            self._release_slot(call, wake=False)
            estimate = self._estimator.estimate(call.size, call.settings.get("max_tokens"))
            if (reply := await self._acquire(call, estimate)) is not None:
                call.from_store = True
                return reply
            call.slot = estimate
            try:
                reply = await self._send(call, estimate)
            except Exception as error:
                # After a 429 it keeps its slot during the pause: another call in it would only get a 429 as well.
                if getattr(error, "status", None) != 429:
                    self._release_slot(call)
                raise
            # The slot is kept until the reply is stored, so that a kill never loses more replies than there are slots.
            await self._put(call, reply)
            self._release_slot(call)
        return reply

    async def _acquire(self, call: _Call, estimate: TokenEstimate) -> Reply | None:
        """Acquire a slot and the claim; the reply, and no slot, if another process has stored it meanwhile.

        What waits for the claim of another process has no slot: processes cannot deadlock.
        """
        while True:
            await self._acquire_slot(call, estimate)
            outcome: Reply | bool = False
            try:
                outcome = call.claimed or await self.store.get_or_claim(call.key)
            finally:
                if outcome is not True:
                    self.limiter.release(estimate, unsent=True)
            call.claimed = outcome is True
            if call.claimed:
                return None
            if isinstance(outcome, Reply):
                return outcome
            if (reply := await self._wait_or_claim(call)) is not None:
                return reply

    async def _wait_or_claim(self, call: _Call) -> Reply | None:
        """Wait for another process; its reply, or None if this process now holds the claim."""
        reply = await wait_or_claim(self.store, call.key)
        call.claimed = reply is None
        return reply

    async def _acquire_slot(self, call: _Call, estimate: TokenEstimate) -> None:
        await self.limiter.acquire(estimate, front=call.attempts > 0, began=call.began)
        try:
            await self._outages.wait_for_probe()
        except BaseException:
            self.limiter.release(estimate, unsent=True)
            raise

    async def _send(self, call: _Call, estimate: TokenEstimate) -> Reply:
        """Send once and account for the outcome."""
        sent_at = time.monotonic()
        if not call.attempts:
            call.responses_seen = self._outages.responses
        call.attempts, call.in_flight = call.attempts + 1, True
        remaining, timeout = self._options.deadline - call.elapsed, self._options.attempt_timeout
        try:
            async with asyncio.timeout(min(timeout, remaining) if remaining > 0 else timeout):
                reply = await self._chat(call.messages, call.settings)
        except Exception as raised:
            call.in_flight = False
            error = redact_error(raised)
            self._on_failure(call, error, estimate, sent_at)
            raise error from None
        self._on_reply(reply, call.tag, estimate, call.size)
        self._copies.observe(call.messages, call.tag.sample, reply)
        self.limiter.on_success()
        return reply

    async def _chat(self, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        return await self._parameters.call(
            lambda accepted: self.transport.chat(self.model, messages, accepted), settings
        )

    async def _put(self, call: _Call, reply: Reply) -> None:
        await self.store.put(call.key, call.tag.role, reply)
        # Storing the reply has ended the claim.
        call.claimed = False

    def _on_reply(self, reply: Reply, tag: CallTag, estimate: TokenEstimate, size: int) -> None:
        self._outages.responses += 1
        self._outages.answered = True
        self.meter.count_reply(tag.role, reply, round=tag.round)
        self._charge(reply, estimate, size)

    def _on_failure(self, call: _Call, error: Exception, estimate: TokenEstimate, sent_at: float) -> None:
        """Account for a failed attempt: slow down or fail all calls where its error calls for that."""
        status, options = getattr(error, "status", None), self._options
        self._charge_lost(error, estimate)
        if not is_retryable(error):
            # An error status is a response, too: the provider is not down.
            self._outages.responses += status is not None
            if affects_all_calls(error) and not self._may_concern_one_text(error):
                self.limiter.fail_all(error)
            return
        call.outage_suspected = call.responses_seen == self._outages.responses
        call.responses_seen = self._outages.responses
        # The limiter slows down until there is no 429; one is a failure only if no call at all is answered.
        call.failures += status != 429 or call.outage_suspected
        call.elapsed += time.monotonic() - sent_at
        if status in OVERLOAD_STATUSES or isinstance(error, lm15.TimeoutError):
            self.limiter.on_overload(sent_at, min(getattr(error, "retry_after", None) or 0.0, options.max_wait))

    def _charge_lost(self, error: Exception, estimate: TokenEstimate) -> None:
        """Charge the maximum for a request whose answer came too late or was lost: the server may have billed it."""
        timed_out = isinstance(error, lm15.TimeoutError) and error.status is None
        if timed_out or getattr(error, "provider_code", None) in MAY_BE_CHARGED:
            self._budget.charge_maximum(estimate)

    async def probe(self) -> None:
        """A minimal call that any model can answer; tells an outage from calls that fail by themselves."""
        # Never the same text twice, because a gateway may cache answers.
        text = f"Reply with OK. ({uuid.uuid4().hex[:12]})"
        estimate = self._estimator.estimate(len(text), self.probe_settings.get("max_tokens"))
        if not self._budget.admits(estimate):
            raise self._budget.spent_error()
        self.meter.count_request("probe")
        # It takes a slot without waiting: with nothing in flight its reservation would fail the waiting calls.
        self.limiter.acquire_nowait(estimate)
        try:
            async with asyncio.timeout(self._options.attempt_timeout):
                reply = await self._chat([{"role": "user", "content": text}], self.probe_settings)
            self._on_reply(reply, CallTag("probe"), estimate, 0)
        except Exception as raised:
            self.meter.failed["probe"] += 1
            error = redact_error(raised)
            self._charge_lost(error, estimate)
            raise error from None
        finally:
            self.limiter.release(estimate)

    def _charge(self, reply: Reply, estimate: TokenEstimate, size: int) -> None:
        """Charge a reply, and correct the rate limit by its real tokens."""
        tokens = self._estimator.observe(size, reply)
        self.limiter.correct(estimate, sum(tokens))
        self._budget.charge(tokens, reply.cached_tokens, estimate)

    @property
    def calls_in_flight(self) -> int:
        """Number of requests without an answer; may be read in any thread."""
        return sum(call.in_flight for call in self._running.copy().values())

    async def aclose(self, *, for_good: bool = False) -> None:
        """See `JudgeLM.aclose`."""
        self._ended = for_good
        await on_loop(self._aclose())

    async def _aclose(self) -> None:
        calls = {call.task: call for call in self._running.values()}
        for task, call in calls.items():
            if not call.in_flight:
                task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self.transport.aclose()


def messages_of(request: Request) -> Messages:
    """The messages of a request, the system message first."""
    turns = [{"role": m.role, "content": m.text or ""} for m in request.messages]
    system = request.system
    if system is None:
        return turns
    text = system if isinstance(system, str) else "".join(part.text for part in system if part.type == "text")
    return [{"role": "system", "content": text}, *turns]


def settings_of(request: Request) -> dict[str, Any]:
    """The settings of a request that are sent, without those that are None."""
    config = request.config
    return {name: value for name in _SETTINGS if (value := getattr(config, name)) is not None}


def key_of(model: str, endpoint: str, messages: Messages, settings: Mapping[str, Any]) -> str:
    """Key of a judge's call. No secret enters it."""
    sent_settings = {name: value for name, value in settings.items() if value is not None}
    digest = hashlib.blake2b(_SORTED_JSON.encode([model, endpoint, sent_settings]).encode(), digest_size=16)
    for message in messages:
        content = message["content"].encode()
        # The length separates one message from the next.
        digest.update(f"{message['role']} {len(content)} ".encode())
        for start in range(0, len(content), _HASH_CHUNK):
            digest.update(content[start : start + _HASH_CHUNK])
    return digest.hexdigest()


def untagged_key(endpoint: str, request: Request, number: int) -> str:
    """Key of the `number`-th of equal requests without a tag."""
    messages = [{"role": m.role, "parts": [{"type": "text", "text": m.text or ""}]} for m in request.messages]
    config = {f.name: v for f in fields(Config) if (v := getattr(request.config, f.name)) not in (None, (), {})}
    content: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.system is not None:
        content["system"] = messages_of(request)[0]["content"]
    if config:
        content["config"] = config
    text = json.dumps([endpoint, content], sort_keys=True, ensure_ascii=False, default=repr)
    base_key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return hashlib.blake2b(f"{base_key} {number}".encode(), digest_size=16).hexdigest()


def response_of(model: str, key: str, reply: Reply) -> Response:
    """A reply as DSPy's response; its id is the key of the call."""
    finish: Any = reply.finish if reply.finish in ("stop", "length", "content_filter") else "stop"
    logprobs = reply.logprobs and tuple(
        TokenLogprob(*tokens[0], top=tuple(TopLogprob(*other) for other in tokens[1:])) for tokens in reply.logprobs
    )
    usage = Usage(
        input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, cache_read_tokens=reply.cached_tokens
    )
    message = Message.assistant(reply.text)
    return Response(id=key, model=model, message=message, finish_reason=finish, usage=usage, logprobs=logprobs or None)


# --- client ---


class JudgeLM(dspy.LM):
    """A `dspy.LM` with a store of replies, limits and usage accounts. Make one with `make_lm`.

    A call with a tag (`CallTag`) is made and stored once; without one, equal requests are new
    samples.

    Args:
        model: Model string as DSPy knows it.
        transport: Makes one attempt at a call, asynchronously.
        endpoint: Address of the server, so that two servers with one model name never share replies.
        store: Stores replies; in memory by default.
        concurrency: Maximum number of calls in flight.
        options: Limits, retries, budget.
        price: Of the model, if it is known.
    """

    def __init__(
        self,
        model: str,
        *,
        transport: Transport,
        endpoint: str = "",
        store: ReplyStore | None = None,
        concurrency: int = 16,
        options: LMOptions | None = None,
        price: Price | None = None,
        **kwargs: Any,
    ) -> None:
        logging.getLogger("dspy.clients.lm").addFilter(_keep_warning)
        self.recorded_engine = RecordedEngine(
            model, endpoint, transport, InMemoryStore() if store is None else store,
            concurrency=concurrency, options=options or LMOptions(), price=price,
            warmup=not isinstance(transport, LocalTransport),
        )  # fmt: skip
        self.endpoint, self.price, self.concurrency = endpoint, price, concurrency
        self._second_lms: list[JudgeLM] = []
        # DSPy's own cache and retries are off: the engine has both.
        super().__init__(
            model,
            engine=_SynchronousEngine(self.recorded_engine),
            async_engine=self.recorded_engine,
            num_retries=0,
            cache=False,
            **kwargs,
        )
        self.recorded_engine.probe_settings = {name: value for name, value in self.kwargs.items() if value is not None}

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeLM:
        # Optimizers deep-copy programs; connections and counters must not be copied.
        return self

    @property
    def store(self) -> ReplyStore:
        """The store of its replies."""
        return self.recorded_engine.store

    @property
    def meter(self) -> Meter:
        """Counts its calls and tokens, together with those of the second LM of its run."""
        return self.recorded_engine.meter

    @property
    def destination(self) -> str | None:
        """A message that says where the calls go; None if they are answered inside the process."""
        is_local = isinstance(self.recorded_engine.transport, LocalTransport)
        return None if is_local else destination(self.model, self.endpoint)

    def share_run(self, first: JudgeLM, role: str) -> JudgeLM:
        """Before the first call: make this the second LM of the run of `first`, with the same accounts and budget.

        Args:
            first: The LM of the run.
            role: Role of the calls of DSPy's own modules to this LM, in the usage accounts.
        """
        self.recorded_engine.share_run(first.recorded_engine, role, self.price)
        self.meter.prices[role] = self.price
        first._second_lms.append(self)
        return self

    def share_budget(self, first: JudgeLM) -> None:
        """Before the first call: spend from the budget of `first`, so that the cap is one for both."""
        self.recorded_engine.share_budget(first.recorded_engine, self.price)

    async def discard(self, keys: Iterable[str]) -> None:
        """Forget replies that could not be used, so that the next run asks again: the server may have been mended."""
        for key in keys:
            await self.store.discard(key)

    async def get_or_create(self, key: str, role: str, create: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply stored under `key`, else that of `create`, which one caller of all processes executes."""
        return await self.recorded_engine.get_or_create(key, role, create)

    async def acall(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            return await super().acall(*arguments, **keywords)
        except dspy.LMUnexpectedError as error:
            raise _unwrapped(error) from None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            return super().__call__(*arguments, **keywords)
        except dspy.LMUnexpectedError as error:
            raise _unwrapped(error) from None

    @property
    def calls_in_flight(self) -> int:
        """Number of requests without an answer, those of the second LM included."""
        return sum(lm.recorded_engine.calls_in_flight for lm in (self, *self._second_lms))

    async def aclose(self, *, for_good: bool = False) -> None:
        """End all calls and close the connections, those of the second LM included. The replies to requests that were
        sent are waited for: they are paid for.

        Args:
            for_good: Whether later calls are refused: threads of DSPy's optimizers outlive an interrupt.
        """
        await asyncio.gather(*(lm.recorded_engine.aclose(for_good=for_good) for lm in (self, *self._second_lms)))


class _SynchronousEngine:
    """DSPy's synchronous engine of a `JudgeLM`: blocks the calling thread until the asynchronous one has replied."""

    def __init__(self, engine: RecordedEngine) -> None:
        self._engine = engine

    def complete(self, request: Request) -> Response:
        try:
            return run(self._engine.complete(request))
        except CancelledError:
            raise dspy.LMUnexpectedError("the run ended before the call was answered") from None


def _unwrapped(error: dspy.LMUnexpectedError) -> Exception:
    """The `InputError` behind an error, e.g. of a full disk, which DSPy wraps as an unexpected one; else the error."""
    return error.__cause__ if isinstance(error.__cause__, InputError) else error


def _keep_warning(record: logging.LogRecord) -> bool:
    """Whether to show a warning of DSPy's: not the advice to raise `max_tokens`, which the engine does by itself."""
    return "response was truncated" not in record.getMessage()
