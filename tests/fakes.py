"""An LM whose replies a test writes, and which remembers what it was asked.

lm = scripted_lm(debater(score="4", decision="NO ISSUE"))
with JudgeRunner(lm) as runner: ...
assert len(lm.prompts) == 2
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from dspy.lm15 import Message, Request, Response, Usage

from debate_judge.programs.lm.client import JudgeLM

Script = Callable[[str], str]
"""From the text of the last user message to the reply; it may raise what an engine may raise."""


class ScriptedLM(JudgeLM):
    """A `JudgeLM` that never leaves the process."""

    prompts: list[str]
    """Every call that reached the engine, in order: what the store answered is not among them."""
    systems: list[str]
    """The system texts of these calls."""
    peak: int
    """Most calls that were in flight at once."""


def scripted_lm(script: Script, *, latency: float = 0.0, **options: Any) -> ScriptedLM:
    """Make an LM that answers by `script`, each call taking `latency` seconds; `options` go to `JudgeLM`."""
    engine = _Engine(script, latency)
    lm = ScriptedLM("scripted/lm", engine=engine, async_engine=_AsyncEngine(engine), **options)
    lm.prompts, lm.systems, lm.peak = engine.prompts, engine.systems, 0
    engine.lm = lm
    return lm


def in_turn(replies: Iterable[str]) -> Script:
    """A script that gives these replies one after the other, whatever it is asked."""
    queue = iter(replies)
    return lambda prompt: next(queue)


def debater(**fields: str | Callable[[str], str]) -> Script:
    """A script that follows the protocol: it fills in whatever fields the prompt asks for.

    Args:
        fields: Field name -> its content, or a function of the prompt; other fields get a plain sentence, and
            scores and decisions `3` and `NO ISSUE`.
    """
    usual: dict[str, str | Callable[[str], str]] = {"score": "3", "final_score": "3", "decision": "NO ISSUE"}
    known = {**usual, **fields}

    def script(prompt: str) -> str:
        asked = requested(prompt)
        values = {name: known.get(name, f"My {name} about it.") for name in asked}
        texts = {name: value if isinstance(value, str) else value(prompt) for name, value in values.items()}
        return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in texts.items())

    return script


def requested(prompt: str) -> list[str]:
    """Names of the fields that a prompt asks for: what stands after its last `Reply with`."""
    return re.findall(r"^\[\[ ## (\w+) ## \]\]$", prompt[prompt.rindex("Reply with") :], re.MULTILINE)


def section(prompt: str, name: str) -> str:
    """The part of a prompt under the header `name`, or an empty text."""
    end = r"(?=\n\n\[\[ ## |\n\nReply with these fields:|\Z)"
    found = re.search(rf"^\[\[ ## {name} ## \]\]\n(.*?){end}", prompt, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


class _Engine:
    def __init__(self, script: Script, latency: float) -> None:
        self.script = script
        self.latency = latency
        self.prompts: list[str] = []
        self.systems: list[str] = []
        self.flying = 0
        self.lm: ScriptedLM | None = None

    def answer(self, request: Request) -> Response:
        prompt = request.messages[-1].text or ""
        self.prompts.append(prompt)
        self.systems.append(str(request.system or ""))
        text = self.script(prompt)
        usage = Usage(input_tokens=len(prompt.split()), output_tokens=len(text.split()))
        return Response(
            id=None, model=request.model, message=Message.assistant(text), finish_reason="stop", usage=usage
        )

    def complete(self, request: Request) -> Response:
        time.sleep(self.latency)
        return self.answer(request)


class _AsyncEngine:
    def __init__(self, engine: _Engine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        engine = self._engine
        engine.flying += 1
        if engine.lm is not None:
            engine.lm.peak = max(engine.lm.peak, engine.flying)
        try:
            await asyncio.sleep(engine.latency)
            return engine.answer(request)
        finally:
            engine.flying -= 1
