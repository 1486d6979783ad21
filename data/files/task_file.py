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

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files import reading
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.tasks import TASKS

RESERVED = frozenset({"group", "source", "candidate", "text", "context", "reference", "task"})
"""Columns of tables that never hold ratings; aspects cannot have these names."""

_LABELS = ("name", "source_label", "candidate_label")
_TASK_FIELDS = (*_LABELS, "context_label", "aspects", "columns")
_ASPECT_FIELDS = ("definition", "low", "high", "step", "source")


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
    record = reading.toml(Path(path), "task file")
    record.refuse_others(_TASK_FIELDS)
    aspects = record.child("aspects")
    if not aspects.values:
        raise record.error("a task needs at least one aspect", "aspects", expected="[aspects.NAME]")
    labels = {name: record.text(name).strip() for name in _LABELS}
    if "context_label" in record.values:
        labels["context_label"] = record.text("context_label").strip()
    columns = record.child("columns") if "columns" in record.values else None
    return Task(
        **labels,
        aspects=tuple(_aspect(aspects, name) for name in aspects.values),
        columns={} if columns is None else {ours: columns.text(ours).strip() for ours in columns.values},
    )


def usable_name(name: str) -> bool:
    """Whether an aspect may have this name: names become columns of tables and parts of metric names."""
    return name not in RESERVED and re.fullmatch(r"\w[\w .-]*", name) is not None


def _aspect(aspects: Record, name: str) -> Aspect:
    if not usable_name(name):
        raise aspects.error(
            f"{name!r} cannot be the name of an aspect",
            expected="letters, digits, _, -, . and blanks, and none of " + ", ".join(sorted(RESERVED)),
        )
    record = aspects.child(name)
    record.refuse_others(_ASPECT_FIELDS)
    definition = record.text("definition").strip()
    # A stated step means that scores should be on it; without one, the finest scores agree best with mean ratings.
    stated = "step" in record.values
    step = record.number("step") if stated else 1.0
    with record.located():
        scale = Scale(record.number("low"), record.number("high"), step, stated)
        return Aspect(name, definition, scale, "source" not in record.values or record.boolean("source"))
