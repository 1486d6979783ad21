"""Engines and questions for the tests of `JudgeLM`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from dspy.lm15 import Config, Message, Request

from debate_judge.programs.lm.engine import JudgeLM, key_of
from debate_judge.programs.lm.replies import CALL_TAG, CallTag, Messages, Reply

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}]
OTHER = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and three?"}]


class Engine:
    """Replies with a running number, or calls `act`; records messages and settings of the calls."""

    def __init__(self, act: Callable[[int], Reply] | None = None) -> None:
        self.act = act or (lambda number: reply(f"answer {number}"))
        self.requests: list[tuple[Messages, dict[str, Any]]] = []
        self.gate: threading.Event | None = None

    async def chat(self, model: str, messages: Messages, settings: dict[str, Any]) -> Reply:
        self.requests.append((messages, settings))
        number = len(self.requests)
        while self.gate is not None and not self.gate.is_set():
            await asyncio.sleep(0.001)
        return self.act(number)

    async def aclose(self) -> None:
        """Nothing to close."""


def reply(text: str, finish: str = "stop") -> Reply:
    return Reply(text, 10, 3, 4, finish)


def judge_lm(
    act: Callable[[int], Reply] | None = None, *, gated: bool = False, **options: Any
) -> tuple[JudgeLM, Engine]:
    """An LM and its engine, which answers nothing before its gate is set if it is `gated`."""
    engine = Engine(act)
    engine.gate = threading.Event() if gated else None
    return JudgeLM("test/m", transport=engine, **options), engine


async def reply_to(lm: JudgeLM, question: Messages, role: str = "scorer") -> Reply:
    """The reply to a question with the settings of the LM, by the way that DSPy goes."""
    turn = {"user": Message.user, "assistant": Message.assistant}
    system = "".join(m["content"] for m in question if m["role"] == "system")
    turns = tuple(turn[m["role"]](m["content"]) for m in question if m["role"] != "system")
    config = Config(**{name: value for name, value in lm.kwargs.items() if value is not None})
    token = CALL_TAG.set(CallTag(role))
    try:
        response = await lm.acall(Request(model=lm.model, messages=turns, system=system or None, config=config))
    finally:
        CALL_TAG.reset(token)
    counts = (response.usage.input_tokens, response.usage.output_tokens, response.usage.cache_read_tokens)
    return Reply(response.message.text or "", *(count or 0 for count in counts), finish=response.finish_reason)


def call_key(lm: JudgeLM, messages: Messages, **settings: Any) -> str:
    return key_of(lm.model, lm.endpoint, messages, {**lm.kwargs, **settings})


def ask(lm: JudgeLM, *questions: Messages) -> list[Reply]:
    """The replies, one after the other; the connections are closed then."""

    async def go() -> list[Reply]:
        try:
            return [await reply_to(lm, question) for question in questions]
        finally:
            await lm.aclose()

    return asyncio.run(go())
