"""A hallucination judge whose agents say what evidence they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import dspy

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.hallucination.judge import Hallucination, Options
from debate_judge.programs.judge import DebateConfig, Item
from tests.fakes import ScriptedLM, debater, scripted_lm

ASPECT = Aspect("factuality", "Is all of it factual?", Scale(0, 1))
QA = Task("questions", "question", "answer", (ASPECT,))
BARE = Item("g", "c", QA, ASPECT, "Which city?", "Lima.")


def run(lm: ScriptedLM, work: Awaitable[Any]) -> Any:
    async def under_lm() -> Any:
        with dspy.context(lm=lm, trace=None):
            return await work

    return asyncio.run(under_lm())


def checker() -> ScriptedLM:
    fields = {"query_1": "robbery city", "query_2": "police appeal", "claims": "Ann won.", "factuality": "True"}
    return scripted_lm(debater(severity="0", **fields))


def judge(**options: Any) -> Hallucination:
    return Hallucination(Options(**options), DebateConfig(rounds=0))


ARTICLE = " ".join(f"Sentence number {n} says nothing of note." for n in range(30)) + " Robbers struck in the city."
