"""The stream of judgements where something fails: everything before it comes, and nobody waits for what is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement, Verdict
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import InMemoryStore, Messages, Reply
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order
from tests.fakes import debater, section

ASPECT = Aspect("clarity", "Is it clear?", Scale(1, 5))
TASK = Task("notes", "letter", "note", (ASPECT,))


class Engine:
    """Answers note 0 and 1; note 2 gets no answer, and note 7 is told that the key is wrong once 2 waits."""

    def __init__(self) -> None:
        self.silent = asyncio.Event()
        self.write = debater(score="4")

    async def complete(self, request: Any) -> Any:
        raise AssertionError("the debates take the short way")

    async def aclose(self) -> None: ...

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        prompt = messages[-1]["content"]
        note = section(prompt, "candidate")
        if note == "note 2":
            self.silent.set()
            await asyncio.sleep(60)
        if note == "note 7":
            await self.silent.wait()
            # Long enough for the judgements of notes 0 and 1 to be there.
            for _ in range(50):
                await asyncio.sleep(0)
            raise lm15.AuthError("the key was revoked", status=401)
        return Reply(self.write(prompt))


def test_a_wrong_key_ends_the_stream_although_an_earlier_item_still_waits() -> None:
    engine = Engine()
    # The answer that never comes is waited for until its attempt is given up.
    lm = JudgeLM("test/m", engine=engine, options=LMOptions(attempt_timeout=0.2, retries=0))
    compiled = CompiledJudge(TASK, {"clarity": AspectJudge(Debate(debate_config=DebateConfig(0)))})
    work = [Item(str(i), "c", TASK, ASPECT, f"letter {i}", f"note {i}") for i in range(20)]
    got: list[Judgement] = []
    with JudgeRunner(lm, progress=False) as runner, pytest.raises(dspy.LMAuthError):
        got.extend(judgement for _, judgement in judge_in_order(runner, compiled, work))
    assert [type(judgement) for judgement in got] == [Verdict, Verdict]


class Revoked:
    """Refuses the key at note 1 while the answer about note 0 is on its way, which arrives some time after that."""

    def __init__(self) -> None:
        self.under_way, self.refused = asyncio.Event(), asyncio.Event()
        self.valid = False
        self.asked: list[str] = []
        self.write = debater(score="4")

    async def aclose(self) -> None: ...

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        prompt = messages[-1]["content"]
        note = section(prompt, "candidate")
        if note == "note 0":
            self.under_way.set()
            await self.refused.wait()
            # Long enough for everything that waits for this answer to be cancelled.
            for _ in range(50):
                await asyncio.sleep(0)
        elif not self.valid:
            await self.under_way.wait()
            self.refused.set()
            raise lm15.AuthError("the key was revoked", status=401)
        self.asked.append(prompt)
        return Reply(self.write(prompt))


@pytest.mark.parametrize("way", ["all together", "as a stream"])
def test_an_answer_on_its_way_when_the_run_ends_is_kept_and_not_paid_twice(way: str) -> None:
    engine, store = Revoked(), InMemoryStore()
    debate = Debate(debate_config=DebateConfig(0))
    compiled = CompiledJudge(TASK, {"clarity": AspectJudge(debate)})
    work = [Item(str(i), "c", TASK, ASPECT, f"letter {i}", f"note {i}") for i in range(2)]

    def run() -> list[Judgement]:
        lm = JudgeLM("test/m", engine=engine, store=store)
        with JudgeRunner(lm, progress=False) as runner:
            if way == "all together":
                return runner.judge(debate, work)
            return [judgement for _, judgement in judge_in_order(runner, compiled, work)]

    with pytest.raises(dspy.LMAuthError):
        run()
    assert len(engine.asked) == 1
    engine.valid = True
    assert [type(judgement) for judgement in run()] == [Verdict, Verdict]
    assert len(engine.asked) == len(set(engine.asked)) == 2
