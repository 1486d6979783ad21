"""Rated groups from users' files: one group per record, or rows of a table.

A line of JSON with a group, broken up here for reading:

    {"group": "a1", "task": "summarization", "source": "The council voted …", "references": ["…"],
     "candidates": [{"id": "lead-3", "text": "The council …", "ratings": {"coherence": [4, 5, 4], "fluency": 5},
                     "comments": {"coherence": ["the last sentence stands alone"]}}]}

`task` is a built-in task or the path of a task file relative to the data; it may be missing if the caller gives one.
`context`, `references`, `ratings` and `comments` are optional; an aspect's comments are one text or a list. `source`
may be missing in all groups, where texts have no source.

Exports of annotation tools are read, too; see `data.files.layouts`.

A table, in any of the formats of `data.files.formats`, has the column text, optionally group, source, candidate,
context, reference, task, and one column per rated aspect (`4`, `4;5;4` for several raters, blank for unrated) or one
per aspect and rater; or one row per rating; see `data.files.columns` and `data.files.rated_rows`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from debate_judge.data.errors import ErrorHandler, FirstErrors, InputError, redirect_errors
from debate_judge.data.files.columns import ColumnNames, ReadingNotes
from debate_judge.data.files.formats import RecordFile, detect_format, short_name
from debate_judge.data.files.layouts import describe_layout, first_records, long_rows
from debate_judge.data.files.rated_rows import LocatedGroup, RowReader, holds_group
from debate_judge.data.files.records import Record
from debate_judge.data.files.task_file import find_task
from debate_judge.data.schema import Corpus, Origin, Task

NO_RENAMES = ColumnNames()
NO_ROWS_REMEDY = "write a row or record for each text; a file with a header alone has none"

_MAX_RECORDS = 500_000
_MAX_BYTES = 256 * 1024 * 1024
_VALUE_BYTES = 64
"""Estimated bytes of a value that is not a text."""


def load(path: str | Path | RecordFile, task: Task | str | None = None, columns: ColumnNames = NO_RENAMES) -> Corpus:
    """Read all groups of one task from a file or data set; one log line lists what is not read.

    Args:
        path: A file in one of the formats, `hf:NAME@SPLIT`, or a file whose format was detected.
        task: As in `iter_groups`.
        columns: The user's names of columns.

    Raises:
        InputError: As in `iter_groups`; also if the file has several tasks and none was chosen, a group id occurs
            twice, or a source text is in two groups (it could then be both trained on and tested on).
    """
    first: LocatedGroup | None = None
    ids: dict[str, Record] = {}
    sources: dict[str, LocatedGroup] = {}
    errors = FirstErrors()
    file = path if isinstance(path, RecordFile) else detect_format(path)
    for entry in iter_groups(file, task, columns, gather=True, on_bad_cell=errors):
        first = first or entry
        if entry.task.name != first.task.name:
            raise entry.record.error(
                "the file has groups of several tasks",
                "task",
                found=f"{first.task.name} in {first.record.location}, and {entry.task.name}",
                remedy=f"choose one with --task, e.g. --task {entry.task.name}",
            )
        with redirect_errors(errors):
            _refuse_duplicates(entry, ids, sources)
    if errors.first:
        raise errors.first[0].with_others(errors.first[1:])
    if first is None:
        raise _no_groups_error(file, task, columns)
    groups = tuple(entry.group for entry in sources.values())
    task = first.task
    if columns.renamed:
        task = replace(task, columns={**task.columns, **columns.renamed})
    return Corpus(task, groups, Origin(short_name(file.name), file.name))


def limit_memory(records: Iterable[Record], name: str) -> Iterator[Record]:
    """Pass the records on, up to a limit of memory.

    Raises:
        InputError: They exceed the limit.
    """
    size = 0
    for number, record in enumerate(records, start=1):
        size += _estimated_bytes(record.values)
        if number > _MAX_RECORDS or size > _MAX_BYTES:
            raise InputError(
                "too much data to hold in memory",
                file=name,
                expected=f"rated data of at most {_MAX_RECORDS:,} records and {_MAX_BYTES >> 20} MB of text",
                found=f"more {'records' if number > _MAX_RECORDS else 'text'}, up to {record.location}",
                remedy="take a sample of the sources; texts without ratings are scored in files of any length",
            )
        yield record


def _estimated_bytes(value: object) -> int:
    """Estimated size of a JSON value in memory, in bytes."""
    size, pending = 0, [value]
    while pending:
        item = pending.pop()
        size += len(item) if isinstance(item, str) else _VALUE_BYTES
        pending += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return size


def iter_groups(
    path: str | Path | RecordFile,
    task: Task | str | None = None,
    columns: ColumnNames = NO_RENAMES,
    *,
    refuse_other_tasks: bool = False,
    gather: bool = False,
    keep_columns: bool = False,
    notes: ReadingNotes | None = None,
    on_error: ErrorHandler | None = None,
    on_bad_cell: ErrorHandler | None = None,
) -> Iterator[LocatedGroup]:
    """Stream the groups of a file or data set; ratings are optional.

    Nothing is checked across groups; `load` does that.

    Args:
        path: As in `load`.
        task: A task, the name of a built-in one or the path of a task file. Groups that name no task are taken to be
            of this one; groups that name another are left out.
        columns: The user's names of columns.
        refuse_other_tasks: Raise for a group of another task instead of leaving it out.
        gather: Collect the rows of a group from the whole table, which is then held in memory. Otherwise the rows of a
            group have to be adjacent, and only one group is held in memory.
        keep_columns: Keep all columns of a candidate in its `row`.
        notes: Collects notes for the user; by default they are logged as a warning in one line.
        on_error: Called with the error of a record that holds a group, which is then skipped; by default it is raised.
        on_bad_cell: Called with the error of a rating or row, which is then left out; by default it is raised.

    Raises:
        InputError: With file, line (or row) and field.
    """
    file = path if isinstance(path, RecordFile) else detect_format(path)
    chosen = find_task(task) if isinstance(task, str) else task
    if chosen is not None and not columns.defaults:
        columns = replace(columns, defaults=chosen.columns)
    all_notes = notes or ReadingNotes(file.name)
    task_of = _task_finder(file.folder, chosen, refuse_other_tasks)
    reader = RowReader(columns, task_of, all_notes, on_bad_cell, keep_columns=keep_columns)
    groups = _groups(file, reader, all_notes, gather, on_error)
    return groups if notes is not None else _logging(groups, all_notes, gather)


def _groups(
    file: RecordFile, reader: RowReader, notes: ReadingNotes, gather: bool, on_error: ErrorHandler | None
) -> Iterator[LocatedGroup]:
    if not file.is_default:
        notes.add(file.format)
    head, others = first_records(file.records())
    if not head:
        return
    if layout := describe_layout(head):
        notes.add(layout)
    records = long_rows(chain(head, others), reader.columns)
    records = limit_memory(records, file.name) if gather else records
    if holds_group(head[0], reader.columns):
        yield from reader.groups_of_records(records, on_error)
    else:
        yield from reader.groups_of_rows(records, gather=gather)


def _logging(groups: Iterable[LocatedGroup], notes: ReadingNotes, gather: bool) -> Iterator[LocatedGroup]:
    """The groups; the notes are logged after them, and of a stream also after the first.

    Streamed groups cost LM calls while later ones are read, so a misspelled column is reported at once.
    """
    for number, group in enumerate(groups):
        yield group
        if number == 0 and not gather:
            notes.log()
    notes.log()


def _task_finder(folder: Path, chosen: Task | None, refuse_others: bool) -> Callable[[Record, str], Task | None]:
    """A function (record, field that names its task) -> the task, or None if another task was chosen."""
    # Each task file is read once.
    task_named = cache(lambda name: find_task(name, folder))

    def find(record: Record, field: str) -> Task | None:
        name = record.optional_text(field).strip()
        if chosen is not None and name in ("", chosen.name):
            return chosen
        if not name:
            raise record.error(
                "the group has no task",
                field,
                remedy=f"choose one with --task; where none fits, debate check {shlex.quote(record.file)} --write-task "
                "FILE.toml drafts one for you to correct. In a file of several tasks, add the field task",
            )
        with replace(record, remedy="rename the column, if it means something else").located(field):
            task = task_named(name)
        if chosen is None or task.name == chosen.name:
            return chosen or task
        if refuse_others:
            raise record.error(
                f"the group is of another task than {chosen.name}",
                field,
                found=name,
                remedy="remove it from the file, or skip such groups: --config task=NAME with the judge's task",
            )
        return None

    return find


def _refuse_duplicates(entry: LocatedGroup, ids: dict[str, Record], sources: dict[str, LocatedGroup]) -> None:
    group, source = entry.group, entry.group.unique_key(entry.task.aspects)
    if group.id in ids:
        raise entry.record.error(
            f"a second group with the id {group.id!r}",
            "group",
            found=f"the id of {ids[group.id].location}",
            remedy="put all candidates of a source on one line, or rename one of the groups",
        )
    if source in sources:
        other = sources[source]
        raise entry.record.error(
            f"groups {other.group.id!r} and {group.id!r} have the same source text",
            "source",
            found=f"the source of {other.record.location}: {group.source!r}",
            remedy="put all candidates of this source into one group, so that none is both trained on and tested on",
        )
    ids[group.id], sources[source] = entry.record, entry


def _no_groups_error(file: RecordFile, task: Task | str | None, columns: ColumnNames) -> InputError:
    all_groups = iter_groups(file, columns=columns, notes=ReadingNotes(file.name)) if task is not None else ()
    names = sorted({entry.task.name for entry in all_groups})
    if not names:
        return InputError("no groups in the file", file=file.name, remedy=NO_ROWS_REMEDY)
    return InputError(
        f"no group of task {task.name if isinstance(task, Task) else task!r} in the file",
        file=file.name,
        field="task",
        found="groups of " + ", ".join(names),
        remedy=f"choose one of them with --task, e.g. --task {names[0]}",
    )
