"""One pace for several processes: the limits of a minute, refusals and outages are those of all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from dspy import lm15

from debate_judge.programs.lm.errors import lm_error
from debate_judge.programs.lm.lending.lease import Lease
from debate_judge.programs.lm.lending.messages import LeaseGrant, LeaseReport
from debate_judge.programs.lm.limits.caller import Caller
from debate_judge.programs.lm.limits.provider_limits import RateLimits
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Reply
from tests.programs.lending import Account, answering, ask, now, run


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


@pytest.mark.parametrize(("first", "second"), [(600, 120), (120, 600), (120, 100)])
def test_different_limits_that_processes_are_told_starve_none(first: int, second: int) -> None:
    """As by a gateway to two accounts, or where one process stood still while the limits changed."""
    sent: list[float] = []

    async def work() -> float:
        account = Account(LMOptions(), RateLimits(600))
        callers = [account.caller(16), account.caller(16)]
        await ask(callers, 5, answering([]))
        for one, rpm in zip(callers, (first, second), strict=True):
            one.on_rate_limits(RateLimits(rpm))
            await asyncio.sleep(1)
        begun = now()
        async with asyncio.timeout(3600):
            await ask(callers, 150, answering(sent))
        return now() - begun

    seconds = run(work)
    assert len(sent) == 300
    # The limit that was told last holds.
    assert busiest_minute(sent) <= second
    assert seconds <= 300 / second * 60 * 1.05


def test_limits_that_change_with_every_report_leave_what_was_saved_up() -> None:
    async def work() -> float:
        account, granted = Account(LMOptions(), RateLimits(600)), 0.0
        for turn in range(600):
            report = LeaseReport("process", requests=1.0, pace=RateLimits((600, 120)[turn % 2]))
            granted += account.ledger.exchange(report).requests
            await asyncio.sleep(0.1)
        return granted

    assert 0.95 * 120 <= run(work) <= 600


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
