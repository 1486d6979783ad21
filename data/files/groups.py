"""Rated groups from users' files: one group a record, or rows of a table.

A line of JSON with a group, broken up here for reading:

    {"group": "a1", "task": "summarization", "source": "The council voted …", "references": ["…"],
     "candidates": [{"id": "lead-3", "text": "The council …", "ratings": {"coherence": [4, 5, 4], "fluency": 5},
                     "comments": {"coherence": ["the last sentence stands alone"]}}]}

`task` is a built-in task or the path of a task file relative to the data; it may be missing where the caller
gives one. `context`, `references`, `ratings` and `comments` are optional; an aspect's comments are one text or a list.
`source` may be missing in all groups, where texts are judged by themselves.

A table, in any of the formats of `data.files.formats`, has the column text, optionally group, source, candidate,
context, reference, task, and one column per rated aspect (`4`, `4;5;4` for several raters, blank for unrated) or one
per aspect and rater; or one row per rating; see `data.files.columns` and `data.files.rated_rows`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.errors import InputError, Tell, tolerated
from debate_judge.data.files.columns import Columns, ReadingNotes, aspect_fields
from debate_judge.data.files.formats import RecordFile, recognized, stem_of
from debate_judge.data.files.other_names import even, lacks, missing, rater_base
from debate_judge.data.files.rated_rows import RowReader
from debate_judge.data.files.ratings import comments_of, ratings_of
from debate_judge.data.files.records import Record
from debate_judge.data.files.task_file import find_task
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup, Task

_GROUP = ("group", "task", "source", "context", "references", "candidates")
_CANDIDATE = ("id", "text", "ratings", "comments")
"""Fields of a group and of a candidate in JSON."""

AS_NAMED = Columns()


class GroupRecord(NamedTuple):
    """A group with its task and the record that it begins with."""

    task: Task
    group: RatedGroup
    record: Record


def load(path: str | Path | RecordFile, task: Task | str | None = None, columns: Columns = AS_NAMED) -> Corpus:
    """Read all groups of one task from a file or data set; one log line lists what is not read.

    Args:
        path: A file in one of the formats, or `hf:NAME@SPLIT`, or one that was recognized.
        task: As in `iter_groups`.
        columns: What the user calls the columns.

    Raises:
        InputError: as `iter_groups`, and for several tasks in the file with none chosen, a group id that occurs
            twice, or a source text in two groups (it could then be trained on and tested on).
    """
    first: GroupRecord | None = None
    ids: dict[str, Record] = {}
    sources: dict[str, GroupRecord] = {}
    file = path if isinstance(path, RecordFile) else recognized(path)
    for entry in iter_groups(file, task, columns, gather=True):
        first = first or entry
        if entry.task.name != first.task.name:
            raise entry.record.error(
                "the file has groups of several tasks",
                "task",
                expected=f"{first.task.name}, as in {first.record.where}",
                found=entry.task.name,
                remedy=f"choose one with --task, e.g. --task {entry.task.name}",
            )
        _refuse_twice(entry, ids, sources)
    if first is None:
        raise _nothing_found(file, task, columns)
    groups = tuple(entry.group for entry in sources.values())
    return Corpus(first.task, groups, Origin(stem_of(file.name), file.name))


def iter_groups(
    path: str | Path | RecordFile,
    task: Task | str | None = None,
    columns: Columns = AS_NAMED,
    *,
    refuse_others: bool = False,
    gather: bool = False,
    notes: ReadingNotes | None = None,
    tell: Tell | None = None,
) -> Iterator[GroupRecord]:
    """Stream the groups of a file or data set; ratings are optional.

    Nothing is checked across groups; `load` does that.

    Args:
        path: As in `load`, or a file that was recognized.
        task: a task, the name of a built-in one or the path of a task file. Groups that name no task are taken to
            be of this one, groups that name another are left out.
        columns: What the user calls the columns.
        refuse_others: raise for a group of another task instead of leaving it out.
        gather: Find the rows of a group anywhere in a table, which is then held in memory. Otherwise the rows of a
            group have to be adjacent, and only one group is held at a time.
        notes: Collects what the user should know about the reading; by default it is logged as a warning in one line.
        tell: Takes the errors of records with a group each, which are then left out; by default they are raised.

    Raises:
        InputError: naming file, line (or row) and field.
    """
    file = path if isinstance(path, RecordFile) else recognized(path)
    tasks = _Tasks(file, find_task(task) if isinstance(task, str) else task, refuse_others)
    return _groups(file, tasks, columns, gather, notes, tell)


def _groups(
    file: RecordFile, tasks: _Tasks, columns: Columns, gather: bool, given: ReadingNotes | None, tell: Tell | None
) -> Iterator[GroupRecord]:
    notes = given or ReadingNotes(file.name)
    if not file.usual:
        notes.add(file.format)
    records = file.records()
    first = next(records, None)
    if first is None:
        return
    found: Iterator[GroupRecord]
    if "candidates" in columns.find(tuple(map(str, first.values)), _GROUP)[0]:
        found = _JsonGroups(columns, tasks, notes, tell).read(chain([first], records))
    else:
        reader = RowReader(columns, tasks.of, notes)
        found = (GroupRecord(*entry) for entry in reader.groups(chain([first], records), gather=gather))
    for number, entry in enumerate(found):
        yield entry
        # Streamed groups cost LM calls while later ones are read, so a misspelt column is reported after the first.
        if number == 0 and given is None and not gather:
            notes.tell()
    if given is None:
        notes.tell()


class _Tasks:
    """Finds the task that a record names, reading each task file once."""

    def __init__(self, file: RecordFile, chosen: Task | None, refuse_others: bool) -> None:
        self._folder = file.folder
        self._chosen = chosen
        self._refuse_others = refuse_others
        self._known: dict[str, Task] = {} if chosen is None else {chosen.name: chosen}

    def of(self, record: Record, field: str = "task") -> Task | None:
        """The task of a record, or None if the caller chose another one; `field` is the field that names it."""
        name = record.optional_text(field).strip()
        if not name and self._chosen is None:
            raise record.error(
                "the group names no task",
                field,
                expected="a built-in task or the path of a task file",
                remedy=f"choose one with --task; where none fits, debate check {shlex.quote(record.file)} --write-task "
                "FILE.toml drafts one for you to correct. In a file of several tasks, add the field task",
            )
        if name and name not in self._known:
            with record.located(field):
                self._known[name] = find_task(name, self._folder)
        if self._chosen is None or not name:
            return self._known[name] if name else self._chosen
        if self._known[name].name == self._chosen.name:
            return self._chosen
        if self._refuse_others:
            raise record.error(
                f"the group is of another task than {self._chosen.name}",
                field,
                found=name,
                remedy="take it out of the file, or skip such groups: --config task=NAME with the judge's task",
            )
        return None


class _JsonGroups:
    """Reads records of which each is a group with its list of candidates."""

    def __init__(self, columns: Columns, tasks: _Tasks, notes: ReadingNotes, tell: Tell | None) -> None:
        self._columns = columns
        self._tasks = tasks
        self._notes = notes
        self._tell = tell
        self._sourced: bool | None = None

    def read(self, records: Iterable[Record]) -> Iterator[GroupRecord]:
        for record in records:
            with tolerated(self._tell):
                fields = self._fields(record, _GROUP)
                task = self._tasks.of(record, fields.get("task", "task"))
                if self._sourced is None:
                    self._check_names(record, fields)
                    self._sourced = "source" in fields or not lacks("source", tuple(map(str, record.values)))
                if task is not None:
                    yield GroupRecord(task, self._group(record, fields, task), record)

    def _fields(self, record: Record, names: tuple[str, ...]) -> dict[str, str]:
        fields, rest = self._columns.find(tuple(map(str, record.values)), names)
        self._notes.fields(fields.values(), rest, [name for name in names if name not in fields])
        return fields

    def _group(self, record: Record, fields: dict[str, str], task: Task) -> RatedGroup:
        name = record.identifier(fields.get("group", "group"))
        if self._sourced and "source" not in fields:
            raise missing(record, "source", tuple(map(str, record.values)))
        children = record.children(fields.get("candidates", "candidates"))
        return RatedGroup(
            id=name,
            source=record.text(fields["source"]) if "source" in fields else "",
            candidates=_distinct([(c, self._candidate(c, task)) for c in children], name),
            context=record.optional_text(fields.get("context", "context")),
            references=record.texts(fields.get("references", "references")),
        )

    def _candidate(self, record: Record, task: Task) -> Candidate:
        fields = self._fields(record, _CANDIDATE)
        name, text = record.identifier(fields.get("id", "id")), record.text(fields.get("text", "text"))
        held = [fields.get(field, field) for field in ("ratings", "comments")]
        rated, told = (None if record.values.get(f) is None else record.child(f) for f in held)
        ratings = {} if rated is None else ratings_of(rated, task, self._aspects(rated, task))
        return Candidate(name, text, ratings, {} if told is None else comments_of(told, self._aspects(told, task)))

    def _aspects(self, record: Record, task: Task) -> dict[str, tuple[str, ...]]:
        return aspect_fields(record, task, self._columns, self._notes)

    def _check_names(self, record: Record, fields: dict[str, str]) -> None:
        """Check the user's names for columns against the first record: its fields, its first candidate's, and those of
        the objects inside that candidate."""
        if not self._columns.renamed:
            return
        first = record.children(fields["candidates"])[0]
        levels = [record, first, *(first.child(f) for f in first.values if isinstance(first.values[f], dict))]
        keys = [str(key) for level in levels for key in level.values]
        bases = {rater_base(key) for key in keys}
        renamed = {theirs for theirs in self._columns.renamed.values() if even(theirs) in bases}
        task = self._tasks.of(record, fields.get("task", "task"))
        aspects = [aspect.name for aspect in task.aspects] if task else []
        self._columns.require(record, keys, (*_GROUP, *_CANDIDATE, *aspects), renamed)


def _distinct(made: list[tuple[Record, Candidate]], group: str) -> tuple[Candidate, ...]:
    seen: dict[str, Record] = {}
    for record, candidate in made:
        if candidate.id in seen:
            raise record.error(
                f"group {group!r} has two candidates with the id {candidate.id!r}",
                "id",
                expected="a different id for every candidate of a group",
                found=f"{candidate.id!r}, as in {seen[candidate.id].path}",
                remedy="put the name of the system that wrote the candidate into 'id'",
            )
        seen[candidate.id] = record
    return tuple(candidate for _, candidate in made)


def _refuse_twice(entry: GroupRecord, ids: dict[str, Record], sources: dict[str, GroupRecord]) -> None:
    group, source = entry.group, entry.group.source_key
    if group.id in ids:
        raise entry.record.error(
            f"a second group with the id {group.id!r}",
            "group",
            expected="a different id for every group",
            found=f"the id of {ids[group.id].where}",
            remedy="put all candidates of a source on one line, or rename one of the groups",
        )
    if source in sources:
        other = sources[source]
        raise entry.record.error(
            f"groups {other.group.id!r} and {group.id!r} have the same source text",
            "source",
            expected="every source in one group only, so that none is both trained on and tested on",
            found=f"the source of {other.record.where}: {group.source!r}",
            remedy="put all candidates of this source into one group",
        )
    ids[group.id], sources[source] = entry.record, entry


def _nothing_found(file: RecordFile, task: Task | str | None, columns: Columns) -> InputError:
    found = iter_groups(file, columns=columns, notes=ReadingNotes(file.name)) if task is not None else ()
    names = sorted({entry.task.name for entry in found})
    if not names:
        return InputError("no groups in the file", file=file.name, expected="at least one group with its candidates")
    wanted = task.name if isinstance(task, Task) else task
    return InputError(
        f"no group of task {wanted!r} in the file",
        file=file.name,
        field="task",
        found="groups of " + ", ".join(names),
        remedy=f"choose one of them with --task, e.g. --task {names[0]}",
    )
