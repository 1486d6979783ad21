"""When a call may go out: how many are in flight, how fast they follow one another, which of a source goes ahead.

The unit is a call, not an item: all debates run at once, and each sends its next call as soon as it is ready, first
come, first served. The number in flight adapts like a TCP window (additive increase, multiplicative decrease): a
refusal for being too fast cuts it, every success widens it a little, up to the concurrency that the user allows.
A budget is never exceeded: the most that a call may cost is reserved before it, its real cost charged after. Nothing
here changes a result.
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

_CUT = 0.3
"""Share of the window that a refusal takes away where refusals are common; rare ones take less, in proportion."""
_COMMON = 0.1
"""Share of refusals from which they are common."""
_MEMORY = 32
"""Calls over which that share is taken."""
_GROWTH = 16
"""Fastest growth: the number of windows of successes in which concurrency grows from none to its maximum."""
_GROWTH_ACCELERATION = 1.5
"""After a cut the window grows by one place for each window's worth of successes, and faster by this each time."""
_INSTANT = 1e-6
"""Seconds below which a wait counts as none: the clock can hardly measure it."""


TOKENS_PER_BYTE = 0.27
"""Tokens per byte of UTF-8 text, until the first reply gives a measured ratio: about a quarter in English."""


@dataclass(frozen=True, slots=True)
class TokenNeed:
    """The tokens that a call is expected to use, and the most it can use."""

    tokens: float = 0.0
    """Expected, input and output together."""
    most_input: float = 0.0
    most_output: float = 0.0
    batch: bool = False
    """Whether it goes out in a batch job, at half the price."""


NOTHING = TokenNeed()


class TokenEstimator:
    """Estimates the tokens of a call before it is made, from the replies so far."""

    def __init__(self) -> None:
        # Half a token per byte is more than any usual text needs.
        self._mean, self._most = TOKENS_PER_BYTE, 0.5
        self._mean_output, self._most_output = 300.0, 1000.0
        self._seen = 0

    def need(self, size: int, max_tokens: int | None) -> TokenNeed:
        """The need of a call with `size` bytes of text and a reply of at most `max_tokens`, if that is set."""
        most_output = max_tokens or 4 * self._most_output
        mean_output = min(self._mean_output, most_output)
        # Servers add some tokens around each message.
        return TokenNeed(size * self._mean + mean_output, size * self._most + 32, most_output)

    def used(self, size: int, reply: Reply) -> tuple[float, float]:
        """Input and output tokens of a call of `size` bytes, estimated if the provider does not report them."""
        if not reply.input_tokens:
            return size * self._mean, reply.output_tokens or len(reply.text.encode()) * self._mean
        if size:
            ratio = reply.input_tokens / size
            weight = max(0.05, 1 / (1 + self._seen))
            self._mean += weight * (ratio - self._mean)
            self._mean_output += weight * (reply.output_tokens - self._mean_output)
            self._most = max(1.1 * ratio, self._most if self._seen else 0.0)
            self._most_output = max(self._most_output, float(reply.output_tokens))
            self._seen += 1
        return reply.input_tokens, reply.output_tokens


def _add(account: list[float], amounts: Sequence[float]) -> None:
    # In place, for the budget of another model has the same lists.
    account[:] = [a + b for a, b in zip(account, amounts, strict=True)]


