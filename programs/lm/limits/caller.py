"""From one call to its reply, whatever happens on the way: the only place that retries."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import dspy

from debate_judge.programs.lm.errors import fatal, lm_error
from debate_judge.programs.lm.limits.budget import NOTHING, Budget, TokenEstimator, TokenNeed
from debate_judge.programs.lm.limits.circuit_breaker import CircuitBreaker
from debate_judge.programs.lm.limits.provider_limits import RateLimits
from debate_judge.programs.lm.limits.rate_limiter import Limiter
from debate_judge.programs.lm.limits.retries import Backoff, retry
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply

_OVERLOADED = (503, 529)
"""Statuses, besides 429, by which servers ask to be asked less."""

_AT_ONCE = 0.1
"""Seconds of Retry-After below which it asks for no wait at all; a call that is refused again waits all the same."""


@dataclass(slots=True)
class _Progress:
    """Of one call, over its attempts."""

    number: int
    before: int
    """Answers that the provider had given to anybody before the call."""
    answers: int
    """The same by the last attempt."""
    outages: int
    """Of the provider, by the last attempt."""
    failures: int = 0
    refusals: int = 0
    """For being too fast; they are nobody's failures."""
    used: float = 0.0
    """Seconds that count against the call's deadline."""
    tried: bool = False
    wait: float | None = None
    """Seconds from the last failure to the next attempt; None if that was the last one, or none was made."""


