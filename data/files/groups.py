"""The project's own formats: JSON lines (one group a line) and CSV (one candidate a row).

A line of JSON, broken up here for reading:

    {"group": "a1", "task": "summarization", "source": "The council voted …", "references": ["…"],
     "candidates": [{"id": "lead-3", "text": "The council …", "ratings": {"coherence": [4, 5, 4], "fluency": 5},
                     "comments": {"coherence": ["the last sentence stands alone"]}}]}

`task` is a built-in task or the path of a task file relative to the data; it may be missing where the caller
gives one. `context`, `references`, `ratings` and `comments` are optional; an aspect's comments are one text or a list.
A CSV has the columns source and text, optionally group, candidate, context, reference, task and `comments.ASPECT` (one
text), and otherwise one column per rated aspect (`4`, `4;5;4` for several raters, blank for unrated). Without the
column group every row is a group of its own, named by its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.files.ratings import comments_in, ratings_in
from debate_judge.data.files.records import Record
from debate_judge.data.files.task_file import RESERVED, find_task
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup, Task

SUFFIXES = (".jsonl", ".csv")

_COMMENTS = "comments."
"""What the CSV columns with comments begin with."""


class GroupRecord(NamedTuple):
    """A group with its task and the line of the file where it begins."""

    task: Task
    group: RatedGroup
    line: int


def load(path: str | Path, task: Task | str | None = None) -> Corpus:
    """Read all groups of one task from a .jsonl or .csv file.

    Raises:
        InputError: as `iter_groups`, and for several tasks in the file with none chosen, a group id that occurs
            twice, or a source text in two groups (it could then be trained on and tested on).
    """
    path = Path(path)
    first: GroupRecord | None = None
    ids: dict[str, int] = {}
    sources: dict[str, GroupRecord] = {}
    for entry in iter_groups(path, task):
        first = first or entry
        if entry.task.name != first.task.name:
            raise InputError(
                "the file has groups of several tasks",
                file=path,
                line=entry.line,
                field="task",
                expected=f"{first.task.name}, as in line {first.line}",
                found=entry.task.name,
                remedy=f"choose one with --task, e.g. --task {entry.task.name}",
            )
        _refuse_twice(path, entry, ids, sources)
    if first is None:
        raise _nothing_found(path, task)
    groups = tuple(entry.group for entry in sources.values())
    return Corpus(first.task, groups, Origin(path.stem, str(path)))


def iter_groups(
    path: str | Path, task: Task | str | None = None, *, refuse_others: bool = False
) -> Iterator[GroupRecord]:
    """Stream the groups of a .jsonl or .csv file; ratings are optional.

    One group is held at a time, so nothing is checked across groups: that is what `load` is for. In a CSV the
    rows of a group have to be adjacent.

    Args:
        path: the file.
        task: a task, the name of a built-in one or the path of a task file. Groups that name no task are taken to
            be of this one, groups that name another are left out.
        refuse_others: raise for a group of another task instead of leaving it out.

    Raises:
        InputError: naming file, line and field.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        expected = " or ".join(SUFFIXES)
        raise InputError(f"a file of groups must end in {expected}", file=path, found=path.suffix or "no suffix")
    tasks = _Tasks(path, find_task(task) if isinstance(task, str) else task, refuse_others)
    return _from_csv(path, tasks) if suffix == ".csv" else _from_jsonl(path, tasks)


