"""DSPy's synchronous modules: their calls share loop, limits and store with all others, and nothing deadlocks."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dspy
import pytest

from debate_judge.programs.lm import loop
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm
from tests.faulty_server import FaultyServer
from tests.programs.engines import Engine, reply_to, response
from tests.stores import count

ONCE = LMOptions(retries=2, first_wait=0.01, max_outage=0.01)


class Noting(Engine):
    """Records the threads of its calls."""

    def __init__(self) -> None:
        super().__init__(self._note)
        self.threads: Counter[str] = Counter()

    def _note(self, number: int) -> object:  # type: ignore[override]
        self.threads[threading.current_thread().name] += 1
        return response(f"answer {number}")


def test_worker_threads_call_on_the_loop_of_all_calls() -> None:
    engine = Noting()
    lm = JudgeLM("test/m", engine=engine, concurrency=4)
    with JudgeRunner(lm, progress=False), ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: lm(f"Propose {n}.")[0], range(40)))
    assert len(set(replies)) == 40
    assert set(engine.threads) == {"debate-loop"}
    assert lm("Propose.") == ["answer 41"]


def test_a_synchronous_call_on_the_loop_itself_is_refused_and_does_not_hang() -> None:
    lm = scripted_lm(lambda _: "fine")

    async def call() -> object:
        return lm("Propose.")

    with pytest.raises(dspy.LMError, match="acall"):
        loop.run(call())


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


@pytest.mark.integration
def test_several_runs_and_calls_between_them_share_one_lm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    store = SqlStore(tmp_path)
    with FaultyServer(lambda _: "fine", lambda body, attempt: ("500", "cut", None)[attempt]) as server:
        lm = make_lm("openai/m", api_base=server.url, store=store, options=ONCE)
        for number in range(3):
            with JudgeRunner(lm, progress=False):
                assert lm(f"In run {number}.") == ["fine"]
            assert lm(f"After run {number}.") == ["fine"]
        assert server.requests == 18
    assert lm.meter.executed["proposer"] == count(store) == 6
    store.close()


def test_all_callers_share_one_budget() -> None:
    lm = scripted_lm(lambda _: "fine", options=LMOptions(budget=BudgetCaps(calls=3)))
    lm("One.")
    with JudgeRunner(lm, progress=False) as runner:
        lm("Two.")
        runner.wait(reply_to(lm, [{"role": "user", "content": "Three?"}]))
        with pytest.raises(BudgetSpentError, match="3 of 3 calls"):
            lm("Four.")
    with pytest.raises(BudgetSpentError):
        lm("Five.")
