"""DSPy's synchronous modules ask the way of all calls: same loop, limits, censor; and nothing waits for itself."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from dspy.lm15 import Response

from debate_judge.programs.lm import loop
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm
from tests.programs.engines import Engine, judge_lm, reply_to, response

ONCE = LMOptions(retries=2, first_wait=0.01, patience=0.01)


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
