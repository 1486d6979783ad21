"""From the records of the project's own formats to groups; which fields and columns there are, see `rated_files`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.errors import InputError
from debate_judge.data.files import ratings, reading
from debate_judge.data.files.records import Record
from debate_judge.data.files.task_file import RESERVED, find_task
from debate_judge.data.schema import Candidate, RatedGroup, Task


class GroupRecord(NamedTuple):
    """A group with its task and the line of the file where it begins."""

    task: Task
    group: RatedGroup
    line: int


class Tasks:
    """Finds the task of a record, reading each task file once."""

    def __init__(self, file: Path, chosen: Task | None) -> None:
        self._folder = file.parent
        self._chosen = chosen
        self._known: dict[str, Task] = {}

    def of(self, record: Record) -> Task | None:
        """The record's task, or None if the caller chose another."""
        name = record.optional_text("task").strip()
        if not name:
            if self._chosen is None:
                raise record.error(
                    "the group names no task",
                    "task",
                    expected="a built-in task or the path of a task file",
                    remedy="add the field task, or choose a task for the whole file with --task",
                )
            return self._chosen
        if name not in self._known:
            self._known[name] = self._find(name, record)
        task = self._known[name]
        if self._chosen is None:
            return task
        return self._chosen if task.name == self._chosen.name else None

    def _find(self, name: str, record: Record) -> Task:
        if self._chosen is not None and name == self._chosen.name:
            return self._chosen
        try:
            return find_task(name, self._folder)
        except InputError as error:
            if error.file is not None and Path(error.file).exists():
                raise
            missing = None if error.file is None else f"no file {error.file}"
            raise record.error(
                error.problem,
                "task",
                expected=error.expected or "the path of a task file, relative to the folder of the data",
                found=missing or name,
                remedy=error.remedy,
            ) from None


def jsonl_groups(path: Path, tasks: Tasks) -> Iterator[GroupRecord]:
    """Stream the groups of a JSON lines file."""
    for record in reading.jsonl(path):
        task = tasks.of(record)
        if task is not None:
            yield GroupRecord(task, _group(record, task), record.line)


def _group(record: Record, task: Task) -> RatedGroup:
    name = record.identifier("group")
    return RatedGroup(
        id=name,
        source=record.text("source"),
        candidates=_distinct([(c, _candidate(c, task)) for c in record.children("candidates")], name, "id"),
        context=record.optional_text("context"),
        references=record.texts("references"),
    )


def _candidate(record: Record, task: Task) -> Candidate:
    name, text = record.identifier("id"), record.text("text")
    if record.values.get("ratings") is None:
        return Candidate(name, text)
    return Candidate(name, text, ratings.from_json(record.child("ratings"), task))


def csv_groups(path: Path, tasks: Tasks) -> Iterator[GroupRecord]:
    """Stream the groups of a CSV file; a group ends where a row of another one begins."""
    rows = enumerate(reading.csv_rows(path), start=1)
    for name, numbered in groupby(rows, key=lambda row: _row_group(*row)):
        # Rows are built as they come, so that a complaint comes from the first row that deserves it.
        first: Record | None = None
        task: Task | None = None
        made: list[tuple[Record, Candidate]] = []
        references: dict[str, None] = {}
        for _, row in numbered:
            if first is None:
                first, task = row, tasks.of(row)
            _refuse_difference(first, row, name)
            if task is not None:
                made.append((row, _row_candidate(row, task)))
                references.update(dict.fromkeys(filter(None, [row.optional_text("reference")])))
        if first is not None and task is not None:
            candidates = _distinct(made, name, "candidate")
            source, context = first.text("source"), first.optional_text("context")
            yield GroupRecord(task, RatedGroup(name, source, candidates, context, tuple(references)), first.line)


def _row_group(number: int, row: Record) -> str:
    row.require("source", "text")
    return row.text("group").strip() if "group" in row.values else str(number)


def _refuse_difference(first: Record, row: Record, group: str) -> None:
    for name in ("source", "context", "task"):
        if row.values.get(name) != first.values.get(name):
            raise row.error(
                f"the rows of group {group!r} differ in {name}",
                name,
                expected=f"the same {name} as in line {first.line}",
                found=repr(row.values.get(name)),
                remedy="repeat it in every row of the group, or give another source its own group",
            )


def _row_candidate(row: Record, task: Task) -> Candidate:
    name = row.text("candidate").strip() if "candidate" in row.values else "1"
    # Where rows choose their task, a blank cell may belong to another task's aspect.
    several = "task" in row.values
    rated = {
        column: ratings.from_cell(row, task, column)
        for column, cell in row.values.items()
        if column not in RESERVED and not (several and not str(cell).strip())
    }
    return Candidate(name, row.text("text"), {column: values for column, values in rated.items() if values})


def _distinct(made: list[tuple[Record, Candidate]], group: str, field: str) -> tuple[Candidate, ...]:
    seen: dict[str, Record] = {}
    for record, candidate in made:
        if candidate.id in seen:
            raise record.error(
                f"group {group!r} has two candidates with the id {candidate.id!r}",
                record.place(field),
                expected="an id of its own for every candidate of a group",
                found=f"{candidate.id!r}, as in {seen[candidate.id].path or f'line {seen[candidate.id].line}'}",
                remedy=f"put the name of the system that wrote the candidate into {field!r}",
            )
        seen[candidate.id] = record
    return tuple(candidate for _, candidate in made)
