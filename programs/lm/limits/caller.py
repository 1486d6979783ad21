"""Makes a call to an LM within all limits, again and again until it is answered or has failed for good.

Everything that can fail here is transient by the provider's word; what each failure means is decided in three places:
`attempts` for the call, `circuit_breaker` for the provider, `rate_limiter` for the pace of all calls.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import dspy

from debate_judge.programs.lm.errors import STRAY, concerns_all_calls, lm_error
from debate_judge.programs.lm.limits import control_call
from debate_judge.programs.lm.limits.attempts import CallAttempts, PendingCall
from debate_judge.programs.lm.limits.budget import NOTHING, Budget, TokenEstimator, TokenNeed
from debate_judge.programs.lm.limits.circuit_breaker import CircuitBreaker
from debate_judge.programs.lm.limits.control_call import ControlCall
from debate_judge.programs.lm.limits.deadline import deadline
from debate_judge.programs.lm.limits.provider_limits import RateLimits
from debate_judge.programs.lm.limits.rate_limiter import Limiter, acquire_claimed
from debate_judge.programs.lm.limits.requests import RequestsInFlight
from debate_judge.programs.lm.limits.retries import Backoff, retry
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.sharing.claims import CallClaim

if TYPE_CHECKING:
    from debate_judge.programs.lm.lending.lease import Lease

_OVERLOADED = (503, 529)
"""Statuses, besides 429, by which servers ask to be asked less."""


class Caller:
    """Makes calls to one model, within its limits.

    Args:
        model: For messages.
        concurrency: Most calls in flight.
        options: Rate limits, retries, deadlines, budget.
        price: Needed for a budget in money.
        control: Makes a call that any model can answer. When it fails too, the provider is down, not the item at
            fault.
        control_tokens: Limit on the length of the reply to it.
    """

    def __init__(
        self,
        model: str,
        concurrency: int,
        options: LMOptions,
        price: Price | None = None,
        control: Callable[[], Awaitable[Reply]] | None = None,
        *,
        control_tokens: int | None = None,
    ) -> None:
        self._model = model
        self._options = options
        self._price = price
        self._budget: Budget | None = Budget(options.budget, price) if options.budget else None
        self._estimate = TokenEstimator() if options.tpm or options.usual.tpm or options.budget else None
        self.limiter: Limiter
        self._limit(concurrency)
        self.breaker = CircuitBreaker(model, options)
        self._control_tokens = control_tokens
        self._send_control = control
        self._control = self._new_control()
        self._numbers = itertools.count()
        self._backoff = Backoff(options.first_wait, options.longest_wait)
        self.requests = RequestsInFlight()

    def share_budget(self, other: Caller, price: Price | None) -> None:
        """From before the first call on, take what calls cost at `price` from the budget of `other`."""
        self._budget = None if other._budget is None else other._budget.beside(price)
        self.requests = other.requests
        self._limit(self.limiter.concurrency)

    def join(self, lease: Lease) -> None:
        """From before the first call on, use only what the ledger of a shared account lends to this process."""
        limits = lease.limit(self.limiter.concurrency, self._options, self._price, self.breaker)
        self.limiter, self._budget = limits
        self._gate = Limiter(sys.maxsize, LMOptions(), self._budget)

    def apart(self) -> Caller:
        """The same for another event loop: budget, breaker and estimates are shared, places and pace are not."""
        one = copy.copy(self)
        one._limit(self.limiter.concurrency)
        one._control = one._new_control()
        one.requests = RequestsInFlight()
        return one

    def _new_control(self) -> ControlCall:
        send = self._send_control
        return ControlCall(send and partial(self._control_call, send), self.breaker)

    def _limit(self, concurrency: int) -> None:
        self.limiter = Limiter(concurrency, self._options, self._budget)
        self._gate = Limiter(sys.maxsize, LMOptions(), self._budget)

    async def call(
        self,
        send: Callable[[], Awaitable[Reply]],
        size: int,
        max_tokens: int | None,
        keep: Callable[[Reply], None] | None = None,
        over: Callable[[], None] = lambda: None,
        *,
        claim: CallClaim | None = None,
    ) -> Reply:
        """Make one call.

        A call that is cancelled while a request of it is out leaves the request to end by itself, within its deadline:
        the provider charges for the answer, so it is kept. `requests.drain` waits for it.

        Args:
            send: Makes one attempt; may be cancelled at any time.
            size: UTF-8 bytes of the call's texts.
            max_tokens: Limit on the reply's length.
            keep: Called with the reply as soon as it is there, even if the call has been cancelled meanwhile.
            over: Called once, when nothing more can come of this call.
            claim: Held while the call is made, to be released by `over`; what it has `found` is returned instead.

        Raises:
            dspy.LMError: The call failed for good, the provider is down, or the budget is spent.
            InputError: As `keep` raises it.
        """
        attempts = self._attempts()
        once = partial(self._attempt, attempts, PendingCall(send, size, max_tokens, keep, claim))
        try:
            return await retry(once, partial(self._wait_after, attempts))
        finally:
            if attempts.request is None or attempts.request.done():
                over()
            else:
                attempts.request.add_done_callback(lambda _: over())

    def _attempts(self) -> CallAttempts:
        return CallAttempts(next(self._numbers), self._options, self.breaker, self._backoff)

    async def _attempt(self, attempts: CallAttempts, call: PendingCall) -> Reply:
        """Wait for a place, and send once; raises as `call` does."""
        need, attempts.wait = self._need(call.size, call.max_tokens), None
        # One that was let through before goes first, unless the provider is down and another must show its return.
        first = attempts.request is not None and not self.breaker.open
        if (found := await acquire_claimed(self.limiter, need, call.claim, first=first)) is not None:
            return found
        comes_back = False
        attempts.request = request = self.requests.start(self._request(attempts, call, need))
        try:
            return await asyncio.shield(request)
        except dspy.LMRateLimitError:
            if attempts.wait is not None:
                # It keeps its place while it waits: another call in this place would only be refused as well.
                await asyncio.sleep(attempts.wait)
                comes_back, attempts.wait = True, 0.0
            raise
        finally:
            if request.done():
                self.limiter.release(need, pass_on=not comes_back)
            else:
                # Cancelled. The place stays taken: a budget must not count on what this request may still cost.
                request.add_done_callback(lambda _: self.limiter.release(need))

    async def _request(self, attempts: CallAttempts, call: PendingCall, need: TokenNeed) -> Reply:
        """Send once and take in what comes of it, whether or not the call still waits for it."""
        sent = time.monotonic()
        try:
            async with deadline(attempts.time_left):
                reply = await call.send()
        except Exception as raised:
            error = lm_error(raised, self._model)
            self._forfeit(need, error)
            self._failed(error, attempts, sent)
            raise error from raised
        self._settle(call.size, need, reply)
        self._answered()
        self.limiter.succeeded()
        if call.keep is not None:
            call.keep(reply)
        return reply

    def _forfeit(self, need: TokenNeed, error: dspy.LMError) -> None:
        """Charge what a request may have cost whose answer came too late or was lost."""
        too_late = isinstance(error, dspy.LMTimeoutError) and error.status is None
        if self._budget is not None and (too_late or error.provider_code == STRAY):
            self._budget.forfeit(need)

    async def _wait_after(self, attempts: CallAttempts, error: Exception) -> float:
        """Seconds until the next attempt; raises `error` if there is none."""
        if attempts.wait is not None:
            return attempts.wait
        transient = isinstance(error, dspy.LMError) and dspy.is_retryable_lm_error(error)
        if transient and await self._control.is_down(attempts):
            return attempts.start_over()
        raise error

    async def call_in_batch(self, send: Callable[[], Awaitable[Reply]], size: int, max_tokens: int | None) -> Reply:
        """Make one call that goes out in a batch job. Only the budget limits it.

        It takes as long as its job takes, and the dispatcher of the jobs repeats it if need be.
        """
        need = replace(self._need(size, max_tokens), batch=True)
        await self._gate.acquire(need)
        try:
            reply = await send()
        except Exception as raised:
            error = lm_error(raised, self._model)
            if concerns_all_calls(error):
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

    async def _control_call(self, send: Callable[[], Awaitable[Reply]]) -> None:
        need = self._need(control_call.SIZE, self._control_tokens)
        if self._budget is not None and not self._budget.admits(need):
            raise self._budget.spent()
        # It waits for no place, but takes one: calls that wait must not find the budget spent by what it reserves.
        self.limiter.take(need)
        try:
            async with deadline(self._options.attempt):
                reply = await send()
        except Exception as raised:
            error = lm_error(raised, self._model)
            if error.status is not None and not dspy.is_retryable_lm_error(error):
                self._answered()
            self._forfeit(need, error)
            raise error from raised
        else:
            self._settle(0, need, reply)
            self._answered()
        finally:
            self.limiter.release(need)

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

    def _failed(self, error: dspy.LMError, attempts: CallAttempts, sent: float) -> None:
        """Take in a failure: sets `attempts.wait`, and slows all calls down or ends them where that is called for."""
        try:
            hold = self._count(error, attempts, sent)
        except dspy.LMError as down:
            self.limiter.fail(down)
            raise
        if hold is not None:
            self.limiter.hold(hold)
            self._control.ask()
        slower = isinstance(error, (dspy.LMRateLimitError, dspy.LMTimeoutError)) or error.status in _OVERLOADED
        if slower or self.breaker.suspicious:
            self.limiter.congested(sent)
            if error.retry_after:
                self.limiter.pause(min(error.retry_after, self._options.longest_wait))
        if attempts.wait is None and concerns_all_calls(error):
            self.limiter.fail(error)

    def _count(self, error: dspy.LMError, attempts: CallAttempts, sent: float) -> float | None:
        """Seconds to hold all calls back from now on, or None for no change."""
        if error.provider_code == STRAY:
            attempts.stray()
            return None
        if dspy.is_retryable_lm_error(error):
            return attempts.failed(error, sent)
        if error.status is not None:
            # The provider has answered, if only to refuse: it is not down.
            self._answered()
        return None
