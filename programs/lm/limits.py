"""When a call may be sent, and what follows from a failure: slots, rate limits, budget, prefix warm-up, waits, outages.

All debates run concurrently, and their calls are served first come, first served. The number in flight adapts like a
TCP window (additive increase, multiplicative decrease): a refusal (429, 503, 529) or a timeout takes 15 % away, a
window's worth of successes adds a sixteenth of the concurrency that the user allows, which is the maximum. A budget is
never exceeded: the maximum cost of a call is reserved before it, its real cost charged after.

There is one rule for outages. If any call was answered between the last two failures of a call, its failures are its
own. If none was, one minimal call (the probe) that any model can answer is sent, and no other call meanwhile. If the
probe is answered, the calls failed by themselves. If it fails, the provider is down, and the probe is repeated for
`LMOptions.max_outage` seconds. Once it is answered, the failed calls start over; otherwise the run ends, to be resumed
without paying for finished calls again. A refusal that may concern all calls or one text alone (no credit, access
forbidden, and any other before a call was answered) is confirmed by the probe.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np
from dspy import lm15
from numpy.typing import NDArray

from debate_judge.programs.lm.replies import Messages, Reply
from debate_judge.programs.lm.settings import BudgetCaps, LMOptions, Price, redact_text

_LOG = logging.getLogger(__name__)

# --- errors ---

NOT_LISTENING = "nothing listens"
"""`provider_code` if no server listens on a port of this machine."""
MISMATCHED = "mismatched response"
"""`provider_code` if something other than the response to the request came; the server may charge for the request."""
INCOMPLETE = "incomplete response"
"""`provider_code` if the response was incomplete or not HTTP; the server may charge for it."""
UNUSABLE = "unusable response"
"""`provider_code` if a whole response, which names the tokens to be paid, holds no reply."""
MAY_BE_CHARGED = (MISMATCHED, INCOMPLETE, UNUSABLE)
OVERLOAD_STATUSES = (429, 503, 529)
"""HTTP statuses of a server that wants fewer requests."""


class ProviderDownError(dspy.LMError):
    """The provider is down. Earlier replies are stored; run the command again later."""


class BudgetSpentError(dspy.LMError):
    """The next call might exceed the budget. Earlier replies are stored; run the command again with a larger one."""


class TooManyUnscoredError(dspy.LMError):
    """More texts than `max-unscored` allows have no score, so that any figure would be that of a part of them."""


_FATAL = (
    *(dspy.LMAuthError, dspy.LMBillingError, dspy.LMConfigurationError, dspy.LMUnsupportedModelError),
    *(ProviderDownError, BudgetSpentError),
    *(lm15.AuthError, lm15.BillingError, lm15.ConfigurationError, lm15.UnsupportedModelError),
)


def affects_all_calls(error: Exception) -> bool:
    """Whether every call of the LM would fail, because of a wrong key, an unknown model, an outage, ..."""
    return isinstance(error, _FATAL)


def is_fatal(error: Exception) -> bool:
    """Whether it ends a run of one judge: it affects all calls, or all that ask for a feature that the LM lacks."""
    return isinstance(error, (*_FATAL, dspy.LMUnsupportedFeatureError))


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    return isinstance(error, lm15.RETRYABLE_ERRORS) or dspy.is_retryable_lm_error(error)


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Else asyncio would log the exception of a task that nothing awaits any more."""
    if not task.cancelled():
        task.exception()


def redact_error(error: Exception) -> lm15.LM15Error | dspy.LMError:
    """A transport's error without secrets."""
    if isinstance(error, dspy.LMError):
        return error
    if isinstance(error, lm15.LM15Error):
        error.message = redact_text(error.message)
        error.args = (error.message,)
        return error
    error_class = lm15.TimeoutError if isinstance(error, TimeoutError) else lm15.LM15Error
    return error_class(redact_text(str(error) or "no answer in time"))