class Budget:
    """Keeps a run within its caps, calls in flight included. Belongs to the loop of all LM calls."""

    def __init__(self, budget: BudgetCaps, price: Price | None) -> None:
        self._budget = budget
        self._set_price(price)
        self._paid = [0.0, 0.0, 0.0]
        self._held = [0.0, 0.0, 0.0]

    def shared(self, price: Price | None) -> Budget:
        """The same caps and the same account, for the calls of another model at its own price."""
        copied = copy.copy(self)
        copied._set_price(price)
        return copied

    def _set_price(self, price: Price | None) -> None:
        if self._budget.usd is not None and price is None:
            raise ValueError("a budget in money needs a price")
        self._price = price or Price(0.0, 0.0, 0.0)

    def admits(self, need: TokenNeed) -> bool:
        """Whether this call can be made without exceeding any cap, whatever comes of those in flight."""
        budget, most = self._budget, self.most(need)
        caps = (budget.calls, budget.tokens, budget.usd)
        return all(
            cap is None or paid + reserved + wanted <= cap * (1 + 1e-12)
            for cap, paid, reserved, wanted in zip(caps, self._paid, self._held, most, strict=True)
        )

    def reserve(self, need: TokenNeed) -> None:
        """Reserve the most that a call may cost."""
        _add(self._held, self.most(need))

    def release(self, need: TokenNeed) -> None:
        """Undo `reserve` for a call that is over."""
        _add(self._held, [-most for most in self.most(need)])

    def charge(self, used: tuple[float, float], cached: int, *, batch: bool = False) -> None:
        """Charge a reply: its input and output tokens, `cached` of the input at the lower price."""
        cost = self._at(batch).of(used[0] - cached, cached, used[1])
        _add(self._paid, (1.0, used[0] + used[1], cost))

    def forfeit(self, need: TokenNeed) -> None:
        """Charge a request that was sent and whose answer is lost: the most that it may have cost."""
        _add(self._paid, self.most(need))

    def most(self, need: TokenNeed) -> tuple[float, float, float]:
        """Calls, tokens and US dollars that a call may take at most."""
        cost = self._at(need.batch).of(need.most_input, 0.0, need.most_output)
        return 1.0, need.most_input + need.most_output, cost

    def _at(self, batch: bool) -> Price:
        return self._price.batch() if batch else self._price

    def spent(self) -> BudgetSpentError:
        """The error for a spent budget, with what was used of each cap."""
        budget, (calls, tokens, usd) = self._budget, self._paid
        lines = []
        if budget.calls is not None:
            lines.append(f"{calls:,.0f} of {budget.calls:,} calls")
        if budget.tokens is not None:
            lines.append(f"{tokens:,.0f} of {budget.tokens:,} tokens")
        if budget.usd is not None:
            lines.append(f"${usd:.4f} of ${budget.usd:g}")
        return BudgetSpentError(f"the next call might exceed the budget: {', '.join(lines)} are spent")


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits of an account; None is none that is known."""

    rpm: float | None = None
    """Requests per minute."""
    tpm: float | None = None
    """Tokens per minute, input and output."""


def limits_from_headers(headers: Mapping[str, str], spec: str) -> RateLimits | None:
    """The limits per minute that an answer of OpenAI's protocol names, or None where it names none."""
    texts = [headers.get(f"x-ratelimit-limit-{what}", "") for what in ("requests", "tokens")]
    rpm, tpm = (float(text) if text.isdecimal() and int(text) > 0 else None for text in texts)
    if spec.startswith("groq/"):
        # It counts requests by the day under the same name.
        rpm = None
    return None if rpm is None and tpm is None else RateLimits(rpm, tpm)


class Bucket:
    """A token bucket: at most `per_minute` units in any minute, a second's worth of them at once after a pause."""

    def __init__(self, per_minute: float) -> None:
        # A bucket that holds b and fills at r lets through b - 1 + 60 r whole units a minute at most.
        self._burst = min(max(1.0, per_minute / 60), per_minute) if per_minute >= 1 else 1.0
        self._rate = (per_minute - self._burst + 1.0 if per_minute >= 1 else per_minute) / 60.0
        self._level, self._at = self._burst, time.monotonic()

    def wait(self, now: float, amount: float) -> float:
        """Seconds until `amount` may be taken; a call larger than the bucket goes when it is full."""
        if now > self._at:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
            self._at = now
        seconds = (min(amount, self._burst) - self._level) / self._rate
        return seconds if seconds > _INSTANT else 0.0

    def take(self, amount: float) -> None:
        """Take `amount`, or give back a negative one; the level may fall below zero, then others wait longer."""
        self._level = min(self._burst, self._level - amount)