class Caller:
    """Makes calls to one model, within its limits.

    Args:
        model: For messages.
        concurrency: Most calls in flight.
        options: Pace, retries, budget.
        price: Needed for a budget in money.
        control: Makes a call that no fault of an item can spoil, to tell in doubt who is to blame.
    """

    def __init__(
        self,
        model: str,
        concurrency: int,
        options: LMOptions,
        price: Price | None = None,
        control: Callable[[], Awaitable[Reply]] | None = None,
    ) -> None:
        self._model = model
        self._options = options
        self._budget = Budget(options.budget, price) if options.budget else None
        self._estimate = TokenEstimator() if options.tpm or options.usual.tpm or options.budget else None
        self.limiter = Limiter(concurrency, options, self._budget)
        self._gate = Limiter(sys.maxsize, LMOptions(), self._budget)
        self.breaker = CircuitBreaker(model, options)
        self._control = control
        self._question: asyncio.Task[bool] | None = None
        self._numbers = itertools.count()
        self._backoff = Backoff(options.first_wait, options.longest_wait)

    async def call(self, send: Callable[[], Awaitable[Reply]], size: int, max_tokens: int | None) -> Reply:
        """Make one call.

        Args:
            send: One attempt; it must bear being cancelled.
            size: UTF-8 bytes of the call's texts.
            max_tokens: Limit on the reply's length.

        Raises:
            dspy.LMError: The call failed for good, the provider is down, or the budget is spent.
        """
        progress = self._begin()
        attempt = partial(self._attempt, progress, send, size, max_tokens)
        return await retry(attempt, partial(self._wait_after, progress))

    async def _attempt(
        self, progress: _Progress, send: Callable[[], Awaitable[Reply]], size: int, max_tokens: int | None
    ) -> Reply:
        """Wait for a place, and send once.

        Raises:
            dspy.LMError: The attempt failed; or none was made, because the provider is down or the budget spent.
        """
        need, progress.wait = self._need(size, max_tokens), None
        # While the provider is down, a call that has failed lets the others try first: it may fail by itself.
        await self.limiter.acquire(need, first=progress.tried and not self.breaker.open)
        progress.tried, comes_back, sent = True, False, time.monotonic()
        try:
            async with asyncio.timeout(self._time_left(progress)):
                reply = await send()
        except Exception as raised:
            error = lm_error(raised, self._model)
            progress.wait = self._after(error, progress, sent)
            if progress.wait is not None and isinstance(error, dspy.LMRateLimitError):
                # It waits in its place: others would only be refused as well.
                await asyncio.sleep(progress.wait)
                comes_back, progress.wait = True, 0.0
            raise error from raised
        else:
            self._settle(size, need, reply)
            self._answered()
            self.limiter.succeeded()
            return reply
        finally:
            self.limiter.release(need, pass_on=not comes_back)

    async def _wait_after(self, progress: _Progress, error: Exception) -> float:
        """Seconds until the next attempt; raises `error` if there is none."""
        if progress.wait is not None:
            return progress.wait
        if not (
            isinstance(error, dspy.LMError) and dspy.is_retryable_lm_error(error) and await self._is_down(progress)
        ):
            raise error
        progress.failures, progress.used = 0, 0.0
        return self._options.first_wait

    async def call_in_batch(self, send: Callable[[], Awaitable[Reply]], size: int, max_tokens: int | None) -> Reply:
        """The same for a call that goes out in a batch job: within the budget, and at no pace but the service's.

        It takes as long as the job takes, and it is the job's line that asks again.
        """
        need = replace(self._need(size, max_tokens), batch=True)
        await self._gate.acquire(need)
        try:
            reply = await send()
        except Exception as raised:
            error = lm_error(raised, self._model)
            if fatal(error):
                self._gate.fail(error)
            raise error from raised
        else:
            self._settle(size, need, reply)
            return reply
        finally:
            self._gate.release(need)

    def on_rate_limits(self, pace: RateLimits) -> None:
        """Keep to the limits that the provider names, in place of the usual ones."""
        if pace.tpm is not None and self._estimate is None:
            self._estimate = TokenEstimator()
        self.limiter.on_rate_limits(pace)

    def _begin(self) -> _Progress:
        breaker = self.breaker
        return _Progress(next(self._numbers), breaker.answers, breaker.answers, breaker.outages)

    async def _is_down(self, progress: _Progress) -> bool:
        """Whether it is the provider's fault that a call has failed for the last time.

        The failures of late may all be those of calls that nobody could answer, at the end of a run for example.
        And where calls are few, an outage may not have met enough of them to show.
        """
        if self.breaker.answers > progress.before and not self.breaker.doubtful:
            return False
        question = self._ask_control()
        return self.breaker.doubtful if question is None else await asyncio.shield(question)

    def _ask_control(self) -> asyncio.Task[bool] | None:
        """Have the control call made, unless one is under way; None where it could not tell more."""
        if self._control is None or self.breaker.unreachable:
            return None
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._control_fails(self._control))
        return self._question

    async def _control_fails(self, control: Callable[[], Awaitable[Reply]]) -> bool:
        if self._budget is not None and not self._budget.admits(NOTHING):
            return True
        try:
            async with asyncio.timeout(self._options.attempt):
                self._settle(0, NOTHING, await control())
        except Exception as raised:
            error = lm_error(raised, self._model)
            if dspy.is_retryable_lm_error(error) or error.status is None:
                self.breaker.confirm()
                return True
        self._answered()
        return False

    def call_sync(self, send: Callable[[], Reply], size: int, max_tokens: int | None) -> Reply:
        """The same for a thread of its own: retries and budget, while the limits are left to `call`."""
        progress = self._begin()
        while True:
            need = self._need(size, max_tokens)
            if self._budget is not None:
                if not self._budget.admits(need):
                    raise self._budget.spent()
                self._budget.reserve(need)
            sent = time.monotonic()
            try:
                reply = send()
            except Exception as raised:
                error = lm_error(raised, self._model)
                wait = self._verdict(error, progress, sent)[0]
                if wait is None:
                    raise error from raised
            else:
                self._settle(size, need, reply)
                self._answered()
                return reply
            finally:
                if self._budget is not None:
                    self._budget.release(need)
            time.sleep(wait)

    def _need(self, size: int, max_tokens: int | None) -> TokenNeed:
        return NOTHING if self._estimate is None else self._estimate.need(size, max_tokens)

    def _settle(self, size: int, need: TokenNeed, reply: Reply) -> None:
        if self._estimate is None:
            return
        used = self._estimate.used(size, reply)
        self._estimate.learn(size, reply)
        if not need.batch:
            self.limiter.used(need, sum(used))
        if self._budget is not None:
            self._budget.charge(used, reply.cached_tokens, batch=need.batch)

    def _answered(self) -> None:
        if self.breaker.answered():
            self.limiter.resume()

    def _time_left(self, progress: _Progress) -> float:
        left = self._options.deadline - progress.used
        # Only an outage keeps a call going beyond its deadline, and an outage has an end of its own.
        return min(self._options.attempt, left) if left > 0 else self._options.attempt

    def _after(self, error: dspy.LMError, progress: _Progress, sent: float) -> float | None:
        """Seconds until the next attempt, None if there is none; slows all calls down where that is called for."""
        try:
            wait, hold = self._verdict(error, progress, sent)
        except dspy.LMError as down:
            self.limiter.fail(down)
            raise
        if hold is not None:
            self.limiter.hold(hold)
            self._ask_control()
        slower = isinstance(error, (dspy.LMRateLimitError, dspy.LMTimeoutError)) or error.status in _OVERLOADED
        if slower or self.breaker.suspicious:
            self.limiter.congested(sent)
            if error.retry_after:
                self.limiter.pause(min(error.retry_after, self._options.longest_wait))
        if wait is None and fatal(error):
            self.limiter.fail(error)
        return wait

    def _verdict(self, error: dspy.LMError, progress: _Progress, sent: float) -> tuple[float | None, float | None]:
        """Seconds until the next attempt (None: no more), and seconds to hold all calls back (None: no change)."""
        options = self._options
        if not dspy.is_retryable_lm_error(error):
            if error.status is not None:
                # An answer, if not a welcome one.
                self._answered()
            return None, None
        alone = self.breaker.answers == progress.answers
        hold = self.breaker.failed(error, progress.number, sent)
        wait = self._wait(error, progress)
        progress.answers = self.breaker.answers
        if progress.outages != self.breaker.outages:
            progress.outages, progress.failures, progress.used = self.breaker.outages, 0, 0.0
        if self.breaker.unreachable or self.breaker.confirmed:
            return wait, hold
        progress.used += time.monotonic() - sent + wait
        if isinstance(error, dspy.LMRateLimitError):
            progress.refusals += 1
            # "Come back at once", said again and again to the only call there is, is no matter of pace.
            counted = alone and error.retry_after is not None and error.retry_after < _AT_ONCE
        else:
            counted = True
        progress.failures += counted
        over = progress.failures > options.retries or progress.used >= options.deadline
        return (None if over else wait), hold

    def _wait(self, error: dspy.LMError, progress: _Progress) -> float:
        """Seconds until the call's next attempt: what the provider asks for, or longer each time."""
        asked = error.retry_after
        if asked is not None and not (progress.refusals and asked < _AT_ONCE):
            return self._backoff.wait(0, asked)
        # Against refusals it is the limiter that slows down; a call that waits long would only miss its turn.
        refused = isinstance(error, dspy.LMRateLimitError)
        return self._backoff.wait(min(progress.refusals, 3) if refused else progress.failures)
