"""Items for metrics over models, and their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build
from debate_judge.programs.judge import Item
from debate_judge.programs.metrics.metric import Metric

TASK = Task("t", "source", "text", (Aspect("a", "Good.", Scale(1, 5)), Aspect("b", "Nice.", Scale(1, 5))))


def item(text: str, *references: str, source: str = "a cat", context: str = "", aspect: int = 0) -> Item:
    return Item("g", "c", TASK, TASK.aspects[aspect], source, text, context, references)


def _bart(folder: Path, direction: str = "faithfulness", **options: Any) -> Metric:
    judge = build("bartscore", {"model": str(folder), "direction": direction, "device": "cpu", **options})
    assert isinstance(judge, Metric)
    return judge
