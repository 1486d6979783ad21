"""The limiter with random callers, in virtual time: no call waits needlessly, and no slot is lost."""

from __future__ import annotations

import asyncio
import importlib
import math
import random
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.limits.limiter import NO_TOKENS, Budget, Limiter, RateLimits, TokenEstimate
from debate_judge.programs.lm.options import BudgetCaps, LMOptions


class HangError(AssertionError):
    """Tasks wait, and nothing is left that could wake them."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for code that only computes and sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.idle: list[Callable[[], None]] = []
        """Called whenever all that could be done at one time has been done."""
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            if asyncio.all_tasks(self._loop):
                raise HangError(f"{len(asyncio.all_tasks(self._loop))} tasks wait forever")
        elif timeout > 0:
            for look in self._loop.idle:
                look()
            self._loop.now += timeout
        return super().select(0)


@contextmanager
def virtual_time(*modules: str) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A way to run coroutines; `time.monotonic` of the named modules is the loop's clock meanwhile."""
    loop = VirtualLoop()
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(importlib.import_module(module), "time", SimpleNamespace(monotonic=loop.time))
        try:
            yield loop.run_until_complete
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
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
        self.inside = 0
        self.entered = 0

    def check(self, now: float) -> None:
        """When idle: if calls wait, the first may not go yet, and a release or a timer will wake it."""
        limiter = self.limiter
        assert limiter.in_flight == self.inside
        assert limiter.in_flight or limiter._failure is None, "calls would fail forever"
        waiting = [(future, estimate) for future, estimate in limiter._waiting if not future.done()]
        if not waiting:
            return
        delay = limiter._delay(now, waiting[0][1])
        assert delay > 0.0
        if delay == math.inf:
            assert limiter.in_flight > 0, "no slot will be released"
        else:
            assert limiter._timer is not None
            assert limiter._timer.when() <= now + delay + 1e-6

    async def caller(self) -> None:
        rng, limiter = self.rng, self.limiter
        await asyncio.sleep(rng.uniform(0, 20))
        again = True
        front = False
        while again:
            estimate = TokenEstimate(rng.uniform(1, 5000), 100, 100) if rng.random() < 0.5 else NO_TOKENS
            task = asyncio.current_task()
            assert task is not None
            self.queue.append(task)
            try:
                await limiter.acquire(estimate, front=front)
            except dspy.LMError:
                return
            finally:
                self.queue.remove(task)
            self.inside += 1
            self.entered += 1
            sent = asyncio.get_running_loop().time()
            again = front = False
            try:
                assert self.inside <= self.concurrency
                await asyncio.sleep(rng.expovariate(2.0))
                again = front = self.outcome(sent)
            finally:
                self.inside -= 1
                limiter.release(estimate)
                if self.queue and rng.random() < 0.1:
                    # Perhaps one that has just got its slot and does not know it yet.
                    self.queue[0].cancel()

    def outcome(self, sent: float) -> bool:
        """Report a random outcome to the limiter; returns whether the call is retried at once."""
        limiter, chance = self.limiter, self.rng.random()
        if self.never_fails or chance < 0.5:
            limiter.on_success()
            if self.budget is not None:
                self.budget.charge((100.0, 20.0), 0)
        elif chance < 0.7:
            limiter.on_overload(sent, self.rng.uniform(0.1, 30) if self.rng.random() < 0.3 else 0.0)
            return True
        elif chance < 0.92:
            limiter.fail_all(dspy.LMAuthError("no"))
        elif chance < 0.94:
            limiter.on_rate_limits(
                RateLimits(self.rng.choice((None, 60.0, 6000.0)), self.rng.choice((None, 20_000.0, 500_000.0)))
            )
        else:
            limiter.correct(TokenEstimate(100.0), self.rng.uniform(0, 3000))
        return False


async def simulate(simulation: Simulation) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.idle.append(lambda: simulation.check(loop.time()))
    tasks = [asyncio.create_task(simulation.caller()) for _ in range(120)]
    for task in tasks:
        if simulation.rng.random() < 0.3:
            loop.call_later(simulation.rng.uniform(0, 60), task.cancel)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    loop.idle.clear()
    assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}, results


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.integration) for seed in range(50, 400, 50))]
)
def test_no_call_waits_needlessly_and_every_slot_is_released(seed: int) -> None:
    for number in range(seed, seed + 50):
        with virtual_time("debate_judge.programs.lm.limits.limiter") as run:
            # Made here, for its clocks start with it.
            simulation = Simulation(number)
            run(simulate(simulation))
        limiter = simulation.limiter
        assert simulation.entered > 0, number
        assert limiter.in_flight == simulation.inside == 0, number
        assert limiter._failure is None, number
        assert all(future.done() for future, _ in limiter._waiting), number
        if simulation.budget is not None:
            assert simulation.budget._reserved == pytest.approx([0, 0, 0], abs=1e-6), number


REVOKED = dspy.LMAuthError("the key was revoked")


def test_after_fail_all_calls_fail_until_none_is_in_flight() -> None:
    async def work() -> None:
        limiter = Limiter(3)
        for _ in range(3):
            await limiter.acquire()
        waiting = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        limiter.fail_all(REVOKED)
        with pytest.raises(dspy.LMAuthError):
            await waiting
        limiter.release()
        with pytest.raises(dspy.LMAuthError):
            await limiter.acquire()
        limiter.release()
        with pytest.raises(dspy.LMAuthError):
            await limiter.acquire(front=True)
        assert limiter.in_flight == 1
        limiter.release()
        await limiter.acquire()
        assert limiter.in_flight == 1

    asyncio.run(work())


def test_a_spent_budget_refuses_one_call_and_not_the_smaller_ones_after_it() -> None:
    async def work() -> None:
        limiter = Limiter(2, None, Budget(BudgetCaps(tokens=1000), None))
        small = TokenEstimate(10, 100, 100)
        await limiter.acquire(small)
        large = asyncio.create_task(limiter.acquire(TokenEstimate(10, 2000, 100)))
        await asyncio.sleep(0)
        assert not large.done()
        limiter.release(small)
        with pytest.raises(BudgetSpentError):
            await large
        await limiter.acquire(small)

    asyncio.run(work())