def describe(error: dspy.LMError, spec: str) -> str:
    """The message of a command whose run was ended by `error`, with a remedy; `spec` is the LM, PROVIDER/MODEL."""
    provider = spec.partition("/")[0].upper()
    remedies: dict[type[dspy.LMError], str] = {
        dspy.LMNotConfiguredError: "set what is missing in the environment",
        dspy.LMAuthError: f"give a valid key in the environment variable {provider}_API_KEY",
        dspy.LMUnsupportedModelError: f"check the model's name after the slash in {spec!r}, and the address if you "
        "gave one",
        dspy.LMBillingError: f"the account behind {provider}_API_KEY has no credit left: add some",
        TooManyUnscoredError: "fix the cause, or allow more with --max-unscored",
        BudgetSpentError: "raise --budget",
        ProviderDownError: "wait until the provider answers",
        dspy.LMError: "fix the problem",
    }
    remedy = next(text for kind, text in remedies.items() if isinstance(error, kind))
    if error.provider_code == NOT_LISTENING:
        remedy = f"start the server, or correct its address (--api-base, {provider}_API_BASE)"
    # DSPy's own advice is for programmers.
    message = str(error).partition("\n\n  To fix:")[0].strip()
    resume = "run the command again; it resumes, and finished calls are not paid for again"
    return f"error: the LM failed: {message}\n  remedy:   {remedy}, then {resume}"


# --- what a call may cost ---

TOKENS_PER_BYTE = 0.27
"""Tokens per byte of UTF-8 text, until the first reply gives a measured ratio."""
Cost = NDArray[np.float64]
"""Calls, tokens (input and output), US dollars."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a call is expected to use, and the most that it can use."""

    size: int
    """UTF-8 bytes of its texts."""
    tokens: float
    """Expected, input and output together."""
    max_cost: Cost
    max_output: float


class Estimator:
    """Estimates what a call uses before it is made, from the replies so far; `price` is that of its model."""

    def __init__(self, price: Price | None) -> None:
        self._price = price or Price(0.0, 0.0, 0.0)
        self._count, self._bytes, self._input, self._output = 0, 0, 0.0, 0.0
        # Half a token per byte is more than any usual text needs.
        self._max_per_byte, self._max_output = 0.5, 1000.0

    @property
    def _per_byte(self) -> float:
        return self._input / self._bytes if self._bytes else TOKENS_PER_BYTE

    def estimate(self, size: int, max_tokens: int | None) -> Estimate:
        """The estimate for a call with `size` bytes of text and a reply of at most `max_tokens`, if that is set."""
        max_output = max_tokens or 4 * self._max_output
        output = min(self._output / self._count if self._count else 300.0, max_output)
        # Servers add some tokens around each message.
        max_input = size * self._max_per_byte + 32
        max_cost = np.array([1.0, max_input + max_output, self._price.cost(max_input, 0.0, max_output)])
        return Estimate(size, size * self._per_byte + output, max_cost, max_output)

    def observe(self, size: int, reply: Reply) -> tuple[Cost, float]:
        """What the reply to a call of `size` bytes cost, and its output tokens; they are estimated where the provider
        does not report them."""
        tokens_in, tokens_out = float(reply.input_tokens), float(reply.output_tokens)
        if not tokens_in:
            tokens_in = size * self._per_byte
            tokens_out = tokens_out or len(reply.text.encode()) * self._per_byte
        elif size:
            ratio = 1.1 * tokens_in / size
            self._max_per_byte = max(ratio, self._max_per_byte) if self._count else ratio
            self._max_output = max(self._max_output, tokens_out)
            self._count, self._bytes = self._count + 1, self._bytes + size
            self._input, self._output = self._input + tokens_in, self._output + tokens_out
        usd = self._price.cost(tokens_in - reply.cached_tokens, reply.cached_tokens, tokens_out)
        return np.array([1.0, tokens_in + tokens_out, usd]), tokens_out


