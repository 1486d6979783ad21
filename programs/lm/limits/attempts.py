"""What one call's failures so far mean for it: how long it waits before the next attempt, and when it has failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dspy

from debate_judge.programs.lm.limits.circuit_breaker import CircuitBreaker
from debate_judge.programs.lm.limits.retries import Backoff
from debate_judge.programs.lm.options import LMOptions

if TYPE_CHECKING:
    from debate_judge.programs.lm.reply import Reply
    from debate_judge.programs.lm.sharing.claims import CallClaim

_AT_ONCE = 0.1
"""Seconds of Retry-After below which it asks for no wait at all; a call that is refused again waits all the same."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """What stays the same over the attempts of a call; see `programs.lm.limits.caller.Caller.call`."""

    send: Callable[[], Awaitable[Reply]]
    size: int
    max_tokens: int | None
    keep: Callable[[Reply], None] | None
    claim: CallClaim | None


class CallAttempts:
    """The attempts of one call.

    Args:
        number: Of the call, so that the breaker can tell several failing calls from one that fails several times.
        options: Retries, deadline, waits.
        breaker: Tells the call's own failures from the provider's.
        backoff: The waits.
    """

    def __init__(self, number: int, options: LMOptions, breaker: CircuitBreaker, backoff: Backoff) -> None:
        self._number, self._options, self._breaker, self._backoff = number, options, breaker, backoff
        self._answers = breaker.answers
        self._alone = True
        self._outages = breaker.outages
        self._failures = 0
        self._refusals = 0
        self._used = 0.0
        self.wait: float | None = None
        """Seconds from the last failure to the next attempt; None if that was the last one, or none was made."""
        self.request: asyncio.Task[Reply] | None = None
        """The last attempt's, if there was one; it goes on when the call is cancelled, for its answer is paid for."""

    @property
    def time_left(self) -> float:
        """Seconds that the next attempt may take."""
        left = self._options.deadline - self._used
        # Only an outage keeps a call going beyond its deadline, and an outage has a limit of its own.
        return min(self._options.attempt, left) if left > 0 else self._options.attempt

    @property
    def others_were_answered(self) -> bool:
        """Whether the provider has answered any call between the last two failures of this one."""
        return not self._alone

    def start_over(self) -> float:
        """Forget the failures, which were the provider's; returns seconds to wait."""
        self._failures, self._used = 0, 0.0
        return self._options.first_wait

    def failed(self, error: dspy.LMError, sent: float) -> float | None:
        """Take in a failure after which another attempt may succeed, and set `wait`.

        Args:
            error: The failure.
            sent: When the attempt was made, on the clock of `time.monotonic`.

        Returns:
            Seconds to hold all calls back from now on, or None for no change.

        Raises:
            ProviderDownError: The provider has been down for too long.
        """
        breaker, options = self._breaker, self._options
        alone = self._alone = breaker.answers == self._answers
        hold = breaker.failed(error, self._number, sent)
        wait = self._next_wait(error)
        self._answers = breaker.answers
        if self._outages != breaker.outages:
            self._outages = breaker.outages
            self.start_over()
        self.wait = wait
        if breaker.unreachable or breaker.confirmed:
            return hold
        self._used += time.monotonic() - sent + wait
        if isinstance(error, dspy.LMRateLimitError):
            self._refusals += 1
            # A refusal does not count as a failure: the limiter slows down until there are none. But "come back at
            # once", said again and again to the only call there is, is no matter of pace and would never end.
            self._failures += alone and error.retry_after is not None and error.retry_after < _AT_ONCE
        else:
            self._failures += 1
        if self._failures > options.retries or self._used >= options.deadline:
            self.wait = None
        return hold

    def stray(self) -> None:
        """Take in that something else came than the answer, which says nothing about the provider: ask at once."""
        self._failures += 1
        self.wait = None if self._failures > self._options.retries else 0.0

    def _next_wait(self, error: dspy.LMError) -> float:
        """Seconds until the next attempt: what the provider asks for, or longer each time."""
        asked = error.retry_after
        if asked is not None and not (self._refusals and asked < _AT_ONCE):
            return self._backoff.wait(0, asked)
        # Against refusals it is the limiter that slows down; a call that waits long would only miss its turn.
        refused = isinstance(error, dspy.LMRateLimitError)
        return self._backoff.wait(min(self._refusals, 3) if refused else self._failures)
