"""Engines and questions for the tests of `JudgeLM`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dspy.lm15 import Config, Message, Request, Response, Usage

from debate_judge.programs.lm.engine import JudgeLM, key_of
from debate_judge.programs.lm.replies import CALL_TAG, CallTag, Messages, Reply

SPECS = ["openai/m", "anthropic/m", "cohere_chat/m", "deepinfra/m"]
"""One for each transport: our own, and LiteLLM's with its HTTP client and with OpenAI's."""
QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}]
OTHER = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and three?"}]


class Engine:
    """Replies with a running number, or calls `act`; records the requests."""

    def __init__(self, act: Callable[[int], Response] | None = None) -> None:
        self.act = act or (lambda number: response(f"answer {number}"))
        self.requests: list[Request] = []
        self.gate: threading.Event | None = None

    async def chat(self, model: str, messages: Messages, settings: dict[str, Any]) -> Reply:
        self.requests.append(request_of(model, messages, settings))
        number = len(self.requests)
        while self.gate is not None and not self.gate.is_set():
            await asyncio.sleep(0.001)
        return reply_of(self.act(number))

    async def aclose(self) -> None:
        """Nothing to close."""


def response(text: str, finish: Any = "stop") -> Response:
    usage = Usage(input_tokens=10, output_tokens=3, cache_read_tokens=4)
    return Response(id=None, model="m", message=Message.assistant(text), finish_reason=finish, usage=usage)


def judge_lm(
    act: Callable[[int], Response] | None = None, *, gated: bool = False, **options: Any
) -> tuple[JudgeLM, Engine]:
    """An LM and its engine, which answers nothing before its gate is set if it is `gated`."""
    engine = Engine(act)
    engine.gate = threading.Event() if gated else None
    return JudgeLM("test/m", transport=engine, **options), engine


def request_of(model: str, messages: Messages, settings: Mapping[str, Any]) -> Request:
    """DSPy's request for texts with their roles; a setting that is None is left to the provider."""
    system = next((m["content"] for m in messages if m["role"] == "system"), None)
    turns = tuple(
        Message.user(m["content"]) if m["role"] == "user" else Message.assistant(m["content"])
        for m in messages
        if m["role"] != "system"
    )
    options = {name: value for name, value in settings.items() if value is not None}
    return Request(model=model, messages=turns, system=system or None, config=Config(**options))


def reply_of(response: Response) -> Reply:
    """The part of a response that is stored."""
    usage = response.usage
    logprobs = tuple(
        ((t.token, t.logprob), *((other.token, other.logprob) for other in t.top)) for t in response.logprobs or ()
    )
    counts = (usage.input_tokens or 0, usage.output_tokens or 0, usage.cache_read_tokens or 0)
    return Reply(response.message.text or "", *counts, finish=response.finish_reason, logprobs=logprobs or None)


async def reply_to(lm: JudgeLM, question: Messages, role: str = "scorer") -> Reply:
    token = CALL_TAG.set(CallTag(role))
    try:
        return reply_of(await lm.acall(request_of(lm.model, question, lm.kwargs)))
    finally:
        CALL_TAG.reset(token)


def call_key(lm: JudgeLM, messages: Messages, **settings: Any) -> str:
    return key_of(lm.model, lm.endpoint, messages, {**lm.kwargs, **settings})


def ask(lm: JudgeLM, *questions: list[dict[str, Any]], role: str = "scorer") -> list[Reply]:
    async def go() -> list[Reply]:
        return [await reply_to(lm, question, role) for question in questions]

    return asyncio.run(go())
