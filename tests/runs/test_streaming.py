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
from debate_judge.programs.lm.reply import Messages, Reply
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

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        prompt = messages[-1]["content"]
        note = section(prompt, "candidate")
        if note == "note 2":
            self.silent.set()
            await asyncio.sleep(60)
        if note == "note 7":
            await self.silent.wait()
            raise lm15.AuthError("the key was revoked", status=401)
        return Reply(self.write(prompt))


def test_a_wrong_key_ends_the_stream_although_an_earlier_item_still_waits() -> None:
    engine = Engine()
    lm = JudgeLM("test/m", engine=engine, async_engine=engine)
    compiled = CompiledJudge(TASK, {"clarity": AspectJudge(Debate(debate_config=DebateConfig(0)))})
    work = [Item(str(i), "c", TASK, ASPECT, f"letter {i}", f"note {i}") for i in range(20)]
    got: list[Judgement] = []
    with JudgeRunner(lm, progress=False) as runner, pytest.raises(dspy.LMAuthError):
        got.extend(judgement for _, judgement in judge_in_order(runner, compiled, work))
    assert [type(judgement) for judgement in got] == [Verdict, Verdict]
