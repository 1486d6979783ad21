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
import copy
import email.utils
import logging
import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import dspy
from dspy import lm15

from debate_judge.programs.lm.replies import Messages, Reply
from debate_judge.programs.lm.settings import BudgetCaps, LMOptions, Price, redact_text

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


class ProviderDownError(dspy.LMError):
    """The provider is down. Earlier replies are stored; run the command again later."""

    default_code = "provider_down"


class BudgetSpentError(dspy.LMError):
    """The next call might exceed the budget. Earlier replies are stored; run the command again with a larger one."""

    default_code = "budget_spent"


class TooManyUnscoredError(dspy.LMError):
    """More texts than `max-unscored` allows have no score, so that any figure would be that of a part of them."""

    default_code = "too_many_unscored"


_FATAL = (
    dspy.LMAuthError,
    dspy.LMBillingError,
    dspy.LMConfigurationError,
    dspy.LMUnsupportedFeatureError,
    dspy.LMUnsupportedModelError,
    ProviderDownError,
    BudgetSpentError,
)


def is_fatal(error: Exception) -> bool:
    """Whether it ends the run, because other calls would fail too: a wrong key, an unknown model, an outage, ..."""
    return isinstance(error, _FATAL)


def affects_all_calls(error: Exception) -> bool:
    """Whether it is fatal for all calls of the LM, not only for those that ask for the same feature."""
    # One judge may need a feature that the LM lacks, such as log-probabilities, and others not.
    of_transport = (lm15.AuthError, lm15.BillingError, lm15.ConfigurationError, lm15.UnsupportedModelError)
    fatal = is_fatal(error) and not isinstance(error, dspy.LMUnsupportedFeatureError)
    return fatal or isinstance(error, of_transport)


def redact_error(error: Exception, key: str | None = None) -> lm15.LM15Error | dspy.LMError:
    """A transport's error without `key` and other secrets."""
    if isinstance(error, dspy.LMError):
        return error
    if not isinstance(error, lm15.LM15Error):
        error_class = lm15.TimeoutError if isinstance(error, TimeoutError) else lm15.LM15Error
        return error_class(redact_text(str(error) or "no answer in time", key))
    error.message = redact_text(error.message, key)
    error.args = (error.message,)
    return error


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    return isinstance(error, lm15.RETRYABLE_ERRORS) or dspy.is_retryable_lm_error(error)


_DSPY_ADVICE = "\n\n  To fix:"
"""Beginning of DSPy's own advice in its errors, which is for programmers."""


def describe(error: dspy.LMError, spec: str) -> str:
    """The message of a command whose run was ended by `error`; `spec` is the LM, PROVIDER/MODEL."""
    return f"error: the LM failed: {str(error).partition(_DSPY_ADVICE)[0].strip()}\n  remedy:   {remedy(error, spec)}"


def remedy(error: dspy.LMError, spec: str) -> str:
    """What the user can do about an error that ended a run; `spec` is the LM, PROVIDER/MODEL."""
    variable = f"{spec.partition('/')[0].upper()}_API_KEY"
    resume = "run the command again; it resumes, and finished calls are not paid for again"
    if isinstance(error, dspy.LMNotConfiguredError):
        return f"set what is missing in the environment, then {resume}"
    if isinstance(error, dspy.LMAuthError):
        return f"give a valid key in the environment variable {variable}, then {resume}"
    if isinstance(error, dspy.LMUnsupportedModelError):
        return f"check the model's name after the slash in {spec!r}, and the address if you gave one, then {resume}"
    if isinstance(error, dspy.LMBillingError):
        return f"the account behind {variable} has no credit left: add some, then {resume}"
    if isinstance(error, TooManyUnscoredError):
        return f"fix the cause, or allow more with --max-unscored, and {resume}"
    if isinstance(error, BudgetSpentError):
        return f"raise --budget and {resume}"
    if error.provider_code == NOT_LISTENING:
        return f"start the server, or correct its address (--api-base, {spec.partition('/')[0].upper()}_API_BASE)"
    if isinstance(error, ProviderDownError):
        return f"wait until the provider answers, then {resume}"
    return f"fix the problem and {resume}"


# --- limits ---

_LOG = logging.getLogger(__name__)

_KEPT = 0.85
"""Share of the window that stays after an overload. Simulated with 5,000 calls of a second, 128 at once (39 s at best):
where one in 200 is refused at random, they take 46 s, and 85 s with half; where 64 are served at once, 84 s with 296
refusals, and 97 s with 117."""
_GROWTH_WINDOWS = 16
"""Windows of successes in which the window grows from none to its maximum."""

