"""A limiter and a budget that hold what a ledger has lent, in place of limits of their own."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.lending.messages import NONE, Amounts, LeaseGrant
from debate_judge.programs.lm.limits.bucket import Bucket
from debate_judge.programs.lm.limits.budget import Budget, TokenNeed
from debate_judge.programs.lm.limits.provider_limits import NO_LIMIT, RateLimits
from debate_judge.programs.lm.limits.rate_limiter import Limiter
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.prices import Price

if TYPE_CHECKING:
    from debate_judge.programs.lm.lending.lease import Lease

_POLL = 1.0
"""Seconds after which a waiting call is looked at although the ledger has said nothing."""
_DUST = 1e-9
"""What rounding may leave of a sum that is nothing."""


class LeasedBudget(Budget):
    """Keeps a process within what it was lent. Only the ledger knows whether there is more."""

    def __init__(self, caps: BudgetCaps, price: Price | None) -> None:
        super().__init__(caps, price)
        self.leased: Amounts = NONE
        self.word = ""
        """What the ledger has said of a spent budget."""

    @property
    def final(self) -> bool:
        return bool(self.word)

    def admits(self, need: TokenNeed) -> bool:
        return all(
            paid + held + wanted <= leased * (1 + 1e-12) + _DUST
            for leased, paid, held, wanted in zip(self.leased, self._paid, self._held, self.most(need), strict=True)
        )

    @property
    def paid(self) -> Amounts:
        calls, tokens, usd = self._paid
        return calls, tokens, usd

    @property
    def held(self) -> Amounts:
        """Reserved for calls in flight."""
        calls, tokens, usd = (value if value > _DUST else 0.0 for value in self._held)
        return calls, tokens, usd

    def spent(self) -> BudgetSpentError:
        return BudgetSpentError(f"the next call might exceed the budget: {self.word or 'its shares'} are spent")


class _Permits(Bucket):
    """Requests or tokens that were lent."""

    def __init__(self) -> None:
        self._limited = True
        self._level = 0.0

    def wait(self, now: float, amount: float) -> float:
        return 0.0 if not self._limited or self._level >= amount else _POLL

    def take(self, amount: float) -> None:
        if self._limited:
            self._level -= amount

    def add(self, amount: float) -> None:
        self._limited = amount != math.inf
        self._level = self._level + amount if self._limited else 0.0

    def drop(self) -> None:
        """Forget what is left; what was taken too much stays."""
        self._level = min(self._level, 0.0)


class LeasedLimiter(Limiter):
    """A limiter whose requests and tokens a minute, and whose budget, are lent."""

    def __init__(self, concurrency: int, options: LMOptions, budget: Budget | None, lease: Lease) -> None:
        self._lease = lease
        self.refusals = 0
        self.asked_to_wait_until = 0.0
        super().__init__(concurrency, options, budget)
        self.named = NO_LIMIT
        """The limits that the provider has named."""
        self._requests = self._lent_requests = _Permits()
        self._tokens = self._lent_tokens = _Permits()

    def on_rate_limits(self, pace: RateLimits) -> None:
        # They are the account's, so that only the ledger can keep them.
        self.named = pace

    def congested(self, sent: float) -> None:
        self.refusals += 1
        self._lease.hurry()
        super().congested(sent)

    def pause(self, seconds: float) -> None:
        self.asked_to_wait_until = max(self.asked_to_wait_until, time.monotonic() + seconds)
        self._lease.hurry()
        super().pause(seconds)

    def wants(self) -> tuple[list[TokenNeed], float, float]:
        """Needs of the waiting calls that have a place, and the requests and tokens that they lack.

        Requests that were lent and not used are forgotten: later they would come on top of that minute's.
        """
        requests, tokens = self._lent_requests, self._lent_tokens
        requests.drop()
        if not self._waiting:
            tokens.drop()
        places = int(self.window) - self.in_flight if time.monotonic() >= self._closed_until else 0
        needs = [need for future, need in self._waiting if not future.done()][: max(0, places)]
        lacking = sum(need.tokens for need in needs) - tokens.level if needs else 0.0
        return needs, len(needs) - requests.level if needs else 0.0, max(0.0, lacking)

    def apply(self, grant: LeaseGrant, refused: bool) -> None:
        """Take in what was lent, and what the others met."""
        self._lent_requests.add(grant.requests)
        self._lent_tokens.add(grant.tokens)
        if refused:
            # The account has one window: what one process has cut, all have.
            self.window = max(1.0, min(self.window, grant.window * self.concurrency))
            self._cut_at, self._step = time.monotonic(), 1.0
        if grant.pause > 0:
            super().pause(grant.pause)
        self._pump()

    def _delay(self, now: float, need: TokenNeed) -> float:
        delay = super()._delay(now, need)
        if delay > 0.0 and self.in_flight < int(self.window):
            self._lease.hurry()
        return delay

    def _on_loop(self) -> asyncio.AbstractEventLoop:
        loop = super()._on_loop()
        self._lease.start(loop)
        return loop
