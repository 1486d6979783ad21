"""A compiled judge and its export."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build, build_preset
from debate_judge.programs.judge import AspectJudge, CompiledJudge, Item
from debate_judge.runs.export import save
from tests.fakes import debater

TASK = Task(
    "support",
    "customer message",
    "reply",
    (
        Aspect("tone", "How the reply treats the customer.", Scale(1, 5)),
        Aspect("Überblick v1.0", "Whether it is complete.", Scale(0, 1, 0.5)),
        Aspect("help", "Whether it helps.", Scale(1, 5)),
    ),
    "policy",
)
LM = {"spec": "scripted/lm"}


def compiled() -> CompiledJudge:
    """Three aspects judged in three ways; the critic and the scorer of `tone` carry tuned instructions."""
    tone = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": True})
    for name, text in (("critic", 'Ask: who "pays"?\n— é'), ("scorer", "Score it.")):
        predictor = dict(tone.named_predictors())[name]
        predictor.signature = predictor.signature.with_instructions(text)
    return CompiledJudge(
        TASK,
        {
            "tone": AspectJudge(tone, "half"),
            "Überblick v1.0": AspectJudge(build_preset("single", {}), "whole"),
            "help": AspectJudge(build("debate", {"persona": "sophisticated", "rounds": 1, "tie_breaker": False})),
        },
    )


def write(folder: Path, judge: CompiledJudge | None = None, **arguments: Any) -> Path:
    usual: dict[str, Any] = {"lm": LM, "evidence": {"seed": 3}, "name": "mine"}
    return save(folder, judge or compiled(), **usual | arguments)


SCRIPT = debater(score="4.3", feedback="An issue.", final_score="2.26")

NOTES = Task("notes", "letter", "note", (Aspect("clarity", "Is it clear?", Scale(1, 9)),))


def single_call(folder: Path, spec: str = "openai/m", address: str | None = None) -> Path:
    """The export of a judge that scores notes by one call."""
    judge = CompiledJudge(NOTES, {"clarity": AspectJudge(build_preset("single", {}))})
    return write(folder, judge, lm={"spec": spec, "api_base": address}, evidence={})


def items(count: int) -> list[Item]:
    """Notes to score."""
    return [Item(f"g{n}", "c", NOTES, NOTES.aspects[0], "A letter.", f"Note-{n}") for n in range(1, count + 1)]


def number_of_note(body: bytes) -> str:
    """An LM's answer to a request about a note: its number as the score."""
    number = re.search(rb"Note-(\d+)", body)
    return f"[[ ## rationale ## ]]\nBecause.\n\n[[ ## score ## ]]\n{number[1].decode() if number else 4}"
