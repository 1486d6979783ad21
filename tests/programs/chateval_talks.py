"""Scripted referees that say who they are and how often they were asked."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import dspy

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.judge import Item
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("clarity", "Is the text easy to follow?", Scale(1, 5))
ITEM = Item("g", "c", Task("notes", "letter", "note", (ASPECT,)), ASPECT, "A long letter.", "A short note.")
ROLES = {"alpha": "You are alpha.", "beta": "You are beta.", "gamma": "You are gamma."}
TWO = {name: ROLES[name] for name in ("alpha", "beta")}
ONE = {"alpha": ROLES["alpha"]}


def run(lm: ScriptedLM, work: Awaitable[Any]) -> Any:
    async def under_lm() -> Any:
        with dspy.context(lm=lm, trace=None):
            return await work

    return asyncio.run(under_lm())


def speaker(prompt: str) -> str:
    named = re.match(r"You are (\w+)\.", section(prompt, "role"))
    return named[1] if named else "summarizer"


def numbered(**options: Any) -> ScriptedLM:
    """Each says its initial and how often it was asked; alpha scores 1, beta 2, gamma 3, and each time 1 more."""
    counts: Counter[str] = Counter()

    def count(prompt: str) -> str:
        counts[speaker(prompt)] += 1
        return f"{speaker(prompt)[0]}{counts[speaker(prompt)]}"

    def score(prompt: str) -> str:
        return str("abg".index(speaker(prompt)[0]) + counts[speaker(prompt)])

    return scripted_lm(debater(rationale=count, score=score, summary=count), **options)
