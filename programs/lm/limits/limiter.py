"""When a call may be sent: concurrency, rate limits, the budget, and prefix warm-up.

The unit is a call, not an item: all debates run concurrently, and their calls are served first come, first served. The
number in flight adapts like a TCP window (additive increase, multiplicative decrease): a rate-limit response (429) cuts
it, every success widens it a little, up to the concurrency that the user allows. A budget is never exceeded: the
maximum cost of a call is reserved before it, its real cost charged after. Nothing here changes a result.
"""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Messages, Reply

_MAX_CUT = 0.3
"""Share of the window that an overload response (429, 503, 529, timeout) takes away where they are common; rare ones
take less, in proportion."""
_COMMON_SHARE = 0.1
"""Share of overload responses from which they are common."""
_SHARE_WINDOW = 32
"""Number of recent calls over which that share is averaged."""
_GROWTH_WINDOWS = 16
"""Fastest growth: the number of windows of successes in which concurrency grows from none to its maximum."""
_GROWTH_ACCELERATION = 1.5
"""After a cut the window grows by one slot for each window's worth of successes, each time faster by this factor."""
_MIN_WAIT = 1e-6
"""Seconds; shorter waits count as none: the clock can hardly measure them."""


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
            cap is None or spent + reserved + needed <= cap * (1 + 1e-12)
            for cap, spent, reserved, needed in zip(caps, self._spent, self._reserved, cost, strict=True)
        )

    def reserve(self, estimate: TokenEstimate) -> None:
        """Reserve the maximum cost of a call."""
        _add(self._reserved, self.max_cost(estimate))

    def release(self, estimate: TokenEstimate) -> None:
        """Undo `reserve` for a call that is over."""
        _add(self._reserved, [-amount for amount in self.max_cost(estimate)])

    def charge(self, tokens: tuple[float, float], cached: int) -> None:
        """Charge a reply: its input and output tokens, `cached` of the input at the lower price."""
        input_tokens, output_tokens = tokens
        cost = self._price.cost(input_tokens - cached, cached, output_tokens)
        _add(self._spent, (1.0, input_tokens + output_tokens, cost))

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


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Rate limits of an account; None where unknown."""

    rpm: float | None = None
    """Requests per minute."""
    tpm: float | None = None
    """Tokens per minute, input and output."""


def limits_from_headers(headers: Mapping[str, str], spec: str) -> RateLimits | None:
    """The rate limits in the headers of OpenAI's protocol, or None where there are none."""
    texts = [headers.get(f"x-ratelimit-limit-{unit}", "") for unit in ("requests", "tokens")]
    rpm, tpm = (float(text) if text.isdecimal() and int(text) > 0 else None for text in texts)
    if spec.startswith("groq/"):
        # Its header of this name is about requests per day.
        rpm = None
    return None if rpm is None and tpm is None else RateLimits(rpm, tpm)


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
        return seconds if seconds > _MIN_WAIT else 0.0

    def take(self, amount: float) -> None:
        """Take `amount`, or give back a negative one. The level may fall below zero; then the next ones wait longer."""
        self._level = min(self._burst, self._level - amount)


