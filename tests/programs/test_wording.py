"""How prompts say what their texts are, and what a task file's labels make of it."""

from __future__ import annotations

import re

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.sets import factuality, faireval, qags
from debate_judge.data.tasks import TASKS
from debate_judge.programs.roles.role import kinds

SHIPPED = [*TASKS.values(), factuality.ANSWERS, factuality.REPLIES, factuality.SUMMARIES, faireval.TASK, qags.TASK]


@pytest.mark.parametrize("task", SHIPPED, ids=[task.name for task in SHIPPED])
@pytest.mark.parametrize("context", [True, False])
def test_no_label_has_an_article(task: Task, context: bool) -> None:
    told = kinds(task, context)
    assert not re.search(r"\ban?\b", told)
    assert (task.context_label in told) is context


def test_every_text_is_named_by_its_label() -> None:
    task = Task("t", "minutes", "answer", (Aspect("a", "Is it?", Scale(0, 1)),), "knowledge")
    assert kinds(task) == "Source: minutes. Candidate: answer."
    assert kinds(task, context=True) == (
        "Source: minutes. Candidate: answer. Context, which belongs to the source: knowledge."
    )
