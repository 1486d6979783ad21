"""A user's own task as a TOML file: labels for the texts, and each aspect with its rubric and scale.

    name = "support"
    source_label = "customer message"
    candidate_label = "reply"
    context_label = "policy"            # only where groups carry a context

    [aspects.tone]
    definition = "How the reply treats the customer. 1 is rude, 3 is correct but cold, 5 is warm and patient."
    low = 1
    high = 5
    step = 1                            # scores are whole points; left out, any number on the scale

    [columns]                           # what your tables call our columns, where the names differ
    source = "question"

The judge is given the definition as its rubric: say what to look at and what the ends of the scale mean.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files import reading
from debate_judge.data.files.records import ClosedModel, Number, Text, validated
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.tasks import TASKS

RESERVED = frozenset({"group", "source", "candidate", "text", "context", "reference", "task"})
"""Columns of tables that never hold ratings; aspects cannot have these names."""


def find_task(name: str, folder: Path | None = None) -> Task:
    """The task called `name`: a built-in one, or the file where `name` ends in .toml (relative to `folder`).

    Raises:
        InputError: no such task, or its file cannot be used.
    """
    if name in TASKS:
        return TASKS[name]
    path = (folder or Path()) / name
    # os.path.exists and not Path.exists, which raises for a name that is too long; records may hold any name.
    if path.suffix == ".toml" and os.path.exists(path):
        return read_task(path)
    near = [*TASKS, *(p.name for p in path.parent.glob("*.toml"))]
    raise InputError(
        "no such task file" if path.suffix == ".toml" else f"unknown task {name!r}",
        expected=", ".join(TASKS) + " or the path of a task file (.toml)",
        found=str(path) if path.suffix == ".toml" else name,
        remedy=did_you_mean(path.name, near),
    )


def read_task(path: str | Path) -> Task:
    """Read a task file.

    Raises:
        InputError: with the field, or with the line where the file is not TOML at all.
    """
    file = validated(_TaskFile, reading.toml(Path(path), "task file"))
    return Task(
        file.name.strip(),
        file.source_label.strip(),
        file.candidate_label.strip(),
        tuple(Aspect(name, one.definition.strip(), one.scale, one.source) for name, one in file.aspects.items()),
        file.context_label.strip(),
        {ours: theirs.strip() for ours, theirs in file.columns.items()},
    )


def usable_name(name: str) -> bool:
    """Whether an aspect may have this name: names become columns of tables and parts of metric names."""
    return name not in RESERVED and re.fullmatch(r"\w[\w .-]*", name) is not None


def _refuse_name(name: str) -> str:
    if not usable_name(name):
        raise InputError(
            f"{name!r} cannot be the name of an aspect",
            expected="letters, digits, _, -, . and blanks, and none of " + ", ".join(sorted(RESERVED)),
        )
    return name


def _refuse_empty(aspects: dict[str, _AspectTable]) -> dict[str, _AspectTable]:
    if not aspects:
        raise InputError("a task needs at least one aspect", expected="[aspects.NAME]")
    return aspects


class _AspectTable(ClosedModel):
    definition: Text
    low: Number
    high: Number
    step: Number | None = None
    source: bool = True

    @property
    def scale(self) -> Scale:
        # A stated step means that scores should be on it; without one, the finest scores agree best with mean ratings.
        return Scale(self.low, self.high, 1.0 if self.step is None else self.step, self.step is not None)

    @model_validator(mode="after")
    def _has_a_scale(self) -> Self:
        _ = self.scale
        return self


class _TaskFile(ClosedModel):
    name: Text
    source_label: Text
    candidate_label: Text
    context_label: Text = "background"
    aspects: Annotated[dict[Annotated[str, AfterValidator(_refuse_name)], _AspectTable], AfterValidator(_refuse_empty)]
    columns: dict[str, Text] = Field(default_factory=dict)
