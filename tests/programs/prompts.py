"""The prompts of a debate about one item."""

from __future__ import annotations

import re

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.role import RoleLastAdapter
from tests.fakes import debater

ADAPTER = RoleLastAdapter()

COHERENCE = Aspect("coherence", "Do the sentences build on each other?", Scale(1, 5))
FLUENCY = Aspect("fluency", "Is it good English?", Scale(1, 3))
TASK = Task("dialogue", "conversation", "reply", (COHERENCE, FLUENCY), "fact")
ITEM = Item("g1", "c1", TASK, COHERENCE, "Is it raining?", "It is.", "Rain is wet.")

OPEN_DEBATE = debater(score=lambda prompt: "2" if "debate" not in prompt else "3", decision="ISSUE", final_score="4")


def headers(prompt: str) -> list[str]:
    return re.findall(r"^\[\[ ## (\w+) ## \]\]$", prompt, re.MULTILINE)