class Budget:
    """Keeps the calls of one or several LMs within caps, those in flight included. Belongs to one event loop."""

    def __init__(self, caps: BudgetCaps) -> None:
        self._caps = caps
        self._limits = np.array([math.inf if cap is None else cap for cap in (caps.calls, caps.tokens, caps.usd)])
        self._spent, self.reserved = np.zeros(3), np.zeros(3)
        self._overrun = np.ones(3)
        """By how much the longest reply exceeded its limit, for tokens and money: some models' reasoning has none."""

    def admits(self, cost: Cost) -> bool:
        """Whether a call of at most this cost exceeds no cap, whatever those in flight will cost."""
        most = self._spent + (self.reserved + cost) * self._overrun
        return bool((most <= self._limits * (1 + 1e-12)).all())

    def charge(self, cost: Cost, overrun: float = 1.0) -> None:
        """Charge a call; its output was `overrun` times as long as its limit."""
        self._spent += cost
        self._overrun[1:] = max(self._overrun[1], overrun)

    def spent_error(self) -> BudgetSpentError:
        """The error for a spent budget, with what was used of each cap."""
        caps = (
            ("{:,.0f} of {:,} calls", self._caps.calls),
            ("{:,.0f} of {:,} tokens", self._caps.tokens),
            ("${:.4f} of ${:g}", self._caps.usd),
        )
        used = [
            text.format(spent, cap) for (text, cap), spent in zip(caps, self._spent, strict=True) if cap is not None
        ]
        return BudgetSpentError(f"the next call might exceed the budget: {', '.join(used)} are spent")


# --- slots ---

_KEPT = 0.85
"""Share of the window that stays after an overload. Simulated with 5,000 calls of a second, 128 at once (39 s at best):
where one in 200 is refused at random, they take 46 s, and 85 s with half; where 64 are served at once, 84 s with 296
refusals, and 97 s with 117."""
_GROWTH_WINDOWS = 16
"""Windows of successes in which the window grows from none to its maximum."""


class Bucket:
    """A token bucket: at most `per_minute` units in any minute, a second's worth of them at once after a pause."""

    def __init__(self, per_minute: float | None) -> None:
        limit = per_minute or math.inf
        # A bucket that holds b and fills at r lets through b - 1 + 60 r whole units a minute at most.
        self._size = max(1.0, limit / 60)
        self._rate = (limit - self._size + 1.0) / 60 if per_minute else 1.0
        self._level, self._updated = self._size, time.monotonic()

    def wait(self, amount: float) -> float:
        """Seconds until `amount` may be taken; an amount larger than the bucket may when it is full."""
        now = time.monotonic()
        self._level = min(self._size, self._level + (now - self._updated) * self._rate)
        self._updated = now
        seconds = (min(amount, self._size) - self._level) / self._rate
        # The clock can hardly measure less.
        return seconds if seconds > 1e-6 else 0.0

    def take(self, amount: float) -> None:
        """Take `amount`, or give back a negative one. The level may fall below zero; then the next ones wait longer."""
        self._level = min(self._size, self._level - amount)


