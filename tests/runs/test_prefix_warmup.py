"""The first call about a source goes ahead, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement, Unscored, Verdict
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Messages, Reply
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, section

ASPECT = Aspect("coherence", "Is it good?", Scale(1, 5))
TASK = Task("summarization", "article", "summary", (ASPECT,))


class Watched:
    """A transport that records what is sent and what is answered, by candidate."""

    def __init__(self, refuse: Callable[[str], Exception | None]) -> None:
        self.events: list[str] = []
        self.refuse = refuse
        self.write = debater(decision="ISSUE")

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        prompt = messages[-1]["content"]
        name = section(prompt, "candidate")
        self.events.append(f">{name}")
        await asyncio.sleep(0.05)
        self.events.append(f"<{name}")
        error = self.refuse(name)
        if error is not None:
            raise error
        return Reply(self.write(prompt))

    async def aclose(self) -> None:
        """Nothing to close."""


def resolve_lm(
    refuse: Callable[[str], Exception | None] = lambda name: None, **options: Any
) -> tuple[JudgeLM, list[str]]:
    engine = Watched(refuse)
    return JudgeLM("watched/lm", engine=engine, options=LMOptions(retries=0, first_wait=0.01), **options), engine.events


def items(*sources: str) -> list[Item]:
    """`items("ab", "c")`: the candidates a and b of one source, and c of another."""
    return [
        Item(str(number), name, TASK, ASPECT, f"The article on {names}.", name)
        for number, names in enumerate(sources)
        for name in names
    ]


def judged(lm: JudgeLM, work: Sequence[Item], rounds: int = 0) -> list[Judgement]:
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(Debate(debate_config=DebateConfig(rounds)), work)


def led(events: list[str]) -> bool:
    """Whether one call was answered before any other was sent."""
    return events[0][0] == ">" and events[1] == "<" + events[0][1:]


def test_siblings_go_when_the_first_has_been_answered() -> None:
    lm, events = resolve_lm()
    assert all(isinstance(j, Verdict) for j in judged(lm, items("abcd")))
    assert led(events)
    assert {event[0] for event in events[2:5]} == {">"}


def test_single_candidates_wait_for_nobody() -> None:
    lm, events = resolve_lm()
    judged(lm, items("a", "b", "c"))
    assert {event[0] for event in events[:3]} == {">"}


def test_a_first_call_that_fails_holds_nobody_back() -> None:
    lm, events = resolve_lm(lambda name: lm15.InvalidRequestError("too long") if len(events) == 2 else None)
    judgements = judged(lm, items("abc"))
    assert sum(isinstance(j, Unscored) for j in judgements) == 1
    assert led(events)


def test_an_error_that_concerns_all_reaches_those_who_wait() -> None:
    lm, events = resolve_lm(lambda name: lm15.AuthError("wrong key"))
    with pytest.raises(dspy.LMAuthError):
        judged(lm, items("abcd"))
    assert led(events)


def test_a_source_that_was_sent_of_late_needs_no_first_call() -> None:
    lm, events = resolve_lm()
    judged(lm, items("ab"))
    events.clear()
    longer = [Item("0", name, TASK, ASPECT, "The article on ab.", name) for name in "cd"]
    judged(lm, longer)
    assert {event[0] for event in events[:2]} == {">"}
