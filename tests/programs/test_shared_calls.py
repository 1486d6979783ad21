"""Processes that need the same replies at the same time: each call is made by one of them, even after failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.limits.limiter import SOURCE
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
from tests.programs.engines import OTHER, QUESTION, call_key, judge_lm, reply_to


async def until(done: Callable[[], bool]) -> None:
    """Wait until something has happened, and for what would happen with it."""
    while not done():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.1)


def test_a_call_that_waits_for_another_process_takes_no_slot_and_may_be_cancelled(tmp_path: Path) -> None:
    async def go() -> None:
        other, store = SqlStore(tmp_path), SqlStore(tmp_path)
        lm, engine = judge_lm(store=store, concurrency=1)
        assert await other.get_or_claim(call_key(lm, QUESTION)) is True
        waiting = [asyncio.create_task(reply_to(lm, QUESTION)) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert (await reply_to(lm, OTHER)).text == "answer 1"
        assert lm.recorded_engine.limiter.in_flight == 0
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert not waiting[1].done()
        await other.put(call_key(lm, QUESTION), "scorer", Reply("theirs"))
        assert (await waiting[1]).text == "theirs"
        assert len(engine.requests) == 1
        assert (lm.meter.requested.total(), lm.meter.executed.total()) == (3, 1)
        other.close()
        store.close()

    asyncio.run(go())


def test_processes_share_the_same_calls(tmp_path: Path) -> None:
    async def go() -> None:
        stores = [SqlStore(tmp_path), SqlStore(tmp_path)]
        lms = [judge_lm(store=store, concurrency=1) for store in stores]
        for _, engine in lms:
            engine.gate = threading.Event()
        questions = [[{"role": "user", "content": f"Question {number}"}] for number in range(4)]
        asking = [asyncio.create_task(reply_to(lm, q)) for lm, _ in lms for q in questions]
        await until(lambda: all(engine.requests for _, engine in lms))
        # Each has one place and one call claimed ahead: the second process sends one that the first has not claimed.
        assert [len(engine.requests) for _, engine in lms] == [1, 1]
        for _, engine in lms:
            engine.gate.set()
        await asyncio.gather(*asking)
        assert sum(len(engine.requests) for _, engine in lms) == len(questions)
        for store in stores:
            store.close()

    asyncio.run(go())


def test_prefix_warmup_and_claims_do_not_deadlock(tmp_path: Path) -> None:
    """Two processes ask about two candidates of one source, each beginning with another: each leads with one call."""

    async def asked(lm: JudgeLM, candidates: str) -> list[str]:
        async def one(candidate: str) -> str:
            SOURCE.set("The source.")
            return (await reply_to(lm, [{"role": "user", "content": f"The source. {candidate}"}])).text

        return await asyncio.gather(*map(one, candidates))

    async def go() -> None:
        stores = [SqlStore(tmp_path), SqlStore(tmp_path)]
        lms = [judge_lm(store=store) for store in stores]
        gates = [threading.Event() for _ in lms]
        for (_, engine), gate in zip(lms, gates, strict=True):
            engine.gate = gate
        both = [asyncio.create_task(asked(lm, text)) for (lm, _), text in zip(lms, ("ab", "ba"), strict=True)]
        while not all(engine.requests for _, engine in lms):
            await asyncio.sleep(0)
        for gate in gates:
            gate.set()
        first, second = await asyncio.gather(*both)
        assert first == second[::-1]
        assert sum(len(engine.requests) for _, engine in lms) == 2
        for store in stores:
            store.close()

    asyncio.run(go())


def test_calls_of_dspys_own_modules_are_claimed_as_well(tmp_path: Path) -> None:
    async def go() -> None:
        stores = [SqlStore(tmp_path), SqlStore(tmp_path)]
        lms = [judge_lm(store=store) for store in stores]
        replies = await asyncio.gather(*(lm.acall("Two and two?") for lm, _ in lms))
        assert replies[0] == replies[1]
        assert sum(len(engine.requests) for _, engine in lms) == 1
        assert sum(lm.meter.executed.total() for lm, _ in lms) == 1
        for store in stores:
            store.close()

    asyncio.run(go())


def test_a_call_that_fails_in_one_process_is_made_by_the_one_that_waited(tmp_path: Path) -> None:
    async def go() -> None:
        stores = [SqlStore(tmp_path), SqlStore(tmp_path)]

        def refused(number: int) -> Any:
            raise dspy.lm15.InvalidRequestError("not like this")

        (bad, asked), (good, other) = judge_lm(refused, store=stores[0]), judge_lm(store=stores[1])
        asked.gate = threading.Event()
        failing = asyncio.create_task(reply_to(bad, QUESTION))
        while not asked.requests:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(reply_to(good, QUESTION))
        await asyncio.sleep(0.1)
        assert other.requests == []
        asked.gate.set()
        with pytest.raises(dspy.LMInvalidRequestError):
            await failing
        assert (await waiting).text == "answer 1"
        for store in stores:
            store.close()

    asyncio.run(go())
