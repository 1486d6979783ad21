"""A call that is cancelled or runs out of time: its answer is kept, its place is freed, and its cost is booked."""

from __future__ import annotations

import asyncio

import pytest
from dspy import lm15

from debate_judge.programs.lm.errors import STRAY, BudgetSpentError
from debate_judge.programs.lm.limits.caller import Caller
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.reply import Reply
from tests.virtual_time import virtual_time

CLOCKED = (
    "debate_judge.programs.lm.limits.bucket",
    "debate_judge.programs.lm.limits.rate_limiter",
    "debate_judge.programs.lm.limits.attempts",
    "debate_judge.programs.lm.limits.caller",
    "debate_judge.programs.lm.limits.circuit_breaker",
)


REPLY = Reply("fine", 10, 5)


def test_an_answer_that_is_there_when_its_time_ends_is_taken() -> None:
    """A loop that was held up finds the answer and the end of the time in one turn, the answer first."""
    sent = 0

    async def work() -> Reply:
        loop = asyncio.get_running_loop()
        caller = Caller("test/m", 1, LMOptions(attempt=30.0))

        async def send() -> Reply:
            nonlocal sent
            sent += 1
            answer: asyncio.Future[Reply] = loop.create_future()
            loop.call_later(29.9, hold_up, answer)
            return await answer

        def hold_up(answer: asyncio.Future[Reply]) -> None:
            loop.now += 5.0  # type: ignore[attr-defined]
            loop.call_soon(answer.set_result, REPLY)

        return await caller.call(send, 400, 100)

    with virtual_time(*CLOCKED) as run:
        assert run(work()) == REPLY
    assert sent == 1


def test_a_cancelled_call_keeps_the_answer_that_is_on_its_way_and_makes_no_other() -> None:
    kept: list[Reply] = []
    sent: list[float] = []
    over: list[float] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        caller = Caller("test/m", 1, LMOptions(budget=BudgetCaps(calls=1)))

        async def send() -> Reply:
            sent.append(loop.time())
            await asyncio.sleep(20.0)
            return REPLY

        first = asyncio.create_task(caller.call(send, 400, 100, kept.append, lambda: over.append(loop.time())))
        second = asyncio.create_task(caller.call(send, 400, 100, kept.append))
        await asyncio.sleep(5.0)
        first.cancel()
        second.cancel()
        await asyncio.wait((first, second))
        assert not over
        assert caller.limiter.in_flight == 1
        await caller.requests.drain()
        assert loop.time() - sent[0] == 20.0
        with pytest.raises(BudgetSpentError, match="1 of 1 calls"):
            await caller.call(send, 400, 100, kept.append)

    with virtual_time(*CLOCKED) as run:
        run(work())
    assert (kept, len(sent), len(over)) == ([REPLY], 1, 1)


def test_a_cancelled_call_does_not_hold_its_place_beyond_the_deadline() -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        caller = Caller("test/m", 1, LMOptions(attempt=30.0))
        start = loop.time()
        call = asyncio.create_task(caller.call(lambda: asyncio.sleep(3600, REPLY), 400, 100))
        await asyncio.sleep(1.0)
        call.cancel()
        await caller.requests.drain()
        assert caller.limiter.in_flight == 0
        return loop.time() - start

    with virtual_time(*CLOCKED) as run:
        assert run(work()) == pytest.approx(30.0)


@pytest.mark.parametrize("way", ["stray", "too late"])
def test_a_request_whose_answer_is_lost_is_charged_to_the_budget(way: str) -> None:
    """A server that has the request may charge for it, so three calls of the budget allow no fourth request."""
    sent = 0

    async def send() -> Reply:
        nonlocal sent
        sent += 1
        if way == "stray":
            raise lm15.TransportError("a copy", provider_code=STRAY)
        await asyncio.sleep(3600)
        return REPLY

    async def work() -> None:
        caller = Caller("test/m", 4, LMOptions(attempt=5.0, retries=9, budget=BudgetCaps(calls=3)))
        with pytest.raises(BudgetSpentError, match="3 of 3 calls"):
            await caller.call(send, 400, 100)

    with virtual_time(*CLOCKED) as run:
        run(work())
    assert sent == 3


def test_a_control_call_is_reserved_like_any_other() -> None:
    """While it is out, the last call of the budget is its own; a call that waits for it is not refused meanwhile."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        budget = BudgetCaps(calls=2)

        async def control() -> Reply:
            await asyncio.sleep(10.0)
            raise lm15.AuthError("no", status=401)

        caller = Caller("test/m", 4, LMOptions(budget=budget), control=control)
        question = caller._control.ask()
        await asyncio.sleep(1.0)
        first, second = (asyncio.create_task(caller.call(lambda: asyncio.sleep(1.0, REPLY), 400, 100)) for _ in "ab")
        start = loop.time()
        await first
        assert loop.time() - start == pytest.approx(1.0)
        # The control call was refused, which costs nothing, and its reservation is free again.
        await second
        assert loop.time() - start == pytest.approx(10.0)
        assert question is not None

    with virtual_time(*CLOCKED) as run:
        run(work())
