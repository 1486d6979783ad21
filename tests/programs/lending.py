"""An account that several callers share, in virtual time and without any process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from debate_judge.programs.lm.lending.lease import Lease
from debate_judge.programs.lm.lending.ledger import AccountLedger
from debate_judge.programs.lm.lending.messages import NONE, Amounts, LeaseGrant, LeaseReport
from debate_judge.programs.lm.limits.caller import Caller
from debate_judge.programs.lm.limits.provider_limits import NO_LIMIT, RateLimits
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply
from tests.virtual_time import virtual_time

_LIMITS = "debate_judge.programs.lm.limits."
_LENDING = "debate_judge.programs.lm.lending."
MODULES = (
    *(_LIMITS + name for name in ("bucket", "rate_limiter", "circuit_breaker", "caller", "attempts")),
    *(_LENDING + name for name in ("lease", "leased_limits")),
)


class Account:
    """A ledger that several callers reach, and that can be started again as after a crash."""

    def __init__(self, options: LMOptions, usual: RateLimits = NO_LIMIT) -> None:
        self.options, self.usual = options, usual
        self.promised: Amounts = NONE
        self.written = 0
        self.made = 0
        self.restart()

    def restart(self) -> None:
        self.ledger = AccountLedger(
            self.options.budget,
            RateLimits(self.options.rpm, self.options.tpm),
            self.usual,
            promised=self.promised,
            keep=self.keep,
            clock=lambda: asyncio.get_event_loop().time(),
        )

    def keep(self, promised: Amounts) -> None:
        self.promised = promised
        self.written += 1

    async def exchange(self, report: LeaseReport) -> LeaseGrant:
        await asyncio.sleep(0.002)
        grant = self.ledger.exchange(report)
        await asyncio.sleep(0.002)
        return grant

    def caller(self, concurrency: int = 8, price: Price | None = None) -> Caller:
        self.made += 1
        one = Caller("test/m", concurrency, self.options, price)
        one._backoff.jitter.seed(self.made)
        one.join(Lease(f"process {self.made}", self.exchange))
        return one


def now() -> float:
    return asyncio.get_running_loop().time()


def run(work: Callable[[], Any]) -> Any:
    with virtual_time(*MODULES) as go:
        return go(work())


def answering(sent: list[float], seconds: float = 0.2) -> Callable[[], Any]:
    async def send() -> Reply:
        sent.append(now())
        await asyncio.sleep(seconds)
        return Reply("ok", 10, 5)

    return send


async def ask(callers: list[Caller], each: int, send: Callable[[], Any]) -> list[Any]:
    calls = [one.call(send, 40, 20) for one in callers for _ in range(each)]
    return await asyncio.gather(*calls, return_exceptions=True)
