"""The LM of all roles: a `dspy.LM` whose engine stores replies, makes each call once and keeps within limits.

A call is looked up in the store; else it acquires a slot of the limiter, reserves the budget, is sent with retries, and
its reply is stored before it is returned. Identical calls in flight are made once, in this process and in all that
share the store. A call whose caller is cancelled after its request was sent goes on: the reply is paid for.

All calls run on one event loop, in a daemon thread that is started on first use. Synchronous code calls `run`. Context
variables are copied, so DSPy's settings, traces, callbacks and usage apply on the loop, too.
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
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import dspy
from dspy import lm15
from dspy.lm15 import Message, Request, Response, TokenLogprob, TopLogprob, Usage

from debate_judge.data.errors import InputError
from debate_judge.programs.lm import limits
from debate_judge.programs.lm.limits import Estimate
from debate_judge.programs.lm.replies import (
    CALL_TAG,
    ON_REPLY,
    CallTag,
    LocalTransport,
    Messages,
    Meter,
    Reply,
    ReplyStore,
    Transport,
    wait_or_claim,
)
from debate_judge.programs.lm.settings import LMOptions, Price, destination
from debate_judge.programs.lm.transport import ProviderParameters

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_LOG = logging.getLogger(__name__)

# --- the event loop ---

_INLINE_MODULE = "dspy.clients.execution"
"""DSPy's module that runs two functions in another thread in every call, though they take some 50 microseconds."""
_started: list[asyncio.AbstractEventLoop] = []
_starting = threading.Lock()


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


