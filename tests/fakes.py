"""Scripts that follow the protocol, for the scripted LM of `debate_judge.testing`, and what stands in a prompt.

lm = scripted_lm(debater(score="4", feedback="Too low."))
with JudgeRunner(lm) as runner: ...
assert len(lm.prompts) == 2
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import dspy
import pytest

from debate_judge.programs.lm.engine import settings_of
from debate_judge.programs.lm.replies import CALL_TAG
from debate_judge.programs.testing import Script, ScriptedLM, in_turn, scripted_lm

__all__ = [
    "Script", "ScriptedLM", "debater", "hold", "in_turn", "only", "requested", "scripted_lm", "section",
    "settings_seen",
]  # fmt: skip

T = TypeVar("T")


def debater(**fields: str | Callable[[str], str]) -> Script:
    """A script that follows the protocol: it fills in whatever fields the prompt asks for.

    Args:
        fields: Field name -> its content, or a function of the prompt; other fields get a plain sentence, and
            scores and feedback `3` and `NO ISSUE`.
    """
    usual: dict[str, str | Callable[[str], str]] = {"score": "3", "final_score": "3", "feedback": "NO ISSUE"}
    replies = {**usual, **fields}

    def script(prompt: str) -> str:
        names = requested(prompt)
        values = {name: replies.get(name, f"My {name} about it.") for name in names}
        texts = {name: value if isinstance(value, str) else value(prompt) for name, value in values.items()}
        return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in texts.items())

    return script


def requested(prompt: str) -> list[str]:
    """Names of the fields that a prompt asks for: what stands after its last `Reply with`."""
    return re.findall(r"^\[\[ ## (\w+) ## \]\]$", prompt[prompt.rindex("Reply with") :], re.MULTILINE)


def section(prompt: str, name: str) -> str:
    """The part of a prompt under the header `name`, or an empty text."""
    end = r"(?=\n\n\[\[ ## |\n\nReply with these fields|\Z)"
    match = re.search(rf"^\[\[ ## {name} ## \]\]\n(.*?){end}", prompt, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def hold(lm: dspy.LM, work: Awaitable[T], **settings: Any) -> T:
    """What comes of work under this LM, in a loop of its own."""

    async def go() -> T:
        with dspy.context(**{"lm": lm, "disable_history": True, "trace": None, **settings}):
            return await work

    return asyncio.run(go())


async def only(work: Awaitable[Sequence[T]]) -> T:
    """The first of what is awaited: of a judge that is asked about one item, its only judgement or transcript."""
    return (await work)[0]


def settings_seen(lm: ScriptedLM, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings and the sample's number of each call of a judge, in order, filled as calls are made."""
    seen: list[dict[str, Any]] = []
    complete = lm.complete

    async def watched(request: dspy.lm15.Request) -> dspy.lm15.Response:
        tag = CALL_TAG.get()
        assert tag is not None
        seen.append({**settings_of(request), **({} if tag.sample is None else {"sample": tag.sample})})
        return await complete(request)

    monkeypatch.setattr(lm, "complete", watched)
    return seen
