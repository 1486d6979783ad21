"""The limiter with random callers, in virtual time: no call waits forever, and no slot is lost."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.limits import limiter
from debate_judge.programs.lm.limits.limiter import NO_TOKENS, Budget, Limiter, RateLimits, TokenEstimate
from debate_judge.programs.lm.options import BudgetCaps, LMOptions


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for code that only computes and sleeps: its clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(Jumping(self))

    def time(self) -> float:
        return self.now


class Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            assert not asyncio.all_tasks(self.loop), "tasks wait, and nothing is left that could wake them"
        self.loop.now += timeout or 0.0
        return super().select(0)


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """A loop whose clock is `time.monotonic` of the limiter as well."""
    loop = VirtualLoop()
    monkeypatch.setattr(limiter, "time", SimpleNamespace(monotonic=loop.time))
    yield loop
    loop.close()


class Simulation:
    """Callers that use a limiter at random, in all ways."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.concurrency = rng.choice((1, 2, 3, 8, 40))
        options = LMOptions(
            rpm=rng.choice((None, None, 30.0, 600.0)), tpm=rng.choice((None, None, 50_000.0)), first_wait=0.5
        )
        self.budget = Budget(BudgetCaps(calls=rng.choice((20, 10_000))), None) if rng.random() < 0.3 else None
        self.limiter = Limiter(self.concurrency, options, self.budget)
        self.never_fails = rng.random() < 0.3
        self.queue: list[asyncio.Task[None]] = []
        self.inside = self.entered = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        callers = [asyncio.create_task(self.caller()) for _ in range(120)]
        for caller in callers:
            if self.rng.random() < 0.3:
                loop.call_later(self.rng.uniform(0, 60), caller.cancel)
        results = await asyncio.gather(*callers, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}, results

    async def caller(self) -> None:
        rng = self.rng
        await asyncio.sleep(rng.uniform(0, 20))
        again, front = True, False
        while again:
            estimate = TokenEstimate(rng.uniform(1, 5000), 100, 100) if rng.random() < 0.5 else NO_TOKENS
            task = asyncio.current_task()
            self.queue.append(task)
            try:
                await self.limiter.acquire(estimate, front=front)
            except dspy.LMError:
                return
            finally:
                self.queue.remove(task)
            self.inside += 1
            self.entered += 1
            sent = asyncio.get_running_loop().time()
            again = front = False
            try:
                assert self.limiter.in_flight == self.inside <= self.concurrency
                await asyncio.sleep(rng.expovariate(2.0))
                again = front = self.outcome(sent)
            finally:
                self.inside -= 1
                self.limiter.release(estimate)
                if self.queue and rng.random() < 0.1:
                    # Perhaps one that has just got its slot and does not know it yet.
                    self.queue[0].cancel()

    def outcome(self, sent: float) -> bool:
        """Report a random outcome to the limiter; returns whether the call is retried at once."""
        rng, chance = self.rng, self.rng.random()
        if self.never_fails or chance < 0.5:
            self.limiter.on_success()
            if self.budget is not None:
                self.budget.charge((100.0, 20.0), 0)
        elif chance < 0.7:
            self.limiter.on_overload(sent, rng.uniform(0.1, 30) if rng.random() < 0.3 else 0.0)
            return True
        elif chance < 0.92:
            self.limiter.fail_all(dspy.LMAuthError("no"))
        elif chance < 0.94:
            limits = RateLimits(rng.choice((None, 60.0, 6000.0)), rng.choice((None, 20_000.0, 500_000.0)))
            self.limiter.on_rate_limits(limits)
        else:
            self.limiter.correct(TokenEstimate(100.0), rng.uniform(0, 3000))
        return False


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.integration) for n in range(50, 400, 50))])
def test_no_call_waits_forever_and_every_slot_is_released(seed: int, virtual: VirtualLoop) -> None:
    for number in range(seed, seed + 50):
        simulation = Simulation(number)
        virtual.run_until_complete(simulation.run())
        assert simulation.entered > 0, number
        assert simulation.limiter.in_flight == simulation.inside == 0, number
        # A failure of all calls is forgotten once none is in flight, and the budget holds back nothing.
        virtual.run_until_complete(simulation.limiter.acquire())
        simulation.limiter.release()


def test_a_call_goes_as_soon_as_the_limit_per_minute_allows(virtual: VirtualLoop) -> None:
    async def calls(number: int) -> float:
        rate = Limiter(8, LMOptions(rpm=60.0))
        start = virtual.time()
        for _ in range(number):
            await rate.acquire()
            rate.release()
        return virtual.time() - start

    assert 58 < virtual.run_until_complete(calls(61)) <= 61


def test_after_fail_all_calls_fail_until_none_is_in_flight() -> None:
    async def work() -> None:
        limited = Limiter(2)
        await limited.acquire()
        await limited.acquire()
        waiting = asyncio.create_task(limited.acquire())
        await asyncio.sleep(0)
        limited.fail_all(dspy.LMAuthError("the key was revoked"))
        with pytest.raises(dspy.LMAuthError):
            await waiting
        limited.release()
        with pytest.raises(dspy.LMAuthError):
            await limited.acquire(front=True)
        limited.release()
        await limited.acquire()
        assert limited.in_flight == 1

    asyncio.run(work())


def test_a_spent_budget_refuses_one_call_and_not_the_smaller_ones_after_it() -> None:
    async def work() -> None:
        limited = Limiter(2, None, Budget(BudgetCaps(tokens=1000), None))
        small = TokenEstimate(10, 100, 100)
        await limited.acquire(small)
        large = asyncio.create_task(limited.acquire(TokenEstimate(10, 2000, 100)))
        await asyncio.sleep(0)
        assert not large.done()
        limited.release(small)
        with pytest.raises(BudgetSpentError):
            await large
        await limited.acquire(small)

    asyncio.run(work())