def submit(coro: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `coro` on the loop of this process, in a copy of the caller's context.

    A forked process has no loop: start processes by `spawn`.
    """
    with _starting:
        if not _started:
            _started.append(_Loop())
            threading.Thread(target=_started[0].run_forever, name="debate-loop", daemon=True).start()
    # The callback that makes the task runs in a copy of this thread's context, and so does the task.
    return asyncio.run_coroutine_threadsafe(coro, _started[0])


def run(coro: Coroutine[Any, Any, T]) -> T:
    """Run `coro` on the loop and wait for its result; an interrupt here cancels it there.

    May be called in any thread, also in one with a running loop of its own (a notebook's), which it blocks meanwhile.

    Raises:
        RuntimeError: It is called on the loop itself, which would wait for itself.
    """
    if _is_on_loop():
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
    return await (coro if _is_on_loop() else asyncio.wrap_future(submit(coro)))


def _is_on_loop() -> bool:
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


# --- the LM ---


@dataclass(slots=True, eq=False)
class _Call:
    """A call from its lookup in the store to its reply."""

    key: str
    tag: CallTag
    messages: Messages = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    task: asyncio.Task[Reply] = field(init=False)
    began: float = field(default_factory=time.monotonic)
    awaited: bool = True
    """Whether its caller still awaits it."""
    claimed: bool = False
    slot: Estimate | None = None
    """What it holds a slot of the limiter with; it keeps the slot during the pause after a 429."""
    from_store: bool = False
    """Whether its reply came from the store."""
    in_flight: bool = False
    """Whether a request was sent and is not answered yet; its reply is paid for, so it is awaited in any case."""
    was_sent: bool = False
    """Whether it was sent before; its prefix and its turn have been waited for then."""
    elapsed: float = 0.0
    """Seconds of its attempts and pauses, without waiting for slots."""
    responses_seen: int = 0
    """`OutageWatch.responses` at its first attempt or latest failure."""


class JudgeLM(dspy.LM):
    """A `dspy.LM` with a store of replies, limits and usage accounts, which is its own engine. Make one with `make_lm`.

    A call with a tag (`CallTag`) is made and stored once; without one, equal requests are new samples.

    Args:
        model: Model string as DSPy knows it, PROVIDER/MODEL.
        transport: Makes one attempt at a call, asynchronously.
        endpoint: Address of the server, so that two servers with one model name never share replies.
        store: Of its replies; in memory by default.
        concurrency: Maximum number of calls in flight.
        options: Limits, retries, budget.
        price: Of the model, if it is known; needed for a budget in money.
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
        # Not DSPy's advice to raise `max_tokens`, which is done by itself.
        logging.getLogger("dspy.clients.lm").addFilter(_is_no_advice)
        self.endpoint, self.price, self.concurrency = endpoint, price, concurrency
        self.store: ReplyStore = ReplyStore() if store is None else store
        self.meter = Meter()
        """Counts its calls and tokens, together with those of the second LM of its run."""
        self._options = options or LMOptions()
        self._require_price(self._options)
        self._transport, self._is_local = transport, isinstance(transport, LocalTransport)
        self._role = CallTag().role
        """Role of calls without a tag, in the usage accounts."""
        self._second_lms: list[JudgeLM] = []
        self._ended = False
        self._running: dict[str, _Call] = {}
        self.limiter = limits.Limiter(concurrency, self._options)
        self._estimator = limits.Estimator(price)
        self._warmup = None if self._is_local else limits.PrefixWarmup()
        self._parameters = ProviderParameters(model)
        self._outages = limits.OutageWatch(model, self._options, self.limiter, self.probe)
        self._repeats = Counter[str]()
        self._sampled: dict[int, None] | None = {}
        """The latest samples with their questions and ids, hashed, the oldest first; None once a copy was found."""
        # DSPy's own cache and retries are off.
        super().__init__(
            model, engine=_SynchronousEngine(self), async_engine=self, num_retries=0, cache=False, **kwargs
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeLM:
        # Optimizers deep-copy programs; connections and counters must not be copied.
        return self

    @property
    def destination(self) -> str | None:
        """A message that says where the calls go; None if they are answered inside the process."""
        return None if self._is_local else destination(self.model, self.endpoint)

    def share_run(self, first: JudgeLM, role: str) -> JudgeLM:
        """Before the first call: make this the second LM of the run of `first`, with the same accounts and budget.

        Args:
            first: The LM of the run.
            role: Role of the calls of DSPy's own modules to this LM, in the usage accounts.
        """
        self.share_budget(first)
        self.meter, self._role = first.meter, role
        self.meter.prices[role] = self.price
        first._second_lms.append(self)
        return self

    def share_budget(self, first: JudgeLM) -> None:
        """Before the first call: spend from the budget of `first`, so that the cap is one for both."""
        self._require_price(first._options)
        self.limiter.budget = first.limiter.budget

    def _require_price(self, options: LMOptions) -> None:
        if options.budget.usd is not None and self.price is None:
            raise ValueError("a budget in money needs a price")

    async def discard(self, keys: Iterable[str]) -> None:
        """Forget replies that could not be used, so that the next run asks again: the server may have been mended."""
        for key in keys:
            await self.store.discard(key)

    async def acall(self, *arguments: Any, **keywords: Any) -> Any:
        with _unwrapped():
            return await super().acall(*arguments, **keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        with _unwrapped():
            return super().__call__(*arguments, **keywords)

    @property
    def calls_in_flight(self) -> int:
        """Number of requests without an answer, those of the second LM included; may be read in any thread."""
        calls = [call for lm in (self, *self._second_lms) for call in lm._running.copy().values()]
        return sum(call.in_flight for call in calls)

    async def aclose(self, *, for_good: bool = False) -> None:
        """End all calls and close the connections, those of the second LM included. The replies to requests that were
        sent are waited for: they are paid for.

        Args:
            for_good: Whether later calls are refused: threads of DSPy's optimizers outlive an interrupt.
        """

        async def close(lm: JudgeLM) -> None:
            lm._ended = for_good
            calls = [*lm._running.values()]
            for call in calls:
                if not call.in_flight:
                    call.task.cancel()
            await asyncio.gather(*(call.task for call in calls), return_exceptions=True)
            await lm._transport.aclose()

        await asyncio.gather(*(on_loop(close(lm)) for lm in (self, *self._second_lms)))

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
        if (tag := CALL_TAG.get()) is not None:
            number = {"sample": tag.sample}
        else:
            # The n-th of equal requests has the key of the n-th one in any process that sends them in the same order.
            tag, equal = CallTag(self._role), key_of(self.model, self.endpoint, messages, settings)
            self._repeats[equal] += 1
            number = {"repeat": self._repeats[equal]}
        call = _Call(key_of(self.model, self.endpoint, messages, settings | number), tag, messages, settings)
        if self._ended:
            raise asyncio.CancelledError
        self.meter.requested[tag.role] += 1
        try:
            reply = await self._once(call, self._make)
        except Exception:
            self.meter.failed[tag.role] += 1
            raise
        if call.from_store:
            self.meter.count_hit(tag.role, reply, round=tag.round)
        if (on_reply := ON_REPLY.get()) is not None:
            on_reply(call.key, reply)
        return call.key, reply

    async def get_or_create(self, key: str, role: str, create: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply stored under `key`, else that of `create`, which one caller of all processes executes."""

        async def make(call: _Call) -> Reply:
            reply = await wait_or_claim(self.store, key)
            if reply is None:
                call.claimed = True
                reply = await create()
                await self.store.put(key, role, reply)
                call.claimed = False
            return reply

        return await on_loop(self._once(_Call(key, CallTag(role)), make))

    async def _once(self, call: _Call, make: Callable[[_Call], Awaitable[Reply]]) -> Reply:
        """The stored reply, or that of `make`, which is called once for all concurrent callers with the same key."""
        while (reply := await self.store.get(call.key)) is None:
            if (running := self._running.get(call.key)) is None:
                return await self._start(call, make)
            # If it fails or is cancelled, this caller makes the call.
            await asyncio.wait((running.task,))
        call.from_store = True
        return reply

    async def _start(self, call: _Call, make: Callable[[_Call], Awaitable[Reply]]) -> Reply:
        async def work() -> Reply:
            try:
                return await make(call)
            finally:
                if call.claimed:
                    await self.store.release(call.key)

        self._running[call.key] = call
        call.task = asyncio.create_task(work())
        call.task.add_done_callback(lambda _: self._running.pop(call.key))
        call.task.add_done_callback(limits.retrieve_error)
        try:
            return await asyncio.shield(call.task)
        except asyncio.CancelledError:
            call.awaited = False
            if not call.in_flight:
                call.task.cancel()
            raise

    async def _make(self, call: _Call) -> Reply:
        """Make a call, with retries, until it is answered or has failed for good."""
        options, watch, retries, failures = self._options, self._outages, 0, 0
        try:
            while True:
                try:
                    return await self._attempt(call)
                except Exception as error:
                    if self._may_concern_one_text(error):
                        raise await self._confirmed(call, error) from None
                    if not limits.is_retryable(error):
                        raise
                    # The limiter slows down until there is no 429; one is a failure only if no call at all is answered.
                    rate_limited = getattr(error, "status", None) == 429
                    no_response, call.responses_seen = call.responses_seen == watch.responses, watch.responses
                    retries, failures = retries + 1, failures + (no_response or not rate_limited)
                    pause = limits.retry_wait(error, retries, options.first_wait, options.max_wait)
                    late = not call.awaited or call.elapsed + pause >= options.deadline
                    if late or failures > self._allowed_failures(error):
                        self._release_slot(call)
                        if call.awaited and no_response and await watch.was_down():
                            # It starts over.
                            retries, pause, call.elapsed = 0, 0.0, 0.0
                        elif late or not rate_limited:
                            raise
                        failures = 0
                call.elapsed += pause
                await asyncio.sleep(pause)
        finally:
            self._release_slot(call)

    def _allowed_failures(self, error: Exception) -> int:
        code = getattr(error, "provider_code", None)
        if code == limits.NOT_LISTENING and not self._outages.responses:
            return 0
        # Each attempt that brought an unusable response is paid for.
        return min(self._options.retries, 1) if code == limits.UNUSABLE else self._options.retries

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

    def _release_slot(self, call: _Call) -> None:
        if call.slot is not None:
            self.limiter.release(call.slot)
            call.slot = None

    async def _attempt(self, call: _Call) -> Reply:
        """Wait for the prefix, a slot and the claim; send once; store the reply."""
        in_order = nullcontext() if self._warmup is None or call.was_sent else self._warmup.in_order(call.messages)
        async with in_order:
            self._release_slot(call)
            slot = await self._acquire(call)
            if isinstance(slot, Reply):
                return slot
            call.slot = slot
            try:
                reply = await self._send(call, slot)
            except Exception as error:
                # After a 429 it keeps its slot during the pause: another call in it would only get a 429 as well.
                if getattr(error, "status", None) != 429:
                    self._release_slot(call)
                raise
            # The slot is kept until the reply is stored, so that a kill never loses more replies than there are slots.
            await self.store.put(call.key, call.tag.role, reply)
            call.claimed = False
            self._release_slot(call)
        return reply

    async def _acquire(self, call: _Call) -> Estimate | Reply:
        """Acquire a slot and the claim; the reply, and no slot, if another process has stored it meanwhile.

        What waits for the claim of another process has no slot: processes cannot deadlock.
        """
        size = sum(len(message["content"].encode()) for message in call.messages)
        while True:
            slot = self._estimator.estimate(size, call.settings.get("max_tokens"))
            await self.limiter.acquire(slot, front=call.was_sent, began=call.began)
            try:
                if self._outages.probing is not None:
                    await asyncio.shield(self._outages.probing)
                outcome = call.claimed or await self.store.get_or_claim(call.key)
            except BaseException:
                self.limiter.release(slot, unsent=True)
                raise
            if outcome is True:
                call.claimed = True
                return slot
            self.limiter.release(slot, unsent=True)
            if reply := outcome or await wait_or_claim(self.store, call.key):
                call.from_store = True
                return reply
            call.claimed = True

    async def _send(self, call: _Call, slot: Estimate) -> Reply:
        """Send once and account for the outcome."""
        options, sent_at = self._options, time.monotonic()
        if not call.was_sent:
            call.responses_seen = self._outages.responses
        call.was_sent = call.in_flight = True
        try:
            timeout = min(options.attempt_timeout, options.deadline - call.elapsed)
            reply = await self._chat(call.messages, call.settings, call.tag, slot, timeout)
        except Exception as error:
            call.in_flight = False
            call.elapsed += time.monotonic() - sent_at
            status = getattr(error, "status", None)
            if not limits.is_retryable(error):
                # An error status is a response, too: the provider is not down.
                self._outages.responses += status is not None
                if limits.affects_all_calls(error) and not self._may_concern_one_text(error):
                    self.limiter.fail_all(error)
            elif status in limits.OVERLOAD_STATUSES or isinstance(error, lm15.TimeoutError):
                self.limiter.on_overload(sent_at, min(getattr(error, "retry_after", None) or 0.0, options.max_wait))
            raise
        self._watch_copies(call, reply)
        return reply

    async def _chat(
        self, messages: Messages, settings: Mapping[str, Any], tag: CallTag, slot: Estimate, timeout: float
    ) -> Reply:
        """Send once, in a slot, and charge what it cost or may have cost."""

        async def send(accepted: dict[str, Any]) -> Reply:
            return await self._transport.chat(self.model, messages, accepted)

        try:
            async with asyncio.timeout(timeout):
                reply = await self._parameters.call(send, settings)
        except Exception as raised:
            error = limits.redact_error(raised)
            lost = isinstance(error, lm15.TimeoutError) and error.status is None
            if lost or getattr(error, "provider_code", None) in limits.MAY_BE_CHARGED:
                self.limiter.budget.charge(slot.max_cost)
            raise error from None
        self._outages.responses += 1
        self._outages.answered = True
        self.meter.count_reply(tag.role, reply, round=tag.round)
        self.limiter.on_success(slot, *self._estimator.observe(slot.size, reply))
        return reply

    def _watch_copies(self, call: _Call, reply: Reply) -> None:
        """Say, once, that samples are copies of each other, as from a gateway's cache: their mean is that of one."""
        if self._sampled is None or call.tag.sample is None:
            return
        answer = hash((*(message["content"] for message in call.messages), reply.id, reply.text))
        is_copy = reply.id is not None and answer in self._sampled
        if is_copy or reply.from_cache:
            self._sampled = None
            how = "with the id of another one" if is_copy else "from its cache"
            _LOG.warning(
                "%s: the server answers a sample %s, so that several samples are one reply; switch the cache of the "
                "gateway off, or choose the score mode text", self.model, how,
            )  # fmt: skip
            return
        self._sampled[answer] = None
        if len(self._sampled) > 10_000:
            del self._sampled[next(iter(self._sampled))]

    async def probe(self) -> None:
        """A minimal call that any model can answer; tells an outage from calls that fail by themselves."""
        # Never the same text twice, because a gateway may cache answers.
        text = f"Reply with OK. ({uuid.uuid4().hex[:12]})"
        settings = {name: value for name, value in self.kwargs.items() if value is not None}
        # Reserved as any text, but observed as one of no bytes, because so short a text says little about others.
        slot = replace(self._estimator.estimate(len(text), settings.get("max_tokens")), size=0)
        if not self.limiter.budget.admits(slot.max_cost):
            raise self.limiter.budget.spent_error()
        self.meter.requested["probe"] += 1
        # It takes a slot without waiting: with nothing in flight its reservation would fail the waiting calls.
        self.limiter.acquire_nowait(slot)
        try:
            messages = [{"role": "user", "content": text}]
            await self._chat(messages, settings, CallTag("probe"), slot, self._options.attempt_timeout)
        except Exception:
            self.meter.failed["probe"] += 1
            raise
        finally:
            self.limiter.release(slot)


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
    names = ("temperature", "max_tokens", "top_p", "seed", "logprobs")
    return {name: value for name in names if (value := getattr(request.config, name)) is not None}


def key_of(model: str, endpoint: str, messages: Messages, settings: Mapping[str, Any]) -> str:
    """Key of a call. No secret enters it."""
    given = {name: value for name, value in settings.items() if value is not None}
    digest = hashlib.blake2b(json.dumps([model, endpoint, given], sort_keys=True).encode(), digest_size=16)
    for message in messages:
        content = message["content"].encode()
        # The length separates one message from the next.
        digest.update(f"{message['role']} {len(content)} ".encode() + content)
    return digest.hexdigest()


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


class _SynchronousEngine:
    """DSPy's synchronous engine of a `JudgeLM`: blocks the calling thread until the asynchronous one has replied."""

    def __init__(self, lm: JudgeLM) -> None:
        self._lm = lm

    def complete(self, request: Request) -> Response:
        try:
            return run(self._lm.complete(request))
        except CancelledError:
            raise dspy.LMUnexpectedError("the run ended before the call was answered") from None


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise the `InputError` itself, e.g. of a full disk, which DSPy wraps as an unexpected one."""
    try:
        yield
    except dspy.LMUnexpectedError as error:
        raise error.__cause__ if isinstance(error.__cause__, InputError) else error from None


def _is_no_advice(record: logging.LogRecord) -> bool:
    return "response was truncated" not in record.getMessage()
