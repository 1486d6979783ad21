"""The door to the LM: what is asked once, what is kept and counts, and who may ask: processes, threads, notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15
from dspy.lm15 import Response

from debate_judge.programs.judge import Unscored
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.limits.limiter import SOURCE
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm
from tests.programs.engines import OTHER, QUESTION, Engine, ask, call_key, judge_lm, judged, reply_to, response

# --- the store ---


def test_what_the_store_has_is_not_sent() -> None:
    lm, engine = judge_lm()
    first, second, third = ask(lm, QUESTION, OTHER, QUESTION)
    assert [first.text, second.text] == ["answer 1", "answer 2"]
    assert third == first
    assert len(engine.requests) == 2


def failing_once(number: int) -> Response:
    if number == 1:
        raise lm15.InvalidRequestError("not like this")
    return response("better")


def test_a_call_that_fails_is_not_stored() -> None:
    lm, engine = judge_lm(failing_once)
    with pytest.raises(dspy.LMInvalidRequestError):
        ask(lm, QUESTION)
    assert ask(lm, QUESTION)[0].text == "better"
    assert len(engine.requests) == 2
    assert (lm.meter.asked["scorer"], lm.meter.executed["scorer"]) == (2, 1)


def test_an_error_of_the_engines_own_is_no_reply() -> None:
    def act(number: int) -> Response:
        raise KeyError("a bug")

    with pytest.raises(dspy.LMError, match="a bug"):
        ask(judge_lm(act)[0], QUESTION)


# --- calls at the same time ---


async def gathered(lm: JudgeLM, engine: Engine, *questions: list[dict[str, Any]]) -> list[Any]:
    """Ask all at once; the engine answers only when nothing else moves."""
    engine.gate = threading.Event()
    tasks = [asyncio.create_task(reply_to(lm, question)) for question in questions]
    while lm.meter.asked.total() < len(questions):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    engine.gate.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_identical_calls_in_flight_are_executed_once_and_again_if_they_fail() -> None:
    lm, engine = judge_lm()
    replies = asyncio.run(gathered(lm, engine, QUESTION, QUESTION, OTHER, QUESTION))
    assert [r.text for r in replies] == ["answer 1", "answer 1", "answer 2", "answer 1"]
    assert len(engine.requests) == 2
    assert (lm.meter.asked["scorer"], lm.meter.executed["scorer"]) == (4, 2)
    lm, engine = judge_lm(failing_once)
    first, *others = asyncio.run(gathered(lm, engine, QUESTION, QUESTION, QUESTION))
    assert isinstance(first, dspy.LMInvalidRequestError)
    assert [other.text for other in others] == ["better", "better"]
    assert len(engine.requests) == 2


def test_a_call_that_is_cancelled_while_its_request_is_out_keeps_the_answer() -> None:
    """It is paid for: who waits for the same call gets it, and closing the LM waits for it."""

    async def go() -> None:
        lm, engine = judge_lm()
        engine.gate = threading.Event()
        first, second = (asyncio.create_task(reply_to(lm, QUESTION)) for _ in range(2))
        while not engine.requests or lm.meter.asked.total() < 2:
            await asyncio.sleep(0.001)
        for call in (first, second):
            call.cancel()
        await asyncio.wait([first, second])
        closing = asyncio.create_task(lm.aclose())
        await asyncio.sleep(0.05)
        assert not closing.done()
        engine.gate.set()
        await closing
        assert (await reply_to(lm, QUESTION)).text == "answer 1"
        assert len(engine.requests) == 1

    asyncio.run(go())


def test_a_call_that_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    async def go() -> int:
        lm, engine = judge_lm(concurrency=1)
        engine.gate = threading.Event()
        first = asyncio.create_task(reply_to(lm, QUESTION))
        while not engine.requests:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(reply_to(lm, OTHER))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.wait([second])
        engine.gate.set()
        await first
        await lm.aclose()
        return len(engine.requests)

    assert asyncio.run(go()) == 1


def test_no_more_calls_are_in_flight_than_allowed() -> None:
    lm, engine = judge_lm(concurrency=3)

    async def go() -> int:
        engine.gate = threading.Event()
        questions = [[{"role": "user", "content": f"{i}?"}] for i in range(10)]
        tasks = [asyncio.create_task(reply_to(lm, question)) for question in questions]
        while lm.meter.asked.total() < 10:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        flying = len(engine.requests)
        engine.gate.set()
        await asyncio.gather(*tasks)
        return flying

    assert asyncio.run(go()) == 3
    assert len(engine.requests) == 10


# --- replies that were cut off or refused ---


def finishing(*finishes: str) -> Callable[[int], Response]:
    return lambda number: response("[[ ## score ## ]]\n4", finishes[min(number, len(finishes)) - 1])


def test_a_reply_that_was_cut_off_is_asked_for_with_four_times_the_limit() -> None:
    lm, engine = judge_lm(finishing("length", "stop"), max_tokens=100)
    assert ask(lm, QUESTION)[0].finish == "stop"
    assert [request.config.max_tokens for request in engine.requests] == [100, 400]
    # The next run finds both.
    ask(lm, QUESTION)
    assert len(engine.requests) == 2


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "truncated"), ("content_filter", "refused")], ids=["cut off", "refused"]
)
def test_a_reply_that_did_not_end_well_is_no_score(finish: str, reason: str) -> None:
    judgement = judged(judge_lm(finishing(finish), max_tokens=100)[0])
    assert isinstance(judgement, Unscored)
    assert judgement.reason == reason


# --- the meter ---


def test_the_meter_counts_by_role_what_was_asked_and_what_was_spent() -> None:
    lm, _ = judge_lm()
    ask(lm, QUESTION, QUESTION, role="scorer")
    ask(lm, OTHER, role="critic")
    assert lm.meter.asked == {"scorer": 2, "critic": 1}
    assert lm.meter.executed == {"scorer": 1, "critic": 1}
    # 10 tokens in, 4 of them from the provider's cache, and 3 out, for each of two calls.
    assert (lm.meter.input_tokens, lm.meter.cached_tokens, lm.meter.output_tokens) == (20, 8, 6)


# --- processes ---


async def until(done: Callable[[], bool]) -> None:
    """Wait until something has happened, and for what would happen with it."""
    while not done():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.1)


def test_a_call_that_waits_for_another_process_takes_no_place_and_may_be_cancelled(tmp_path: Path) -> None:
    async def go() -> None:
        other, store = SqlStore(tmp_path), SqlStore(tmp_path)
        lm, engine = judge_lm(store=store, concurrency=1)
        assert await other.take(call_key(lm, QUESTION)) is True
        waiting = [asyncio.create_task(reply_to(lm, QUESTION)) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert (await reply_to(lm, OTHER)).text == "answer 1"
        assert lm.recorded.limiter.in_flight == 0
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert not waiting[1].done()
        await other.put(call_key(lm, QUESTION), "scorer", Reply("theirs"))
        assert (await waiting[1]).text == "theirs"
        assert len(engine.requests) == 1
        assert (lm.meter.asked.total(), lm.meter.executed.total()) == (3, 1)
        other.close()
        store.close()

    asyncio.run(go())


def test_processes_with_the_same_calls_share_them_out(tmp_path: Path) -> None:
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
            assert engine.gate is not None
            engine.gate.set()
        await asyncio.gather(*asking)
        assert sum(len(engine.requests) for _, engine in lms) == len(questions)
        for store in stores:
            store.close()

    asyncio.run(go())


def test_calls_that_wait_for_their_source_and_for_another_process_do_not_wait_for_each_other(tmp_path: Path) -> None:
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


# --- who may ask: threads, notebooks ---


def test_worker_threads_call_on_the_loop_of_all_calls() -> None:
    threads = set[str]()

    def noting(number: int) -> Response:
        threads.add(threading.current_thread().name)
        return response(f"answer {number}")

    lm, _ = judge_lm(noting, concurrency=4)
    with JudgeRunner(lm, progress=False), ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: lm(f"Propose {n}.")[0], range(40)))
    assert len(set(replies)) == 40
    assert threads == {"debate-loop"}
    assert lm("Propose.") == ["answer 41"]


def test_a_synchronous_call_on_the_loop_itself_is_refused_and_does_not_hang() -> None:
    lm = scripted_lm(lambda _: "fine")

    async def call() -> object:
        return lm("Propose.")

    with pytest.raises(dspy.LMError, match="acall"):
        loop.run(call())


def test_a_notebook_with_a_loop_of_its_own_may_call_both_ways() -> None:
    lm = scripted_lm(lambda _: "fine")

    async def cell() -> tuple[list[str], list[str]]:
        return lm("Propose."), await lm.acall("Propose.")

    assert asyncio.run(cell()) == (["fine"], ["fine"])


def test_the_end_of_a_run_cancels_its_calls() -> None:
    sent = threading.Event()
    engine = Engine()

    async def never(*call: object) -> object:
        sent.set()
        return await asyncio.sleep(3600)

    engine.chat = never  # type: ignore[assignment,method-assign]
    lm = JudgeLM("test/m", engine=engine)
    with ThreadPoolExecutor(1) as pool:
        runner = JudgeRunner(lm, progress=False).__enter__()
        call = pool.submit(lm, "Propose.")
        assert sent.wait(30)
        runner.__exit__(KeyboardInterrupt, None, None)
        with pytest.raises(dspy.LMError, match="the run ended"):
            call.result(30)


def test_the_budget_is_one_for_all_who_call() -> None:
    lm = scripted_lm(lambda _: "fine", options=LMOptions(budget=BudgetCaps(calls=3)))
    lm("One.")
    with JudgeRunner(lm, progress=False) as runner:
        lm("Two.")
        runner.wait(reply_to(lm, [{"role": "user", "content": "Three?"}]))
        with pytest.raises(BudgetSpentError, match="3 of 3 calls"):
            lm("Four.")
    with pytest.raises(BudgetSpentError):
        lm("Five.")
