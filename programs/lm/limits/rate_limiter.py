"""Limits how many calls are in flight and how fast they follow one another. First come, first served.

The unit is a call, not an item: all debates run at once, and each sends its next call as soon as it is
ready. The number in flight adapts like a TCP window (additive increase, multiplicative decrease): a refusal
for being too fast cuts it, every success widens it a little, up to the concurrency that the user allows.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque

import dspy

from debate_judge.programs.lm.limits.bucket import Bucket
from debate_judge.programs.lm.limits.budget import NOTHING, Budget, TokenNeed
from debate_judge.programs.lm.limits.provider_limits import RateLimits
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.sharing.claims import CallClaim

_CUT = 0.3
"""Share of the window that a refusal takes away where refusals are common; rare ones take less, in proportion."""
_COMMON = 0.1
"""Share of refusals from which they are common."""
_MEMORY = 32
"""Calls over which that share is taken."""
_GROWTH = 16
"""The fastest growth: so many windows' worth of successes lead from nothing to the full concurrency."""
_HASTE = 1.5
"""After a cut the window grows by one place for each window's worth of successes, and faster by this each time."""


class Limiter:
    """Lets calls through. Belongs to one event loop at a time; cancelling a waiting call is safe.

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
        self.on_rate_limits(options.usual)
        self._waiting: deque[tuple[asyncio.Future[None], TokenNeed]] = deque()
        self._closed_until = 0.0
        self._probing: float | None = None
        self._cut_at = 0.0
        self._step = max(1.0, concurrency / _GROWTH)
        self._share = 0.0
        self._epoch = options.first_wait
        self._failed: dspy.LMError | None = None
        """What `fail` was called with, while calls are in flight: a run hears of it some turns of the loop later, and
        must not send more meanwhile. Never set while nothing is in flight, so that a later run starts afresh."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def full(self) -> bool:
        """Whether another call would have to wait for a place."""
        return self.crowded or self.in_flight >= int(self.window)

    @property
    def crowded(self) -> bool:
        """Whether calls are waiting for a place."""
        return bool(self._waiting)

    async def acquire(self, need: TokenNeed = NOTHING, *, first: bool = False) -> None:
        """Wait for a place.

        Args:
            need: What the call will use.
            first: Whether it goes before all waiting calls, as one that has waited for its turn before.

        Raises:
            BudgetSpentError: Nothing is in flight, and the budget does not allow this call.
            dspy.LMError: The error that `fail` was called with.
        """
        loop = self._on_loop()
        if self._failed is not None:
            raise self._failed
        if not self._waiting and self._delay(time.monotonic(), need) == 0.0:
            self.take(need)
            return
        future: asyncio.Future[None] = loop.create_future()
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

    def release(self, need: TokenNeed = NOTHING, *, pass_on: bool = True, unused: bool = False) -> None:
        """Give a place back.

        Args:
            need: As it was acquired with.
            pass_on: Whether waiting calls may take it; False if the same call acquires it again at once.
            unused: Whether nothing was sent, so that the limits per minute are given back what it would have used.
        """
        self.in_flight = max(0, self.in_flight - 1)
        if not self.in_flight:
            self._failed = None
        if self._budget is not None:
            self._budget.release(need)
        if unused and self._requests is not None:
            self._requests.take(-1.0)
        if unused and self._tokens is not None:
            self._tokens.take(-need.tokens)
        if pass_on and self._waiting:
            self._pump()

    def on_rate_limits(self, pace: RateLimits) -> None:
        """Keep to the provider's limits, except where the user has set their own."""
        pace = RateLimits(self._own.rpm or pace.rpm, self._own.tpm or pace.tpm)
        if pace.rpm != self.pace.rpm:
            self._requests = None if pace.rpm is None else Bucket(pace.rpm, pace.rpm / 60)
        if pace.tpm != self.pace.tpm:
            self._tokens = None if pace.tpm is None else Bucket(pace.tpm, pace.tpm / 60)
        self.pace = pace

    def succeeded(self) -> None:
        """Take in that a call was answered: the window grows."""
        self._share -= self._share / max(_MEMORY, self.window)
        if self.window < self.concurrency:
            self._step = min(self._step * _HASTE ** (1 / self.window), max(1.0, self.concurrency / _GROWTH))
            self.window = min(float(self.concurrency), self.window + self._step / self.window)

    def used(self, need: TokenNeed, tokens: float) -> None:
        """Correct the estimated tokens of a call to those that it used."""
        if self._tokens is not None:
            self._tokens.take(tokens - need.tokens)

    def congested(self, sent: float) -> None:
        """Take in that a call sent at `sent` (`time.monotonic`) met a rate limit, or timed out: the window shrinks."""
        now = time.monotonic()
        self._share += (1.0 - self._share) / max(_MEMORY, self.window)
        # All calls of one burst meet the same limit. Were each to cut the window, one burst would close it.
        if sent < self._cut_at or now < self._cut_at + self._epoch:
            return
        cut = _CUT * min(1.0, self._share / _COMMON)
        self._cut_at, self._step = now, 1.0
        self.window = max(1.0, (1.0 - cut) * min(self.window, self.in_flight))

    def pause(self, seconds: float) -> None:
        """Let no call through for `seconds`."""
        self._closed_until = max(self._closed_until, time.monotonic() + seconds)

    def hold(self, interval: float) -> None:
        """Let one call through every `interval` seconds, to see whether a provider that is down answers again."""
        self._probing = interval
        self._closed_until = time.monotonic() + interval

    def resume(self) -> None:
        """End `hold`. May be called from any thread."""
        self._probing = None
        self._closed_until = 0.0
        # All calls that waited come at once now, and could bring it down again: half of the load at first.
        self.window = max(1.0, min(self.window, self.concurrency / 2))
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._pump)

    def fail(self, error: dspy.LMError) -> None:
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
        if self.in_flight >= int(self.window):
            return math.inf
        if self._budget is not None and not self._budget.admits(need):
            return math.inf
        delay = max(0.0, self._closed_until - now)
        if self._requests is not None:
            delay = max(delay, self._requests.wait(now, 1.0))
        if self._tokens is not None:
            delay = max(delay, self._tokens.wait(now, need.tokens))
        return delay

    def take(self, need: TokenNeed = NOTHING) -> None:
        """Take a place without waiting for it."""
        self._on_loop()
        self.in_flight += 1
        if self._budget is not None:
            self._budget.reserve(need)
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(need.tokens)
        if self._probing is not None:
            self._closed_until = time.monotonic() + self._probing

    def _pump(self) -> None:
        """Let through as many calls as may go; called again by everything that could change this."""
        now = time.monotonic()
        while self._waiting:
            future, need = self._waiting[0]
            if not future.done():
                delay = self._delay(now, need)
                if delay == math.inf and self.in_flight == 0 and self._budget is not None and self._budget.final:
                    self.fail(self._budget.spent())
                    return
                if delay > 0.0:
                    self._pump_in(delay, now)
                    return
                self.take(need)
                future.set_result(None)
            self._waiting.popleft()

    def _pump_in(self, delay: float, now: float) -> None:
        if delay == math.inf or (self._timer is not None and self._timer_at <= now + delay):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = now + delay
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self._pump()

    def _on_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Calls that waited on an earlier loop ended with it.
            self._loop, self._timer, self._timer_at = loop, None, math.inf
            self._waiting.clear()
            self.in_flight, self._failed = 0, None
        return loop


async def acquire_claimed(limiter: Limiter, need: TokenNeed, claim: CallClaim | None, *, first: bool) -> Reply | None:
    """Wait for a place and for the claim; the reply, and no place, if another process has brought it meanwhile.

    A call is claimed only when it may go out, so that processes which want the same calls share them out among
    themselves. While it waits for another process it has no place, and what holds a claim waits for nothing but a
    place: so no two processes can wait for each other.

    Args:
        limiter: Of the process.
        need: What the call will use.
        claim: Of the call; None where no other process can want it.
        first: Whether it goes before all waiting calls.

    Raises:
        dspy.LMError: As `Limiter.acquire` raises it.
    """
    while True:
        await limiter.acquire(need, first=first)
        if claim is None or claim.held:
            return None
        granted = False
        try:
            granted = await claim.take()
        finally:
            if not granted or claim.found is not None:
                limiter.release(need, unused=True)
        if not granted:
            await claim.wait()
        if granted or claim.found is not None:
            return claim.found
