"""Calls against a provider that fails by chance, on a clock of its own: each ends, once, and soon after it could."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.lm.errors import NOT_LISTENING, UNREACHABLE, ProviderDownError
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
OUTAGE = 90.0
"""Seconds for which a provider is down; less than a run's patience."""


class Provider:
    """Answers after a while, or does not, by chance; from `gone` on it is down for `OUTAGE` seconds."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.share = rng.choice((0.0, 0.05, 0.3, 0.6))
        """Of attempts that fail while it is up."""
        self.gone = rng.choice((None, 0.0, rng.uniform(0, 60)))
        self.way = rng.choice((*(way for way in FAULTS if way != "not running"), "unreachable"))
        self.per_second = rng.choice((None, None, 2.0, 20.0))
        self.level, self.at = 5.0, 0.0
        self.start = 0.0
        self.hiccup = rng.random() < 0.5 and not self.way.startswith("429")
        """Whether each call fails once more when it is up again."""
        self.met: set[int] = set()
        self.answers: Counter[int] = Counter()
        self.after_the_answer = 0

    def down(self, now: float) -> bool:
        return self.gone is not None and self.gone <= now - self.start < self.gone + OUTAGE

    def too_fast(self, now: float) -> bool:
        if self.per_second is None:
            return False
        self.level = min(5.0, self.level + (now - self.at) * self.per_second)
        self.at = now
        self.level -= self.level >= 1
        return self.level < 1

    async def answer(self, number: int) -> Reply:
        now = asyncio.get_running_loop().time()
        self.after_the_answer += self.answers[number] > 0
        if self.down(now):
            await FAULTS[self.way](self.rng)
        elif self.hiccup and self.gone is not None and now - self.start > self.gone and number not in self.met:
            self.met.add(number)
            raise lm15.ServerError("still starting", status=500)
        elif self.too_fast(now):
            await FAULTS["429"](self.rng)
        elif self.rng.random() < self.share:
            await FAULTS[self.rng.choice(list(FAULTS))](self.rng)
        await asyncio.sleep(self.rng.expovariate(1.0))
        if number >= 0:
            self.answers[number] += 1
        return Reply(f"answer {number}", 100, 20)


async def refuse(rng: random.Random) -> None:
    raise lm15.RateLimitError("slow down", status=429)


async def refuse_for(rng: random.Random) -> None:
    raise lm15.RateLimitError("slow down", status=429, retry_after=rng.choice((0.0, 0.5, 5.0, 100.0)))


async def break_down(rng: random.Random) -> None:
    await asyncio.sleep(rng.random())
    raise lm15.ServerError("oops", status=rng.choice((500, 502, 503)))


async def drop(rng: random.Random) -> None:
    raise lm15.TransportError("the connection broke")


async def hang(rng: random.Random) -> None:
    await asyncio.sleep(1e6)


async def no_connection(rng: random.Random) -> None:
    raise lm15.TransportError("cannot reach the server", provider_code=UNREACHABLE)


async def not_running(rng: random.Random) -> None:
    raise lm15.TransportError("cannot reach the server", provider_code=NOT_LISTENING)


FAULTS: dict[str, Callable[[random.Random], Awaitable[None]]] = {
    "429": refuse,
    "429 wait": refuse_for,
    "500": break_down,
    "dropped": drop,
    "silence": hang,
    "unreachable": no_connection,
    "not running": not_running,
}


def caller_of(provider: Provider, options: LMOptions, concurrency: int) -> Caller:
    caller = Caller("test/m", concurrency, options, None, lambda: provider.answer(-1))
    caller._backoff = replace(caller._backoff, jitter=random.Random(provider.rng.random()))
    return caller


async def life(provider: Provider, caller: Caller, count: int) -> tuple[list[Reply | BaseException], float]:
    """`count` callers, some of whom give up; their results, and the seconds it took."""
    loop = asyncio.get_running_loop()
    rng = provider.rng
    provider.start = start = loop.time()
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(caller.call(lambda n=number: provider.answer(n), 400, 100)))
        if rng.random() < 0.1:
            loop.call_later(rng.uniform(0, 100), tasks[-1].cancel)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await caller.requests.drain()
    return results, loop.time() - start


@pytest.mark.parametrize("seed", range(0, 120, 20))
def test_every_call_ends_and_none_is_made_again_after_its_answer(seed: int) -> None:
    for number in range(seed, seed + 20):
        provider = Provider(number)
        options = LMOptions(
            attempt=30.0,
            rpm=provider.rng.choice((None, None, 120.0)),
            budget=provider.rng.choice((BudgetCaps(), BudgetCaps(), BudgetCaps(calls=10_000))),
        )
        with virtual_time(*CLOCKED) as run:
            caller = caller_of(provider, options, provider.rng.choice((1, 2, 8, 64)))
            results, seconds = run(life(provider, caller, 60))
        errors = [r for r in results if isinstance(r, dspy.LMError)]
        replies = [r for r in results if isinstance(r, Reply)]
        assert len(errors) + len(replies) + sum(isinstance(r, asyncio.CancelledError) for r in results) == 60
        assert provider.after_the_answer == 0, number
        assert set(provider.answers.values()) <= {1}, number
        assert caller.limiter.in_flight == 0, number
        # Three retries are enough against a few faults, and an outage uses none of them up.
        if provider.share < 0.1:
            nobody = provider.way == "unreachable" and provider.gone == 0.0
            assert {type(error) for error in errors} <= ({ProviderDownError} if nobody else set()), number
        # A minute of Retry-After, and two calls a second of which some go one after the other.
        if provider.share == 0.0:
            assert seconds < (0.0 if provider.gone is None else provider.gone + OUTAGE) + 160, number


@pytest.mark.parametrize("way", ["429", "429 wait", "500", "dropped", "silence", "unreachable", "not running"])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_an_outage_without_end_is_no_failure_of_any_call(way: str, count: int) -> None:
    provider = Provider(1)
    provider.way, provider.share, provider.gone, provider.per_second = way, 0.0, 0.0, None
    with virtual_time(*CLOCKED) as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.programs.test_calling.OUTAGE", 1e9)
        caller = caller_of(provider, LMOptions(attempt=30.0), 16)
        results, seconds = run(life(provider, caller, count))
    assert {type(r) for r in results} - {asyncio.CancelledError} == {ProviderDownError}
    # Where nothing has ever been, nobody waits for it to come back. Refusals of one call or two may be their own
    # matter until their deadline.
    least, longest = {"unreachable": (20, 40), "not running": (0, 3)}.get(way, (300, 420))
    assert least <= seconds < (1000 if way.startswith("429") else longest)


@pytest.mark.parametrize("count", [1, 2, 12])
def test_what_nobody_can_answer_is_no_outage(count: int) -> None:
    """All calls that are left fail by themselves: one call without an item tells that from an outage."""

    async def refuse_all_but_the_control(number: int) -> Reply:
        if number >= 0:
            raise lm15.ServerError("oops", status=500)
        return Reply("OK")

    provider = Provider(1)
    provider.answer = refuse_all_but_the_control  # type: ignore[method-assign]
    with virtual_time(*CLOCKED) as run:
        caller = caller_of(provider, LMOptions(), 16)
        results, seconds = run(life(provider, caller, count))
    assert {type(r) for r in results} - {asyncio.CancelledError} == {dspy.LMServerError}
    assert seconds < 60