class Limiter:
    """Gives calls slots: limits concurrency and rate. Belongs to one event loop; cancelling a waiting call is safe.

    Args:
        concurrency: Maximum number of calls in flight.
        options: Requests and tokens per minute.
        budget: Checked before each call; when a call exceeds it and nothing is in flight, all waiting calls fail.
    """

    def __init__(self, concurrency: int, options: LMOptions | None = None, budget: Budget | None = None) -> None:
        options = options or LMOptions()
        self.concurrency = concurrency
        self.window = float(concurrency)
        """Calls that may be in flight now."""
        self.in_flight = 0
        self._budget = budget
        self._user_limits = RateLimits(options.rpm, options.tpm)
        self.limits = RateLimits()
        """The rate limits in force: the user's, else the provider's."""
        self._request_bucket: Bucket | None = None
        self._token_bucket: Bucket | None = None
        self.on_rate_limits(RateLimits())
        self._waiting: deque[tuple[asyncio.Future[None], TokenEstimate]] = deque()
        self._paused_until = 0.0
        self._last_cut = 0.0
        self._growth = max(1.0, concurrency / _GROWTH_WINDOWS)
        self._overload_share = 0.0
        self._cut_interval = options.first_wait
        self._failure: Exception | None = None
        """The error of `fail_all`, while calls are in flight: the run notices it some iterations of the loop later and
        must not send more meanwhile. Never set while nothing is in flight, so that a later run starts afresh."""
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, estimate: TokenEstimate = NO_TOKENS, *, front: bool = False) -> None:
        """Wait for a slot.

        Args:
            estimate: The tokens of the call.
            front: Whether it goes before all waiting calls, as a retry does.

        Raises:
            BudgetSpentError: Nothing is in flight, and the budget does not allow this call.
            Exception: The error of `fail_all`.
        """
        if self._failure is not None:
            raise self._failure
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
        if not self.in_flight:
            self._failure = None
        if self._budget is not None:
            self._budget.release(estimate)
        if unsent:
            self.correct(estimate, 0.0)
            if self._request_bucket is not None:
                self._request_bucket.take(-1.0)
        if wake:
            self._wake()

    def acquire_nowait(self, estimate: TokenEstimate = NO_TOKENS) -> None:
        """Take a slot without waiting for it, even above the limits."""
        self.in_flight += 1
        if self._budget is not None:
            self._budget.reserve(estimate)
        if self._request_bucket is not None:
            self._request_bucket.take(1.0)
        if self._token_bucket is not None:
            self._token_bucket.take(estimate.tokens)

    def on_rate_limits(self, limits: RateLimits) -> None:
        """Adopt the provider's rate limits, except where the user has set their own."""
        limits = RateLimits(self._user_limits.rpm or limits.rpm, self._user_limits.tpm or limits.tpm)
        if limits.rpm != self.limits.rpm:
            self._request_bucket = None if limits.rpm is None else Bucket(limits.rpm)
        if limits.tpm != self.limits.tpm:
            self._token_bucket = None if limits.tpm is None else Bucket(limits.tpm)
        self.limits = limits

    def correct(self, estimate: TokenEstimate, tokens: float) -> None:
        """Replace the estimated tokens of a call by those that it used."""
        if self._token_bucket is not None:
            self._token_bucket.take(tokens - estimate.tokens)

    def on_success(self) -> None:
        """Record that a call was answered: the window grows."""
        self._overload_share -= self._overload_share / max(_SHARE_WINDOW, self.window)
        if self.window < self.concurrency:
            self._growth = min(
                self._growth * _GROWTH_ACCELERATION ** (1 / self.window), max(1.0, self.concurrency / _GROWTH_WINDOWS)
            )
            self.window = min(float(self.concurrency), self.window + self._growth / self.window)

    def on_overload(self, sent_at: float, wait: float = 0.0) -> None:
        """Record that a call met a rate limit or an overloaded server, or timed out: the window shrinks.

        Args:
            sent_at: When it was sent, on the clock of `time.monotonic`.
            wait: Seconds for which the server accepts no call (Retry-After).
        """
        now = time.monotonic()
        self._paused_until = max(self._paused_until, now + wait)
        self._overload_share += (1.0 - self._overload_share) / max(_SHARE_WINDOW, self.window)
        # All calls of one burst meet the same limit: it cuts the window once.
        if sent_at < self._last_cut or now < self._last_cut + self._cut_interval:
            return
        cut = _MAX_CUT * min(1.0, self._overload_share / _COMMON_SHARE)
        self._last_cut, self._growth = now, 1.0
        self.window = max(1.0, (1.0 - cut) * min(self.window, self.in_flight))

    def fail_all(self, error: Exception) -> None:
        """Fail all waiting calls with `error`, which each of them would meet as well.

        Later calls fail, too, until none is in flight any more.
        """
        self._failure = error if self.in_flight else None
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(error)

    def _delay(self, now: float, estimate: TokenEstimate) -> float:
        """Seconds until a call may be sent: 0 now, infinite if a slot or the budget must become free first."""
        if self.in_flight >= int(self.window) or (self._budget is not None and not self._budget.admits(estimate)):
            return math.inf
        delay = max(0.0, self._paused_until - now)
        if self._request_bucket is not None:
            delay = max(delay, self._request_bucket.wait(now, 1.0))
        if self._token_bucket is not None:
            delay = max(delay, self._token_bucket.wait(now, estimate.tokens))
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
                if delay == math.inf and self.in_flight == 0 and self._budget is not None:
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
