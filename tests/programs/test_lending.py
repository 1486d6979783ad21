"""One account for several processes: the ledger and the leases, on a clock of their own and without any process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.lm.errors import BudgetSpentError, lm_error
from debate_judge.programs.lm.lending.lease import Lease
from debate_judge.programs.lm.lending.ledger import AccountLedger
from debate_judge.programs.lm.lending.messages import NONE, Amounts, LeaseGrant, LeaseReport
from debate_judge.programs.lm.limits.caller import Caller
from debate_judge.programs.lm.limits.provider_limits import RateLimits
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply
from tests.virtual_time import virtual_time

_LIMITS = "debate_judge.programs.lm.limits."
_LENDING = "debate_judge.programs.lm.lending."
MODULES = (
    *(_LIMITS + name for name in ("rate_limiter", "circuit_breaker", "caller", "attempts")),
    *(_LENDING + name for name in ("lease", "leased_limits")),
)
PRICE = Price(1.0, 1.0, 4.0)


class Account:
    """A ledger that several callers reach, and that can be started again as after a crash."""

    def __init__(self, options: LMOptions, usual: RateLimits = RateLimits()) -> None:  # noqa: B008
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


def busiest_minute(sent: list[float]) -> int:
    return max(sum(start <= at < start + 60 for at in sent) for start in sent)


def test_requests_of_all_processes_keep_to_one_limit_and_use_it() -> None:
    sent: list[float] = []

    async def work() -> float:
        account = Account(LMOptions(rpm=300))
        callers = [account.caller(16) for _ in range(3)]
        begun = now()
        await ask(callers, 300, answering(sent))
        return now() - begun

    seconds = run(work)
    assert len(sent) == 900
    assert busiest_minute(sent) <= 300
    # 900 requests at 300 a minute; the first second's worth has to be saved up.
    assert seconds <= 180 * 1.05


def test_tokens_of_all_processes_keep_to_one_limit() -> None:
    sent: list[float] = []

    async def work() -> float:
        account = Account(LMOptions(tpm=6000))
        begun = now()
        await ask([account.caller(16), account.caller(16)], 400, answering(sent))
        return now() - begun

    seconds = run(work)
    assert len(sent) == 800
    # Each takes 15 tokens, once the first answers have said so.
    assert busiest_minute(sent[60:]) * 15 <= 6000 * 1.05
    assert seconds <= 800 * 15 / 100 * 1.25


def test_limits_that_a_provider_names_hold_for_all() -> None:
    sent: list[float] = []

    async def work() -> None:
        account = Account(LMOptions(), RateLimits(600))
        callers = [account.caller(16), account.caller(16)]
        await ask(callers, 20, answering(sent))
        callers[0].on_rate_limits(RateLimits(120))
        await asyncio.sleep(1)
        sent.clear()
        await ask(callers, 200, answering(sent))

    run(work)
    assert len(sent) == 400
    assert busiest_minute(sent) <= 120


@pytest.mark.parametrize("seed", range(12))
def test_a_budget_is_never_exceeded_and_its_end_ends_all(seed: int) -> None:
    """Processes of different appetite, some of which are killed; the ledger is killed now and then, too."""
    rng = random.Random(seed)
    caps = BudgetCaps(calls=rng.choice((None, 60)), tokens=rng.choice((None, 1500)), usd=rng.choice((0.004, 0.05)))
    spent = {"calls": 0, "tokens": 0, "usd": 0.0}

    async def send() -> Reply:
        size, length = rng.randint(5, 20), rng.randint(1, 20)
        spent["calls"] += 1
        spent["tokens"] += size + length
        spent["usd"] += PRICE.of(size, 0, length)
        assert spent["calls"] <= (caps.calls or 10**9)
        assert spent["tokens"] <= (caps.tokens or 10**9)
        assert spent["usd"] <= (caps.usd or 10**9) + 1e-12
        await asyncio.sleep(rng.uniform(0.05, 1.0))
        return Reply("ok", size, length)

    async def work() -> list[Any]:
        account = Account(LMOptions(budget=caps))
        callers = [account.caller(rng.choice((1, 4, 16)), PRICE) for _ in range(3)]
        doomed = asyncio.create_task(ask([account.caller(4, PRICE)], 500, send))
        rest = asyncio.create_task(ask(callers, 2000, send))
        await asyncio.sleep(rng.uniform(0.1, 2))
        doomed.cancel()
        for _ in range(rng.choice((0, 1, 3))):
            await asyncio.sleep(rng.uniform(0, 1))
            account.restart()
        return await rest

    results = run(work)
    answered = sum(isinstance(one, Reply) for one in results)
    assert answered
    assert {type(one) for one in results} <= {Reply, BudgetSpentError}
    assert any(isinstance(one, BudgetSpentError) for one in results)


def test_the_whole_budget_can_be_used() -> None:
    sent: list[float] = []

    async def work() -> tuple[list[Any], Account]:
        account = Account(LMOptions(budget=BudgetCaps(calls=100)))
        return await ask([account.caller(), account.caller(), account.caller()], 100, answering(sent)), account

    results, account = run(work)
    assert len(sent) == 100
    assert sum(isinstance(one, Reply) for one in results) == 100
    errors = [one for one in results if isinstance(one, BudgetSpentError)]
    assert "100 of 100 calls" in str(errors[0])
    # Promises are written in steps, not call by call.
    assert account.written <= 55


def test_a_ledger_that_starts_again_forgets_no_spending() -> None:
    sent: list[float] = []

    async def work() -> None:
        account = Account(LMOptions(budget=BudgetCaps(calls=200)))
        await ask([account.caller()], 50, answering(sent))
        # What it has paid is told by no one any more.
        account.restart()
        assert account.promised[0] >= 50
        await ask([account.caller(), account.caller()], 200, answering(sent))

    run(work)
    assert 180 <= len(sent) <= 200


def test_what_a_process_gives_back_at_its_end_is_lent_again() -> None:
    sent: list[float] = []

    async def work() -> None:
        account = Account(LMOptions(budget=BudgetCaps(calls=40)))
        lease = Lease("short", account.exchange)
        one = Caller("test/m", 8, account.options)
        one.join(lease)
        await ask([one], 3, answering(sent))
        account.ledger.exchange(lease.report(last=True))
        await ask([account.caller()], 100, answering(sent))

    run(work)
    assert len(sent) == 40


def test_a_refusal_of_one_slows_the_others() -> None:
    async def work() -> tuple[float, float, float]:
        account = Account(LMOptions())
        refused, other = account.caller(16), account.caller(16)
        tries = 0
        sent: list[float] = []

        async def send() -> Reply:
            nonlocal tries
            tries += 1
            if tries <= 40:
                raise lm_error(lm15.RateLimitError("slow down", status=429), "test/m")
            return await answering(sent)()

        busy = asyncio.create_task(ask([other], 600, answering([])))
        await asyncio.sleep(1)
        before = other.limiter.window
        asking = asyncio.create_task(ask([refused], 60, send))
        await asyncio.sleep(4)
        after = other.limiter.window
        await asyncio.gather(busy, asking)
        return before, after, refused.limiter.window

    before, after, own = run(work)
    assert before == 16
    assert after < 13
    assert own < 16 or after < 16


def test_retry_after_holds_all() -> None:
    sent: list[float] = []

    async def work() -> float:
        account = Account(LMOptions())
        refused, other = account.caller(), account.caller()
        tries = 0

        async def send() -> Reply:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise lm_error(lm15.RateLimitError("wait", status=429, retry_after=20.0), "test/m")
            return await answering([])()

        busy = asyncio.create_task(ask([other], 400, answering(sent)))
        await asyncio.sleep(1)
        met = now()
        await ask([refused], 1, send)
        await busy
        return met

    met = run(work)
    held = [at for at in sent if met + 0.6 < at < met + 20]
    assert held == []
    assert [at for at in sent if at > met + 20]


def test_an_outage_that_one_process_meets_holds_the_others_until_they_are_answered() -> None:
    sent: list[float] = []

    async def work() -> tuple[float, float]:
        account = Account(LMOptions(patience=1000, first_wait=0.1, retries=100))
        down, other = account.caller(), account.caller()

        async def send() -> Reply:
            if now() < outage_ends:
                raise lm_error(lm15.ServerError("bad gateway", status=502), "test/m")
            return await answering([])()

        async def probe() -> Reply:
            if now() < outage_ends:
                sent.append(now())
                raise lm_error(lm15.ServerError("bad gateway", status=502), "test/m")
            return await answering(sent)()

        began = now()
        outage_ends = began + 40
        asking = asyncio.create_task(ask([down], 40, send))
        await asyncio.sleep(10)
        await ask([other], 200, probe)
        await asking
        return began, outage_ends

    began, ends = run(work)
    # Without the news 8 places would try several times a second.
    assert len([at for at in sent if began + 10.5 < at < ends]) <= 31
    assert len([at for at in sent if at >= ends]) >= 200


def test_a_ledger_that_is_away_only_delays() -> None:
    sent: list[float] = []

    async def work() -> list[Any]:
        account = Account(LMOptions(rpm=600))
        exchange, away = account.exchange, True

        async def flaky(report: LeaseReport) -> LeaseGrant:
            if away:
                raise ConnectionError("no ledger")
            return await exchange(report)

        one = Caller("test/m", 8, account.options)
        one.join(Lease("process", flaky))
        asking = asyncio.create_task(ask([one], 20, answering(sent)))
        await asyncio.sleep(5)
        assert sent == []
        away = False
        return await asking

    assert all(isinstance(one, Reply) for one in run(work))


def test_a_price_is_needed_for_a_budget_in_money() -> None:
    with pytest.raises(ValueError, match="needs a price"):
        Account(LMOptions(budget=BudgetCaps(usd=1.0))).caller()
    assert issubclass(BudgetSpentError, dspy.LMError)
