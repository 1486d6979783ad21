"""A user's own task as a TOML file: labels for the texts, each aspect with its rubric and scale, and the mapping of
columns.

    name = "support"
    source_label = "customer message"
    candidate_label = "reply"
    context_label = "policy"            # only where groups carry a context

    [aspects.tone]
    definition = "How the reply treats the customer. 1 is rude, 3 is correct but cold, 5 is warm and patient."
    low = 1
    high = 5
    step = 1                            # scores are whole points; left out, any number on the scale
    column = ["anna", "ben"]            # where its ratings are, and what their values mean (`AspectColumns`)
    labels = {Rude = 1, Fine = 3, Kind = 5}

    [columns]                           # what your tables call our columns, and how to read them (`ColumnNames`)
    source = "question"
    text = "answer_{system}"
    empty = "skip"

The definition is the judge's rubric: say what to look at and what the ends of the scale mean.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files import reading
from debate_judge.data.files.columns import AspectColumns, ColumnNames
from debate_judge.data.files.records import ClosedModel, Number, Record, Text, validated
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.tasks import TASKS

RESERVED = frozenset({"group", "source", "candidate", "text", "context", "reference", "task"})
"""Columns of tables that never hold ratings; aspects cannot have these names."""


def find_task(name: str, folder: Path | None = None) -> Task:
    """The task called `name`: a built-in one, or a file ending in .toml (relative to `folder`).

    Raises:
        InputError: There is no such task, or its file cannot be used.
    """
    if name in TASKS:
        return TASKS[name]
    path = (folder or Path()) / name
    # os.path.exists, because Path.exists raises for a name that is too long, and records may hold any name.
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
        InputError: With the field, or with the line if the file is not valid TOML.
    """
    return task_of(reading.toml(Path(path), "task file"))


def task_of(record: Record) -> Task:
    """The task in a record with the fields of a task file."""
    file = validated(_TaskFile, record)
    columns: dict[str, Any] = dict(file.columns)
    where = Record({}, record.file, path="columns", format="toml")
    for name, aspect in file.aspects.items():
        found = aspect.model_dump(include=set(AspectColumns.model_fields), exclude_defaults=True)
        if found:
            columns.setdefault("aspects", {})[name] = found
    mapping = ColumnNames.of(columns, where, optional=True)
    _ = mapping.verdicts
    if unknown := [name for name in mapping.aspects if name not in file.aspects]:
        near = did_you_mean(unknown[0], [*file.aspects, *ColumnNames.model_fields])
        raise where.error(f"{unknown[0]!r} is neither a column nor an aspect", unknown[0], remedy=near)
    return Task(
        file.name.strip(),
        file.source_label.strip(),
        file.candidate_label.strip(),
        tuple(Aspect(name, a.definition.strip(), a.scale, a.source) for name, a in file.aspects.items()),
        file.context_label.strip(),
        mapping.to_table(),
    )


def usable_name(name: str) -> bool:
    """Whether an aspect may have this name: names become columns of tables and parts of metric names."""
    return name not in RESERVED and re.fullmatch(r"\w[\w .-]*", name) is not None


def _require_usable(name: str) -> str:
    if not usable_name(name):
        raise InputError(
            f"{name!r} cannot be the name of an aspect",
            expected="letters, digits, _, -, . and blanks, and none of " + ", ".join(sorted(RESERVED)),
        )
    return name


def _require_aspects(aspects: dict[str, _AspectTable]) -> dict[str, _AspectTable]:
    if not aspects:
        raise InputError("a task needs at least one aspect", expected="[aspects.NAME]")
    return aspects


class _AspectTable(AspectColumns):
    definition: Text
    low: Number
    high: Number
    step: Number | None = None
    source: bool = True

    @property
    def scale(self) -> Scale:
        # If a step is stated, scores are rounded to it; else unrounded scores agree best with mean ratings.
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
    aspects: Annotated[
        dict[Annotated[str, AfterValidator(_require_usable)], _AspectTable], AfterValidator(_require_aspects)
    ]
    columns: dict[str, Any] = Field(default_factory=dict)