TOKENS_PER_BYTE = 0.27
"""Tokens per byte of UTF-8 text, until the first reply gives a measured ratio."""


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """The tokens that a call is expected to use, and the most that it can use."""

    tokens: float = 0.0
    """Expected, input and output together."""
    max_input: float = 0.0
    max_output: float = 0.0


NO_TOKENS = TokenEstimate()


class TokenEstimator:
    """Estimates the tokens of a call before it is made, from the replies so far."""

    def __init__(self) -> None:
        # Half a token per byte is more than any usual text needs.
        self._mean_per_byte, self._max_per_byte = TOKENS_PER_BYTE, 0.5
        self._mean_output, self._max_output = 300.0, 1000.0
        self._count = 0

    def estimate(self, size: int, max_tokens: int | None) -> TokenEstimate:
        """The estimate for a call with `size` bytes of text and a reply of at most `max_tokens`, if that is set."""
        max_output = max_tokens or 4 * self._max_output
        mean_output = min(self._mean_output, max_output)
        # Servers add some tokens around each message.
        return TokenEstimate(size * self._mean_per_byte + mean_output, size * self._max_per_byte + 32, max_output)

    def observe(self, size: int, reply: Reply) -> tuple[float, float]:
        """Learn from the reply to a call of `size` bytes.

        Returns:
            Its input and output tokens, estimated if the provider does not report them.
        """
        if not reply.input_tokens:
            return size * self._mean_per_byte, reply.output_tokens or len(reply.text.encode()) * self._mean_per_byte
        if size:
            ratio = reply.input_tokens / size
            weight = max(0.05, 1 / (1 + self._count))
            self._mean_per_byte += weight * (ratio - self._mean_per_byte)
            self._mean_output += weight * (reply.output_tokens - self._mean_output)
            self._max_per_byte = max(1.1 * ratio, self._max_per_byte if self._count else 0.0)
            self._max_output = max(self._max_output, float(reply.output_tokens))
            self._count += 1
        return reply.input_tokens, reply.output_tokens


def _add(account: list[float], amounts: Sequence[float]) -> None:
    # In place, because `Budget.with_price` shares the lists.
    account[:] = [a + b for a, b in zip(account, amounts, strict=True)]


class Budget:
    """Keeps a run within its caps, calls in flight included. Belongs to one event loop."""

    def __init__(self, caps: BudgetCaps, price: Price | None) -> None:
        self._caps = caps
        self._set_price(price)
        self._spent = [0.0, 0.0, 0.0]
        self._reserved = [0.0, 0.0, 0.0]
        self._overrun = [1.0, 1.0, 1.0]
        """By how much the longest reply exceeded its limit, for tokens and money: some models' reasoning has none."""

    def with_price(self, price: Price | None) -> Budget:
        """The same caps and the same account, for the calls of another model at its own price."""
        copied = copy.copy(self)
        copied._set_price(price)
        return copied

    def _set_price(self, price: Price | None) -> None:
        if self._caps.usd is not None and price is None:
            raise ValueError("a budget in money needs a price")
        self._price = price or Price(0.0, 0.0, 0.0)

    def admits(self, estimate: TokenEstimate) -> bool:
        """Whether this call can be made without exceeding any cap, whatever those in flight will cost."""
        cost = self.max_cost(estimate)
        caps = (self._caps.calls, self._caps.tokens, self._caps.usd)
        return all(
            cap is None or spent + (reserved + needed) * overrun <= cap * (1 + 1e-12)
            for cap, spent, reserved, needed, overrun in zip(
                caps, self._spent, self._reserved, cost, self._overrun, strict=True
            )
        )

    def reserve(self, estimate: TokenEstimate) -> None:
        """Reserve the maximum cost of a call."""
        _add(self._reserved, self.max_cost(estimate))

    def release(self, estimate: TokenEstimate) -> None:
        """Undo `reserve` for a call that is over."""
        _add(self._reserved, [-amount for amount in self.max_cost(estimate)])

    def charge(self, tokens: tuple[float, float], cached: int, estimate: TokenEstimate) -> None:
        """Charge a reply: its input and output tokens, `cached` of the input at the lower price."""
        input_tokens, output_tokens = tokens
        cost = self._price.cost(input_tokens - cached, cached, output_tokens)
        _add(self._spent, (1.0, input_tokens + output_tokens, cost))
        if output_tokens > estimate.max_output * self._overrun[1] > 0.0:
            self._overrun[1:] = [output_tokens / estimate.max_output] * 2

    def charge_maximum(self, estimate: TokenEstimate) -> None:
        """Charge a request that was sent and whose answer is lost: its maximum cost."""
        _add(self._spent, self.max_cost(estimate))

    def max_cost(self, estimate: TokenEstimate) -> tuple[float, float, float]:
        """Calls (1), tokens and US dollars that a call can cost at most."""
        cost = self._price.cost(estimate.max_input, 0.0, estimate.max_output)
        return 1.0, estimate.max_input + estimate.max_output, cost

    def spent_error(self) -> BudgetSpentError:
        """The error for a spent budget, with what was used of each cap."""
        caps, (calls, tokens, usd) = self._caps, self._spent
        lines = []
        if caps.calls is not None:
            lines.append(f"{calls:,.0f} of {caps.calls:,} calls")
        if caps.tokens is not None:
            lines.append(f"{tokens:,.0f} of {caps.tokens:,} tokens")
        if caps.usd is not None:
            lines.append(f"${usd:.4f} of ${caps.usd:g}")
        return BudgetSpentError(f"the next call might exceed the budget: {', '.join(lines)} are spent")