class Limiter:
    """Lets calls through. Belongs to one event loop; cancelling a waiting call is safe.

    Args:
        concurrency: Most calls in flight.
        options: Requests and tokens per minute.
        budget: Asked before each call; when nothing is left of it and nothing is in flight, all waiting calls fail.
    """

    def __init__(self, concurrency: int, options: LMOptions | None = None, budget: Budget | None = None) -> None:
        options = options or LMOptions()
        self.concurrency = concurrency
        self.window = float(concurrency)
        """Calls that may be in flight now."""
        self.in_flight = 0
        self._budget = budget
        self._own = RateLimits(options.rpm, options.tpm)
        self.pace = RateLimits()
        """The limits in force: the user's, else the provider's."""
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self.on_rate_limits(RateLimits())
        self._waiting: deque[tuple[asyncio.Future[None], TokenNeed]] = deque()
        self._closed_until = 0.0
        self._cut_at = 0.0
        self._step = max(1.0, concurrency / _GROWTH)
        self._share = 0.0
        self._epoch = options.first_wait
        self._failed: Exception | None = None
        """What `fail` was called with, while calls are in flight: a run hears of it some turns of the loop later, and
        must not send more meanwhile. Never set while nothing is in flight, so that a later run starts afresh."""
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, need: TokenNeed = NOTHING, *, first: bool = False) -> None:
        """Wait for a place.

        Args:
            need: What the call will use.
            first: Whether it goes before all waiting calls, as one that has waited for its turn before.

        Raises:
            BudgetSpentError: Nothing is in flight, and the budget does not allow this call.
            Exception: The error that `fail` was called with.
        """
        if self._failed is not None:
            raise self._failed
        if not self._waiting and self._delay(time.monotonic(), need) == 0.0:
            self.take(need)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if first else self._waiting.append)((future, need))
        self._pump()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # Let through and cancelled in the same turn of the loop: the place goes to the next.
                self.release(need)
            else:
                self._pump()
            raise

    def release(self, need: TokenNeed = NOTHING, *, unused: bool = False, pass_on: bool = True) -> None:
        """Give a place back.

        Args:
            need: As it was acquired with.
            unused: Whether nothing was sent, so that the limits per minute are as before.
            pass_on: Whether waiting calls may take it; False if the same call acquires it again at once.
        """
        self.in_flight -= 1
        if not self.in_flight:
            self._failed = None
        if self._budget is not None:
            self._budget.release(need)
        if unused:
            self.used(need, 0.0)
            if self._requests is not None:
                self._requests.take(-1.0)
        if pass_on:
            self._pump()

    def take(self, need: TokenNeed = NOTHING) -> None:
        """Take a place without waiting for it."""
        self.in_flight += 1
        if self._budget is not None:
            self._budget.reserve(need)
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(need.tokens)

    def on_rate_limits(self, pace: RateLimits) -> None:
        """Keep to the provider's limits, except where the user has set their own."""
        pace = RateLimits(self._own.rpm or pace.rpm, self._own.tpm or pace.tpm)
        if pace.rpm != self.pace.rpm:
            self._requests = None if pace.rpm is None else Bucket(pace.rpm)
        if pace.tpm != self.pace.tpm:
            self._tokens = None if pace.tpm is None else Bucket(pace.tpm)
        self.pace = pace

    def used(self, need: TokenNeed, tokens: float) -> None:
        """Correct the estimated tokens of a call to those that it used."""
        if self._tokens is not None:
            self._tokens.take(tokens - need.tokens)

    def succeeded(self) -> None:
        """Record that a call was answered: the window grows."""
        self._share -= self._share / max(_MEMORY, self.window)
        if self.window < self.concurrency:
            self._step = min(
                self._step * _GROWTH_ACCELERATION ** (1 / self.window), max(1.0, self.concurrency / _GROWTH)
            )
            self.window = min(float(self.concurrency), self.window + self._step / self.window)

    def congested(self, sent: float, wait: float = 0.0) -> None:
        """Record that a call met a rate limit, or timed out: the window shrinks.

        Args:
            sent: When it was sent, on the clock of `time.monotonic`.
            wait: Seconds for which the server wants no call at all.
        """
        now = time.monotonic()
        self._closed_until = max(self._closed_until, now + wait)
        self._share += (1.0 - self._share) / max(_MEMORY, self.window)
        # All calls of one burst meet the same limit. Were each to cut the window, one burst would close it.
        if sent < self._cut_at or now < self._cut_at + self._epoch:
            return
        cut = _CUT * min(1.0, self._share / _COMMON)
        self._cut_at, self._step = now, 1.0
        self.window = max(1.0, (1.0 - cut) * min(self.window, self.in_flight))

    def fail(self, error: Exception) -> None:
        """Let all waiting calls fail with `error`, which any of them would meet as well.

        So do calls that come later, until all that are in flight now have come back.
        """
        self._failed = error if self.in_flight else None
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(error)

    def _delay(self, now: float, need: TokenNeed) -> float:
        """Seconds until a call may go: 0 now, infinite when a place must become free first."""
        if self.in_flight >= int(self.window) or (self._budget is not None and not self._budget.admits(need)):
            return math.inf
        delay = max(0.0, self._closed_until - now)
        if self._requests is not None:
            delay = max(delay, self._requests.wait(now, 1.0))
        if self._tokens is not None:
            delay = max(delay, self._tokens.wait(now, need.tokens))
        return delay

    def _pump(self) -> None:
        """Let through as many calls as may go; called again by everything that could change this."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = time.monotonic() if self._waiting else 0.0
        while self._waiting:
            future, need = self._waiting[0]
            if not future.done():
                delay = self._delay(now, need)
                if delay == math.inf and self.in_flight == 0 and self._budget is not None:
                    self.fail(self._budget.spent())
                    return
                if delay > 0.0:
                    if delay < math.inf:
                        self._timer = asyncio.get_running_loop().call_later(delay, self._pump)
                    return
                self.take(need)
                future.set_result(None)
            self._waiting.popleft()


SOURCE: ContextVar[str] = ContextVar("source", default="")
"""The text that the calls of the running task are about, and have in common with calls of others."""

PREFIX_LIFETIME = 300.0
"""Seconds after its last use for which a prefix counts as cached: hosted providers promise five minutes or more."""

_REMEMBERED = 100_000
"""Sources; a judge that serves for months must not grow."""


class PrefixWarmup:
    """Of the calls about one source the first goes ahead, so that the others find it in the provider's prefix cache.

    Sent all at once they would miss it together, for a prefix can be reused only when the request that brought it has
    been answered. Waiting takes no place in the limiter: calls about other sources fill the places meanwhile. The
    outcome of the first call does not matter: after its first attempt all others go. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._first: dict[int, asyncio.Event] = {}
        self._cached: OrderedDict[int, float] = OrderedDict()

    @asynccontextmanager
    async def turn(self, messages: Messages) -> AsyncIterator[None]:
        """Wait until a call may be sent; leaving the context says that it has been tried."""
        source = SOURCE.get()
        if not source or source not in messages[-1]["content"]:
            yield
            return
        prefix = hash(source)
        leads = False
        if self._cached.get(prefix, -math.inf) <= time.monotonic() - PREFIX_LIFETIME:
            leads = prefix not in self._first
            if leads:
                self._first[prefix] = asyncio.Event()
            else:
                await self._first[prefix].wait()
        try:
            yield
        finally:
            self._cached[prefix] = time.monotonic()
            self._cached.move_to_end(prefix)
            if len(self._cached) > _REMEMBERED:
                self._cached.popitem(last=False)
            if leads:
                self._first.pop(prefix).set()
