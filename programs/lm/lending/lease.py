"""What one of several processes may use of an account that they share.

Each process has the limiter and the budget of a single one, but both hold only what the ledger has lent. A `Lease`
tells the ledger, again and again, what was used and what is wanted, and takes in what it may have now. With it comes
news of the others: a refusal that one of them met shrinks the window of all, and Retry-After and an outage hold all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from debate_judge.programs.lm.lending.leased_limits import LeasedBudget, LeasedLimiter
from debate_judge.programs.lm.lending.messages import BEAT, NONE, LeaseGrant, LeaseReport, each, total
from debate_judge.programs.lm.limits.circuit_breaker import CircuitBreaker
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price

_LOG = logging.getLogger(__name__)

_SILENCE = 1.0
"""Seconds until a ledger that did not answer is asked again."""


class Lease:
    """The conversation of one process with the ledger, held on the event loop that makes its calls.

    Args:
        lessee: A name that no other process ever has.
        exchange: Sends a report and returns the answer; may take as long as the ledger needs to come back.
    """

    def __init__(self, lessee: str, exchange: Callable[[LeaseReport], Awaitable[LeaseGrant]]) -> None:
        self.lessee = lessee
        self._exchange = exchange
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hungry = asyncio.Event()
        self._budget: LeasedBudget | None = None
        self._give_back = False
        self._refusals = 0
        """Of the others, as they were last heard of."""
        self._held_at: int | None = None
        """Answers of this process when another one's outage began to hold it; None where none does."""
        self._ignored = False
        """Whether this process is answered while another is not."""

    def limit(
        self, concurrency: int, options: LMOptions, price: Price | None, breaker: CircuitBreaker
    ) -> tuple[LeasedLimiter, LeasedBudget | None]:
        """Make the limiter, and the budget where there is a cap, that hold what is lent."""
        self._breaker = breaker
        self._budget = LeasedBudget(options.budget, price) if options.budget else None
        self._limiter = LeasedLimiter(concurrency, options, self._budget, self)
        return self._limiter, self._budget

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to report from this loop, unless it does already."""
        if loop is not self._loop:
            self._loop, self._hungry = loop, asyncio.Event()
            self._task = loop.create_task(self._converse())

    def hurry(self) -> None:
        """Report soon: something is wanted, or there is news."""
        self._hungry.set()

    def report(self, *, last: bool = False) -> LeaseReport:
        """What there is to say; the last report wants nothing and gives back what was not paid."""
        needs, requests, tokens = ([], 0.0, 0.0) if last else self._limiter.wants()
        budget, leased, paid, held, first, wanted = self._budget, NONE, NONE, NONE, NONE, NONE
        if budget is not None:
            paid, held = budget.paid, budget.held
            most = [budget.most(need) for need in needs]
            first, wanted = most[0] if most else NONE, total(*most)
            if last or self._give_back:
                budget.leased = each(min, budget.leased, total(paid, held))
            leased = budget.leased
        return LeaseReport(
            self.lessee,
            leased=leased,
            paid=paid,
            held=held,
            first=first,
            wanted=wanted,
            requests=requests,
            tokens=tokens,
            first_tokens=min(tokens, needs[0].tokens) if needs else 0.0,
            pace=self._limiter.named,
            refusals=self._limiter.refusals,
            window=self._limiter.window / self._limiter.concurrency,
            pause=max(0.0, self._limiter.asked_to_wait_until - time.monotonic()),
            down=self._breaker.open and not last,
        )

    async def _converse(self) -> None:
        while True:
            self._hungry.clear()
            report = self.report()
            try:
                grant = await self._exchange(report)
            except Exception as error:
                _LOG.warning("the ledger of the account does not answer: %s", error)
                await asyncio.sleep(_SILENCE)
                continue
            self._take(grant)
            if report.requests > 0 or any(report.first):
                await asyncio.sleep(grant.wait)
                continue
            try:
                async with asyncio.timeout(BEAT):
                    await self._hungry.wait()
            except TimeoutError:
                continue

    def _take(self, grant: LeaseGrant) -> None:
        if self._budget is not None:
            self._budget.leased, self._budget.word = grant.leased, grant.spent
        self._give_back = grant.give_back
        refused, self._refusals = grant.refusals > self._refusals, grant.refusals
        self._heed_outage(grant.down)
        self._limiter.apply(grant, refused)

    def _heed_outage(self, down: bool) -> None:
        """Probe like a process that met the outage itself, until the other one or this one is answered."""
        if not down:
            self._ignored = False
        if self._held_at is None:
            if down and not self._ignored and not self._breaker.open:
                self._held_at = self._breaker.answers
                self._limiter.hold(1.0)
        elif self._breaker.open:
            # Its own breaker takes over.
            self._held_at = None
        elif not down or self._breaker.answers > self._held_at:
            self._ignored, self._held_at = down, None
            self._limiter.resume()
