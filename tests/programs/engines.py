"""Engines and questions for the tests of the door to the LM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item
from debate_judge.programs.lm.client import JudgeLM, Reply

SPECS = ["openai/m", "anthropic/m", "cohere_chat/m", "deepinfra/m"]
"""Of each way to a provider: our own, DSPy's, and LiteLLM's two, which are its HTTP client and OpenAI's."""

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}]
OTHER = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and three?"}]

ASPECT = Aspect("coherence", "Do the sentences build on each other?", Scale(1, 5))
ITEM = Item("g", "c", Task("t", "article", "summary", (ASPECT,)), ASPECT, "Rain fell.", "Rain.")


class Engine:
    """Answers with a running number, or does what `act` does; remembers the requests."""

    def __init__(self, act: Callable[[int], Response] | None = None) -> None:
        self.act = act or (lambda number: response(f"answer {number}"))
        self.requests: list[Request] = []
        self.gate: asyncio.Event | None = None

    def complete(self, request: Request) -> Response:
        self.requests.append(request)
        return self.act(len(self.requests))


class AsyncEngine(Engine):
    async def complete(self, request: Request) -> Response:
        answer = super().complete
        if self.gate is not None:
            number = len(self.requests) + 1
            self.requests.append(request)
            await self.gate.wait()
            return self.act(number)
        await asyncio.sleep(0)
        return answer(request)


def response(text: str, finish: Any = "stop") -> Response:
    usage = Usage(input_tokens=10, output_tokens=3, cache_read_tokens=4)
    return Response(id=None, model="m", message=Message.assistant(text), finish_reason=finish, usage=usage)


def judge_lm(act: Callable[[int], Response] | None = None, **options: Any) -> tuple[JudgeLM, AsyncEngine]:
    engine = AsyncEngine(act)
    return JudgeLM("test/m", engine=engine, **options), engine


def ask(lm: JudgeLM, *questions: list[dict[str, Any]], role: str = "scorer") -> list[Reply]:
    async def go() -> list[Reply]:
        return [await lm.ask(question, role) for question in questions]

    return asyncio.run(go())


def judged(lm: JudgeLM, debate_config: DebateConfig = DebateConfig(0), **settings: Any) -> Any:  # noqa: B008 - it is frozen
    async def go() -> Any:
        with dspy.context(**{"lm": lm, "disable_history": True, "trace": None, **settings}):
            return await Debate(debate_config=debate_config).judge(ITEM)

    return asyncio.run(go())