class _Tasks:
    """Finds the task of a record, reading each task file once."""

    def __init__(self, file: Path, chosen: Task | None, refuse_others: bool) -> None:
        self._folder = file.parent
        self._chosen = chosen
        self._refuse_others = refuse_others
        self._known: dict[str, Task] = {} if chosen is None else {chosen.name: chosen}

    def of(self, record: Record) -> Task | None:
        """The record's task, or None if the caller chose another."""
        name = record.optional_text("task").strip()
        if not name and self._chosen is None:
            raise record.error(
                "the group names no task",
                "task",
                expected="a built-in task or the path of a task file",
                remedy="add the field task, or choose a task for the whole file with --task",
            )
        if name and name not in self._known:
            with record.located("task"):
                self._known[name] = find_task(name, self._folder)
        if self._chosen is None or not name:
            return self._known[name] if name else self._chosen
        if self._known[name].name == self._chosen.name:
            return self._chosen
        if self._refuse_others:
            raise record.error(
                f"the group is of another task than {self._chosen.name}",
                "task",
                found=name,
                remedy="take it out of the file, or skip such groups by naming the judge's task with --task",
            )
        return None


def _from_jsonl(path: Path, tasks: _Tasks) -> Iterator[GroupRecord]:
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
    rated, told = (None if record.values.get(f) is None else record.child(f) for f in ("ratings", "comments"))
    ratings = {} if rated is None else ratings_in(rated, task, rated.values)
    return Candidate(name, text, ratings, {} if told is None else comments_in(told, task))


def _from_csv(path: Path, tasks: _Tasks) -> Iterator[GroupRecord]:
    """A group ends where a row of another one begins."""
    rows = enumerate(reading.csv_rows(path), start=1)
    for name, numbered in groupby(rows, key=lambda row: _row_group(*row)):
        # Each row is checked as it is read, so that an error is about the first row that has one.
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
    filled = [c for c, cell in row.values.items() if c not in RESERVED and not (several and not str(cell).strip())]
    rated = [column for column in filled if not column.startswith(_COMMENTS)]
    told = {c.removeprefix(_COMMENTS): row.values[c] for c in filled if c.startswith(_COMMENTS)}
    comments = comments_in(replace(row, values=told, path=_COMMENTS[:-1]), task)
    return Candidate(name, row.text("text"), ratings_in(row, task, rated), comments)


def _distinct(made: list[tuple[Record, Candidate]], group: str, field: str) -> tuple[Candidate, ...]:
    seen: dict[str, Record] = {}
    for record, candidate in made:
        if candidate.id in seen:
            raise record.error(
                f"group {group!r} has two candidates with the id {candidate.id!r}",
                field,
                expected="a different id for every candidate of a group",
                found=f"{candidate.id!r}, as in {seen[candidate.id].path or f'line {seen[candidate.id].line}'}",
                remedy=f"put the name of the system that wrote the candidate into {field!r}",
            )
        seen[candidate.id] = record
    return tuple(candidate for _, candidate in made)


def _refuse_twice(path: Path, entry: GroupRecord, ids: dict[str, int], sources: dict[str, GroupRecord]) -> None:
    group, source = entry.group, entry.group.source_key
    if group.id in ids:
        raise InputError(
            f"a second group with the id {group.id!r}",
            file=path,
            line=entry.line,
            field="group",
            expected="a different id for every group",
            found=f"the id of line {ids[group.id]}",
            remedy="put the rows of a group next to each other"
            if path.suffix.lower() == ".csv"
            else "put all candidates of a source on one line, or rename one of the groups",
        )
    if source in sources:
        other = sources[source]
        raise InputError(
            f"groups {other.group.id!r} and {group.id!r} have the same source text",
            file=path,
            line=entry.line,
            field="source",
            expected="every source in one group only, so that none is both trained on and tested on",
            found=f"the source of line {other.line}: {group.source!r}",
            remedy="put all candidates of this source into one group",
        )
    ids[group.id], sources[source] = entry.line, entry


def _nothing_found(path: Path, task: Task | str | None) -> InputError:
    names = sorted({entry.task.name for entry in iter_groups(path)}) if task is not None else []
    if not names:
        return InputError("no groups in the file", file=path, expected="at least one group with its candidates")
    wanted = task.name if isinstance(task, Task) else task
    return InputError(
        f"no group of task {wanted!r} in the file",
        file=path,
        field="task",
        found="groups of " + ", ".join(names),
        remedy=f"choose one of them with --task, e.g. --task {names[0]}",
    )