class Bucket:
    """A token bucket: at most `per_minute` units in any minute, a second's worth of them at once after a pause."""

    def __init__(self, per_minute: float) -> None:
        # A bucket that holds b and fills at r lets through b - 1 + 60 r whole units a minute at most.
        self._burst = min(max(1.0, per_minute / 60), per_minute) if per_minute >= 1 else 1.0
        self._rate = (per_minute - self._burst + 1.0 if per_minute >= 1 else per_minute) / 60.0
        self._level, self._updated = self._burst, time.monotonic()

    def wait(self, now: float, amount: float) -> float:
        """Seconds until `amount` may be taken; an amount larger than the bucket may when it is full."""
        if now > self._updated:
            self._level = min(self._burst, self._level + (now - self._updated) * self._rate)
            self._updated = now
        seconds = (min(amount, self._burst) - self._level) / self._rate
        # The clock can hardly measure less.
        return seconds if seconds > 1e-6 else 0.0

    def take(self, amount: float) -> None:
        """Take `amount`, or give back a negative one. The level may fall below zero; then the next ones wait longer."""
        self._level = min(self._burst, self._level - amount)


class Limiter:
    """Gives calls slots: limits concurrency and rate. Belongs to one event loop; cancelling a waiting call is safe.

    Args:
        concurrency: Maximum number of calls in flight.
        options: Requests and tokens per minute.
        budget: Checked before each call; when a call exceeds it and nothing is in flight, all waiting calls fail. None
            is one without caps.
    """

    def __init__(self, concurrency: int, options: LMOptions | None = None, budget: Budget | None = None) -> None:
        options = options or LMOptions()
        self.concurrency = concurrency
        self.window = float(concurrency)
        """Calls that may be in flight now."""
        self.in_flight = 0
        self._budget = budget or Budget(BudgetCaps(), None)
        self._requests = None if options.rpm is None else Bucket(options.rpm)
        self._tokens = None if options.tpm is None else Bucket(options.tpm)
        self._waiting: deque[tuple[asyncio.Future[None], TokenEstimate]] = deque()
        self._paused_until = self._last_cut = 0.0
        self._failure: tuple[float, Exception] | None = None
        """When `fail_all` was last called, and its error."""
        self._failing = False
        """Whether calls that were in flight then still are: the run notices the error some iterations of the loop later
        and must not send more meanwhile."""
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(
        self, estimate: TokenEstimate = NO_TOKENS, *, front: bool = False, began: float = math.inf
    ) -> None:
        """Wait for a slot.

        Args:
            estimate: The tokens of the call.
            front: Whether it goes before all waiting calls, as a retry does.
            began: When the call was asked for, on the clock of `time.monotonic`.

        Raises:
            BudgetSpentError: Nothing is in flight, and the budget does not allow this call.
            Exception: The error of `fail_all`.
        """
        if self._failure is not None and (self._failing or began < self._failure[0]):
            raise self._failure[1]
        if not self._waiting and self._delay(time.monotonic(), estimate) == 0.0:
            self.acquire_nowait(estimate)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if front else self._waiting.append)((future, estimate))
        self._wake()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # It got its slot and was cancelled in the same iteration of the loop: the slot goes to the next call.
                self.release(estimate)
            else:
                self._wake()
            raise

    def release(self, estimate: TokenEstimate = NO_TOKENS, *, unsent: bool = False, wake: bool = True) -> None:
        """Release a slot.

        Args:
            estimate: What it was acquired with.
            unsent: Whether nothing was sent, so that the rate limits are as before.
            wake: Whether waiting calls may take it; False if the same call acquires it again at once.
        """
        self.in_flight -= 1
        self._failing = self._failing and self.in_flight > 0
        self._budget.release(estimate)
        if unsent:
            self.correct(estimate, 0.0)
            if self._requests is not None:
                self._requests.take(-1.0)
        if wake:
            self._wake()

    def acquire_nowait(self, estimate: TokenEstimate = NO_TOKENS) -> None:
        """Take a slot without waiting for it, even above the limits."""
        self.in_flight += 1
        self._budget.reserve(estimate)
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(estimate.tokens)

    def correct(self, estimate: TokenEstimate, tokens: float) -> None:
        """Replace the estimated tokens of a call by those that it used."""
        if self._tokens is not None:
            self._tokens.take(tokens - estimate.tokens)

    def on_success(self) -> None:
        """Record that a call was answered: the window grows."""
        growth = max(1.0, self.concurrency / _GROWTH_WINDOWS)
        self.window = min(float(self.concurrency), self.window + growth / self.window)

    def on_overload(self, sent_at: float, wait: float = 0.0) -> None:
        """Record that a call met a rate limit or an overloaded server, or timed out: the window shrinks.

        Args:
            sent_at: When it was sent, on the clock of `time.monotonic`.
            wait: Seconds for which the server accepts no call (Retry-After).
        """
        now = time.monotonic()
        self._paused_until = max(self._paused_until, now + wait)
        # All calls of one burst meet the same limit: it cuts the window once.
        if sent_at >= self._last_cut:
            self._last_cut = now
            self.window = max(1.0, _KEPT * min(self.window, self.in_flight))

    def fail_all(self, error: Exception) -> None:
        """Fail all waiting calls with `error`, which each of them would meet as well.

        So do all that were asked for before, e.g. those that look for their reply in the store, and all others until
        none is in flight any more; a later run starts afresh.
        """
        self._failure, self._failing = (time.monotonic(), error), self.in_flight > 0
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(error)

    def _delay(self, now: float, estimate: TokenEstimate) -> float:
        """Seconds until a call may be sent: 0 now, infinite if a slot or the budget must become free first."""
        if self.in_flight >= int(self.window) or not self._budget.admits(estimate):
            return math.inf
        delay = max(0.0, self._paused_until - now)
        if self._requests is not None:
            delay = max(delay, self._requests.wait(now, 1.0))
        if self._tokens is not None:
            delay = max(delay, self._tokens.wait(now, estimate.tokens))
        return delay

    def _wake(self) -> None:
        """Give slots to waiting calls as far as the limits allow; called whenever that may have changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = time.monotonic() if self._waiting else 0.0
        while self._waiting:
            future, estimate = self._waiting[0]
            if not future.done():
                delay = self._delay(now, estimate)
                if delay == math.inf and self.in_flight == 0:
                    self.fail_all(self._budget.spent_error())
                    return
                if delay > 0.0:
                    if delay < math.inf:
                        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)
                    return
                self.acquire_nowait(estimate)
                future.set_result(None)
            self._waiting.popleft()


SOURCE: ContextVar[str] = ContextVar("source", default="")
"""The source text that the calls of the running task share with those of other tasks."""

PREFIX_LIFETIME = 300.0
"""Seconds after its last use for which a prefix counts as cached: hosted providers promise five minutes or more."""

_MAX_PREFIXES = 100_000
"""Bounds the memory of a judge that serves for months."""


class PrefixWarmup:
    """Sends the first call about a source before the others, so that these find it in the provider's prefix cache.

    Sent all at once they would all miss the cache, because a prefix can be reused only after the request that had it
    first was answered. Waiting takes no slot of the limiter: calls about other sources use the slots meanwhile. The
    outcome of the first call does not matter: after its first attempt all others follow. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._first: dict[int, asyncio.Event] = {}
        self._cached: OrderedDict[int, float] = OrderedDict()

    @asynccontextmanager
    async def in_order(self, messages: Messages) -> AsyncIterator[None]:
        """Wait until a call may be sent; leaving the context means that it was attempted."""
        source = SOURCE.get()
        if not source or source not in messages[-1]["content"]:
            yield
            return
        prefix = hash(source)
        is_first = False
        if self._cached.get(prefix, -math.inf) <= time.monotonic() - PREFIX_LIFETIME:
            is_first = prefix not in self._first
            if is_first:
                self._first[prefix] = asyncio.Event()
            else:
                await self._first[prefix].wait()
        try:
            yield
        finally:
            self._cached[prefix] = time.monotonic()
            self._cached.move_to_end(prefix)
            if len(self._cached) > _MAX_PREFIXES:
                self._cached.popitem(last=False)
            if is_first:
                self._first.pop(prefix).set()