class Limiter:
    """Gives calls slots: limits concurrency, rate and cost. Belongs to one event loop; a waiting call may be cancelled.

    When a call exceeds the budget and nothing is in flight, all waiting calls fail.
    """

    def __init__(self, concurrency: int, options: LMOptions) -> None:
        self._concurrency, self.in_flight = concurrency, 0
        self.window = float(concurrency)
        """Calls that may be in flight now."""
        self.budget = Budget(options.budget)
        self._requests, self._tokens = Bucket(options.rpm), Bucket(options.tpm)
        self._waiting: deque[tuple[asyncio.Future[None], Estimate]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._paused_until = self._last_cut = self._failed_at = 0.0
        self._failure: Exception | None = None
        """Of the latest `fail_all`."""
        self._failing = False
        """Whether calls that were in flight then still are: the run notices the error some iterations of the loop later
        and must not send more meanwhile."""

    async def acquire(self, call: Estimate, *, front: bool = False, began: float = math.inf) -> None:
        """Wait for a slot, a retry at the `front`, for a call that was asked for when `time.monotonic` was `began`.

        Raises:
            BudgetSpentError: Nothing is in flight, and the budget does not allow this call.
            Exception: The error of `fail_all`.
        """
        if self._failure is not None and (self._failing or began < self._failed_at):
            raise self._failure
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if front else self._waiting.append)((future, call))
        self._wake()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # It got its slot and was cancelled in the same iteration of the loop: the slot goes to the next call.
                self.release(call)
            else:
                self._wake()
            raise

    def acquire_nowait(self, call: Estimate) -> None:
        """Take a slot without waiting for it, even above the limits."""
        self.in_flight += 1
        self.budget.reserved += call.max_cost
        self._requests.take(1.0)
        self._tokens.take(call.tokens)

    def release(self, call: Estimate, *, unsent: bool = False) -> None:
        """Release a slot; if the call was not sent after all, the rate limits are as before."""
        self.in_flight -= 1
        self.budget.reserved -= call.max_cost
        self._failing = self._failing and self.in_flight > 0
        if unsent:
            self._requests.take(-1.0)
            self._tokens.take(-call.tokens)
        self._wake()

    def on_success(self, call: Estimate, cost: Cost, output: float) -> None:
        """Record that a call was answered: charge it, correct the rate limit, let the window grow."""
        self.budget.charge(cost, output / call.max_output)
        self._tokens.take(float(cost[1]) - call.tokens)
        growth = max(1.0, self._concurrency / _GROWTH_WINDOWS)
        self.window = min(float(self._concurrency), self.window + growth / self.window)

    def on_overload(self, sent_at: float, wait: float = 0.0) -> None:
        """Record that a call, sent when `time.monotonic` was `sent_at`, met a rate limit or an overloaded server, or
        timed out: the window shrinks, and no call is sent for `wait` seconds (Retry-After)."""
        now = time.monotonic()
        self._paused_until = max(self._paused_until, now + wait)
        # All calls of one burst meet the same limit: it cuts the window once.
        if sent_at >= self._last_cut:
            self._last_cut = now
            self.window = max(1.0, _KEPT * min(self.window, self.in_flight))

    def fail_all(self, error: Exception) -> None:
        """Fail all waiting calls with `error`, which each of them would meet as well. So do all that were asked for
        before, e.g. those that wait for another process, and all others until none is in flight any more."""
        self._failure, self._failed_at, self._failing = error, time.monotonic(), self.in_flight > 0
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def _wake(self) -> None:
        """Give slots to waiting calls as far as the limits allow; called whenever that may have changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            future, call = self._waiting[0]
            if not future.done():
                if self.in_flight >= int(self.window) or not self.budget.admits(call.max_cost):
                    if self.in_flight == 0:
                        self.fail_all(self.budget.spent_error())
                    return
                pause = max(
                    self._paused_until - time.monotonic(), self._requests.wait(1.0), self._tokens.wait(call.tokens)
                )
                if pause > 0.0:
                    self._timer = asyncio.get_running_loop().call_later(pause, self._wake)
                    return
                self.acquire_nowait(call)
                future.set_result(None)
            self._waiting.popleft()


# --- prefix warm-up ---

SOURCE: ContextVar[str] = ContextVar("source", default="")
"""The source text that the calls of the running task share with those of other tasks."""
_PREFIX_LIFETIME = 300.0
"""Seconds after its last use for which a prefix counts as cached: hosted providers promise five minutes or more."""


class PrefixWarmup:
    """Sends the first call about a source before the others, so that these find it in the provider's prefix cache.

    Sent all at once they would all miss it: a prefix can be reused only after the request that had it first was
    answered. Waiting takes no slot. After the first attempt all others follow, whatever came of it.
    """

    def __init__(self) -> None:
        self._attempted: dict[int, tuple[asyncio.Event, float]] = {}
        """Hash of a source -> whether its first call was attempted, and when the latest one was; the oldest first."""

    @asynccontextmanager
    async def in_order(self, messages: Messages) -> AsyncIterator[None]:
        """Wait until a call may be sent; leaving the context means that it was attempted."""
        source = SOURCE.get()
        if not source or source not in messages[-1]["content"]:
            yield
            return
        prefix = hash(source)
        known = self._attempted.get(prefix)
        if known is None or (known[0].is_set() and known[1] < time.monotonic() - _PREFIX_LIFETIME):
            event = asyncio.Event()
            self._attempted[prefix] = event, 0.0
        else:
            event = known[0]
            await event.wait()
        try:
            yield
        finally:
            event.set()
            self._attempted.pop(prefix, None)
            self._attempted[prefix] = event, time.monotonic()
            # A judge may serve for months.
            if len(self._attempted) > 100_000:
                del self._attempted[next(iter(self._attempted))]


# --- waits and outages ---


def retry_wait(error: BaseException | None, failures: int, first: float, max_wait: float) -> float:
    """Seconds until the next attempt: Retry-After, else `first`, doubled for each further failure, plus random jitter
    of up to `first`; `max_wait` is the maximum of both."""
    if getattr(error, "provider_code", None) == MISMATCHED:
        # It says nothing about the provider.
        return 0.0
    requested = getattr(error, "retry_after", None)
    # "Come back at once" is believed once.
    if requested is not None and (requested >= 0.1 or failures == 1):
        requested = min(requested, max_wait)
        # Never less than Retry-After, which would only be refused again.
        return float(requested + random.uniform(0.0, min(first, 0.1 * requested + 0.1)))
    # After a 429 the limiter slows all calls down anyway.
    doublings = min(failures - 1, 3 if getattr(error, "status", None) == 429 else 30)
    return float(min(max_wait, first * 2.0**doublings)) + random.uniform(0.0, first)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by Retry-After, or by OpenAI's header in milliseconds, names in lower case; None if neither can
    be read."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, OverflowError, TypeError, LookupError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


class OutageWatch:
    """Tells outages of a model's provider from calls that fail by themselves. Belongs to one event loop.

    `probe` makes the minimal call once, and raises its error.
    """

    def __init__(self, model: str, options: LMOptions, limiter: Limiter, probe: Callable[[], Awaitable[None]]) -> None:
        self._model, self._options, self._limiter, self._probe = model, options, limiter, probe
        self.responses = 0
        """Number of responses so far to any call, error statuses included."""
        self.answered = False
        """Whether any call got a reply, so that the key and the model are known to work."""
        self.probing: asyncio.Task[bool] | None = None
        """The probe that is running."""

    async def was_down(self) -> bool:
        """Probe the provider: True if it was down and answers again, False if it was not down.

        Raises:
            ProviderDownError: It stays down.
            lm15.LM15Error: It refuses the probe for a reason that holds for all calls, such as a key without credit.
        """
        if self.probing is None:
            self.probing = asyncio.create_task(self._probe_or_fail_all())
            self.probing.add_done_callback(self._on_probe_done)
        return await asyncio.shield(self.probing)

    async def _probe_or_fail_all(self) -> bool:
        try:
            return await self._probe_until_answered()
        except Exception as error:
            # At once: after an iteration of the loop a waiting call would have got the slot of the probe.
            self._limiter.fail_all(error)
            raise

    def _on_probe_done(self, probing: asyncio.Task[bool]) -> None:
        # Not before: what has got the slot of the probe meanwhile must see how it ended.
        self.probing = None
        retrieve_error(probing)

    async def _probe_until_answered(self) -> bool:
        start, wait, was_down = time.monotonic(), self._options.first_wait, False
        while True:
            try:
                await self._probe()
            except lm15.LM15Error as error:
                if affects_all_calls(error):
                    raise
                if not is_retryable(error):
                    if error.status is not None and not self.answered:
                        raise lm15.ConfigurationError(f"a harmless call is refused, too: {error.message}") from error
                    # The provider answers, if only by an error.
                    return was_down
                elapsed = time.monotonic() - start
                # A provider that has never answered is not waited for, unless it says that it is overloaded.
                max_outage = self._options.max_outage if self.responses or error.status in OVERLOAD_STATUSES else 0.0
                if elapsed + wait > max_outage:
                    raise ProviderDownError(
                        f"no call was answered for {elapsed:.0f} s; the last failure: {error.message[:500]}",
                        model=self._model,
                        status=error.status,
                        provider_code=None if self.responses else error.provider_code,
                    ) from error
                if not was_down:
                    reason = error.message[:200]
                    _LOG.warning("%s does not respond (%s); calls are paused until it does", self._model, reason)
            else:
                if was_down:
                    _LOG.warning("%s responds again after %.0f s", self._model, time.monotonic() - start)
                return was_down
            was_down = True
            await asyncio.sleep(wait)
            wait = min(2 * wait, 10.0)
