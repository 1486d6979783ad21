"""One budget for several processes: never exceeded, used to its end, not forgotten by a ledger that starts again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.lending.lease import Lease
from debate_judge.programs.lm.limits.caller import Caller
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply
from tests.programs.lending import Account, answering, ask, run

PRICE = Price(1.0, 1.0, 4.0)


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


def test_a_price_is_needed_for_a_budget_in_money() -> None:
    async def work() -> None:
        with pytest.raises(ValueError, match="needs a price"):
            Account(LMOptions(budget=BudgetCaps(usd=1.0))).caller()

    run(work)