# --- failures ---

_MIN_RETRY_AFTER = 0.1
"""Seconds; a shorter Retry-After is obeyed after the first failure only; later the usual wait applies."""
_MAX_DOUBLINGS = 30
_MAX_DOUBLINGS_429 = 3
"""After a 429, where the limiter slows all calls down anyway."""
_MAX_PROBE_WAIT = 10.0

OVERLOAD_STATUSES = (429, 503, 529)
"""HTTP statuses of a server that wants fewer requests."""


def retry_wait(error: BaseException | None, failures: int, first: float, max_wait: float) -> float:
    """Seconds until the next attempt: Retry-After, else exponential backoff with jitter.

    Args:
        error: The latest failure.
        failures: Number of failures so far.
        first: Seconds after the first failure, doubled for each further one, plus random jitter of up to `first`.
        max_wait: Maximum of that, and of Retry-After.
    """
    if getattr(error, "provider_code", None) == MISMATCHED:
        # It says nothing about the provider.
        return 0.0
    requested = getattr(error, "retry_after", None)
    if requested is not None and (requested >= _MIN_RETRY_AFTER or failures == 1):
        requested = min(requested, max_wait)
        # Never less than Retry-After, which would only be refused again.
        return float(requested + random.uniform(0.0, min(first, 0.1 * requested + 0.1)))
    max_doublings = _MAX_DOUBLINGS_429 if getattr(error, "status", None) == 429 else _MAX_DOUBLINGS
    return min(max_wait, first * 2.0 ** min(failures - 1, max_doublings)) + random.uniform(0.0, first)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by Retry-After, or by OpenAI's header in milliseconds; None if neither can be read.

    Args:
        headers: With names in lower case, or a mapping that ignores case.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
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

    Args:
        model: For messages.
        options: Waits and `max_outage`.
        probe: Makes the minimal call once; raises its error.
        fail_all: Fails all waiting calls with the error of a provider that cannot be used.
    """

    def __init__(
        self,
        model: str,
        options: LMOptions,
        probe: Callable[[], Awaitable[None]],
        fail_all: Callable[[Exception], None],
    ) -> None:
        self._model, self._options, self._probe, self._fail_all = model, options, probe, fail_all
        self.responses = 0
        """Number of responses so far to any call, error statuses included."""
        self.answered = False
        """Whether any call got a reply, so that the key and the model are known to work."""
        self._probing: asyncio.Task[bool] | None = None

    async def wait_for_probe(self) -> None:
        """Wait while a probe is running.

        Raises:
            ProviderDownError: The provider is down.
        """
        if self._probing is not None:
            await asyncio.shield(self._probing)

    async def was_down(self) -> bool:
        """Probe the provider: True if it was down and answers again, False if it was not down.

        Raises:
            ProviderDownError: It stays down.
            lm15.LM15Error: It refuses the probe for a reason that holds for all calls, such as a key without credit.
        """
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe_or_fail_all())
            self._probing.add_done_callback(self._on_probe_done)
        return await asyncio.shield(self._probing)

    def _on_probe_done(self, probing: asyncio.Task[bool]) -> None:
        self._probing = None
        if not probing.cancelled():
            # Otherwise asyncio would log the exception of a task that nothing awaits any more.
            probing.exception()

    async def _probe_or_fail_all(self) -> bool:
        try:
            return await self._probe_until_answered()
        except Exception as error:
            # At once: after an iteration of the loop a waiting call would have got the slot of the probe.
            self._fail_all(error)
            raise

    async def _probe_until_answered(self) -> bool:
        start, wait = time.monotonic(), self._options.first_wait
        was_down = False
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
                    raise self._provider_down_error(error, elapsed) from error
                if not was_down:
                    reason = error.message[:200]
                    _LOG.warning("%s does not respond (%s); calls are paused until it does", self._model, reason)
            else:
                if was_down:
                    _LOG.warning("%s responds again after %.0f s", self._model, time.monotonic() - start)
                return was_down
            was_down = True
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MAX_PROBE_WAIT)

    def _provider_down_error(self, error: lm15.LM15Error, seconds: float) -> ProviderDownError:
        not_listening = error.provider_code == NOT_LISTENING and not self.responses
        last = error.message[:500]
        return ProviderDownError(
            f"no call was answered for {seconds:.0f} s; the last failure: {last}",
            model=self._model,
            status=error.status,
            provider_code=NOT_LISTENING if not_listening else None,
        )
