"""Rated groups from users' files.

A file is read as records (`formats`, `tools`), each record as rows of a long table by a mapping (`columns`, `rows`),
and the rows of a source as a group. A line of JSON with a group, broken up here for reading:

    {"group": "a1", "task": "summarization", "source": "The council voted …", "references": ["…"],
     "candidates": [{"id": "lead-3", "text": "The council …", "ratings": {"coherence": [4, 5, 4], "fluency": 5},
                     "comments": {"coherence": ["the last sentence stands alone"]}}]}

`task` is a built-in task or the path of a task file relative to the data; it may be missing if the caller gives one.
Rows with the same `group`, or without this column with equal source and context, are a group; without a source every
text is one. Rows with the same `candidate`, or, in tables with one row per rating or rater, with equal texts, are about
one candidate.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.errors import ErrorHandler, FirstErrors, InputError, redirect_errors
from debate_judge.data.files.columns import (
    ROLES,
    ColumnNames,
    Keys,
    ReadingNotes,
    require_columns,
    text_columns,
)
from debate_judge.data.files.formats import RecordFile, detect_format, short_name
from debate_judge.data.files.names import missing_columns_error, refuse_other_meaning
from debate_judge.data.files.records import Record, first_records
from debate_judge.data.files.rows import Rating, Row, RowReader, flat, inner_records
from debate_judge.data.files.task_file import find_task
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup, Task

NO_RENAMES = ColumnNames()
NO_ROWS_REMEDY = "write a row or record for each text; a file with a header alone has none"

_MAX_RECORDS = 500_000
_MAX_BYTES = 256 * 1024 * 1024
_MAX_REPEATED_SHARE, _MIN_REPEATED = 0.2, 5
"""Share and number of repeated texts above which each row is suspected to be one rater's."""


class OtherTaskError(InputError):
    """A record is of another task than the one that was chosen."""


class LocatedGroup(NamedTuple):
    """A group with its task and its first record, for errors."""

    task: Task
    group: RatedGroup
    record: Record


def load(path: str | Path | RecordFile, task: Task | str | None = None, columns: ColumnNames = NO_RENAMES) -> Corpus:
    """Read all groups of one task from a file or data set; one log line lists what is not read.

    Args:
        path: A file in one of the formats, `hf:NAME@SPLIT`, or a file whose format was detected.
        task: As in `iter_groups`.
        columns: The mapping; it goes before that of the task.

    Raises:
        InputError: As in `iter_groups`; also if the file has several tasks and none was chosen.
    """
    file = path if isinstance(path, RecordFile) else detect_format(path)
    errors, groups, locations = FirstErrors(), dict[str, RatedGroup](), dict[str, str]()
    first: LocatedGroup | None = None
    for entry in iter_groups(file, task, columns, gather=True, on_bad_cell=errors):
        first = first or entry
        if entry.task.name != first.task.name:
            raise entry.record.error(
                "the file has groups of several tasks",
                "task",
                found=f"{first.task.name} in {first.record.location}, and {entry.task.name}",
                remedy=f"choose one with --task, e.g. --task {entry.task.name}",
            )
        name = entry.group.id
        if name in groups:
            problem, remedy = f"a second group with the id {name!r}", "rename one of the groups"
            errors(entry.record.error(problem, "group", found=f"the id of {locations[name]}", remedy=remedy))
        groups[name], locations[name] = entry.group, entry.record.location
    if errors.first:
        raise errors.first[0].with_others(errors.first[1:])
    if first is None and task is not None:
        what = f"no group of task {task.name if isinstance(task, Task) else task!r} in the file"
        raise InputError(what, file=file.name, remedy=f"{NO_ROWS_REMEDY}; --task names the task of the groups")
    if first is None:
        raise InputError("no groups in the file", file=file.name, remedy=NO_ROWS_REMEDY)
    used = first.task
    if columns.named:
        used = replace(used, columns=columns.over(_of_task(used)).to_table())
    return Corpus(used, tuple(groups.values()), Origin(short_name(file.name), file.name))


def _of_task(task: Task | None) -> ColumnNames:
    return ColumnNames.of(task.columns if task else {}, Record({}, ""), optional=True)


def limit_memory(records: Iterable[Record], name: str) -> Iterator[Record]:
    """Pass the records on, up to a limit of memory.

    Raises:
        InputError: They exceed the limit.
    """
    size = 0
    for number, record in enumerate(records, start=1):
        # A value of a list or an object takes more than its text.
        size += sum(len(v) if isinstance(v, str) else 64 + 8 * len(str(v)) for v in record.values.values())
        if number > _MAX_RECORDS or size > _MAX_BYTES:
            raise InputError(
                "too much data to hold in memory",
                file=name,
                expected=f"rated data of at most {_MAX_RECORDS:,} records and {_MAX_BYTES >> 20} MB of text",
                found=f"more {'records' if number > _MAX_RECORDS else 'text'}, up to {record.location}",
                remedy="take a sample of the sources; texts without ratings are scored in files of any length",
            )
        yield record


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
        columns: The mapping; it goes before that of the task.
        refuse_other_tasks: Raise for a group of another task instead of leaving it out.
        gather: Collect the rows of a group from the whole table, which is then held in memory. Otherwise the rows of a
            group have to be adjacent, and only one group is held in memory.
        keep_columns: Keep all columns of a candidate in its `row`.
        notes: Collects notes for the user; by default they are logged as a warning in one line.
        on_error: Called with the error of a record, which is then skipped; by default it is raised. A record of
            another task, and what leaves later records uncertain, is always raised.
        on_bad_cell: Called with the error of a rating or row, which is then left out; by default it is raised.

    Raises:
        InputError: With file, line (or row) and field.
    """
    file = path if isinstance(path, RecordFile) else detect_format(path)
    chosen = find_task(task) if isinstance(task, str) else task
    names, all_notes = columns.over(_of_task(chosen)), notes or ReadingNotes(file.name)
    task_of = _task_finder(file.folder, chosen, refuse_other_tasks)
    bad_lines: set[int] = set()

    def skip(error: InputError) -> None:
        """Pass on the error of a record, which is then left out; one of JSON with its whole group."""
        if on_error is None or isinstance(error, OtherTaskError):
            raise error
        bad_lines.add(error.line or 0)
        on_error(error)

    reader = RowReader(names, task_of, all_notes, on_bad_cell)
    rows = _rows(file, names, reader, chosen, gather, skip if on_error else None)

    def groups() -> Iterator[LocatedGroup]:
        logged = notes is not None
        for builder in _builders(rows, names, keep_columns, gather, on_bad_cell or (skip if on_error else None)):
            if builder.first.record.line not in bad_lines:
                with redirect_errors(on_bad_cell):
                    yield builder.group()
            # Groups that are streamed cost LM calls while later ones are read, so a misspelt column is told at once.
            if not logged and not gather:
                all_notes.log()
                logged = True
        if notes is None:
            all_notes.log()

    return groups()


def _rows(
    file: RecordFile,
    names: ColumnNames,
    reader: RowReader,
    task: Task | None,
    gather: bool,
    on_error: ErrorHandler | None,
) -> Iterator[Row]:
    """The rows of a file, after its first records were looked at."""
    if not file.is_default:
        reader.notes.add(file.format)
    records = inner_records(file.opened(names, reader.notes, on_error), names.records, on_error)
    head, later = first_records(limit_memory(records, file.name) if gather else records)
    if head and (head_task := task or reader.task_of(flat(head[0]))) is not None:
        _check_columns(head, names, head_task, reader.notes, gather)
    for record in chain(head, later):
        with redirect_errors(on_error):
            yield from reader.rows(record)


def _builders(
    rows: Iterator[Row], names: ColumnNames, keep: bool, gather: bool, on_bad_row: ErrorHandler | None
) -> Iterator[_GroupBuilder]:
    """The groups of all rows, or of adjacent ones; where a row cannot be read, those before it come first."""
    raters: dict[str, int] = {}
    builders: dict[object, _GroupBuilder] = {}
    plain: list[Row] = []
    failed: InputError | None = None
    while True:
        try:
            row = next(rows, None)
        except InputError as error:
            failed, row = error, None
        if row is None or (not gather and row.key not in builders):
            if failed is None and gather and names.repeated == "error":
                _refuse_repeated_texts(plain)
            plain.clear()
            for key in list(builders):  # A group takes less memory than the rows that it is made of.
                yield builders.pop(key)
        if row is None:
            break
        if gather and row.is_alone:
            plain.append(row)
        builder = builders.get(row.key)
        if builder is None:
            builder = builders[row.key] = _GroupBuilder(row, names, raters, keep)
        with redirect_errors(on_bad_row):
            builder.add(row)
    if failed is not None:
        raise failed


def _check_columns(head: Sequence[Record], names: ColumnNames, task: Task, notes: ReadingNotes, gather: bool) -> None:
    """Check that the mapping finds texts; note what it leaves out; refuse names that mean something else."""
    rows = [flat(record, indexed=names.indexed) for record in head]
    keys = list(dict.fromkeys(key for row in rows for key in map(str, row.values)))
    require_columns(names, rows[0], keys, task)
    texts = text_columns(Keys(keys), task, names)
    if not texts:
        raise missing_columns_error(rows, keys)
    used = {column for text in texts for column in text.used}
    unread = [key for key in keys if key not in used]
    refuse_other_meaning(rows, texts[0], unread, names, gather=gather)
    known = [*ROLES[:8], *(aspect.name for aspect in task.aspects)]
    unused = [name for name in known if name not in {*texts[0].roles, *texts[0].ratings}]
    notes.add_unread((key for key in unread if key not in names.keep), unused)
    if texts[0].is_pair:
        notes.add(f"pairs, the columns {texts[0].column('response_a')} and {texts[0].column('response_b')}")


def _refuse_repeated_texts(rows: Sequence[Row]) -> None:
    """Ask what distinguishes the rows, if many repeat a text and nothing says which rater or system it is of.

    Raises:
        InputError: More than `_MAX_REPEATED_SHARE` of the rows do.
    """

    def text_of(row: Row) -> tuple[object, str]:
        return row.key if row.source or row.group or row.columns.is_pair else "", " ".join(row.text.split())

    # Hashes, because the rows of a large table nearly fill the memory by now.
    repeated = len(rows) - len({hash(text_of(row)) for row in rows})
    if repeated <= max(_MIN_REPEATED, _MAX_REPEATED_SHARE * len(rows)):
        return
    first, texts = rows[0], [text_of(row) for row in rows]
    values = {key: [str(row.record.values.get(key)) for row in rows] for key in first.record.values}
    apart = [
        key
        for key, of_key in values.items()
        if key not in first.columns.used
        and len({*of_key}) <= len(rows) / 2
        and len({*zip(texts, of_key, strict=True)}) == len(rows)
    ]
    what, name = "a pair" if first.columns.is_pair else "a text", apart[0] if apart else "COLUMN"
    raise first.record.error(
        f"{repeated} of {len(rows)} rows repeat {what}: does each row hold the rating of one rater?",
        first.columns.column("winner") or first.columns.column("text") or "text",
        found=first.record.field_names,
        remedy=f"if so, name the column of raters, --columns rater={name}, or, without one, --columns repeated=raters; "
        f"if several systems wrote the same text, name theirs: --columns candidate={name}",
    )


class _Entry(NamedTuple):
    """A rating of a candidate."""

    number: int
    """Of its rater."""
    rating: Rating
    row: Row


class _CandidateRows(NamedTuple):
    """A candidate while its rows are collected."""

    row: Row
    id: str
    ratings: dict[str, list[_Entry]]
    comments: dict[str, list[tuple[int, str]]]
    """Aspect -> (number of the rater, comment)."""


class _GroupBuilder:
    """Collects the rows of a group; each row is checked as it comes, so that the error is that of the first bad one."""

    # Of a table with a text a source there are as many as rows.
    __slots__ = ("_candidates", "_keep", "_names", "_raters", "_references", "first")

    def __init__(self, first: Row, names: ColumnNames, raters: dict[str, int], keep: bool) -> None:
        self.first, self._names, self._raters, self._keep = first, names, raters, keep
        self._candidates: dict[object, _CandidateRows] = {}
        self._references: dict[str, None] = {}

    def add(self, row: Row) -> None:
        """Add a row.

        Raises:
            InputError: It contradicts another row of the group.
        """
        for role in ("source", "context") if row.group else ():
            if getattr(row, role).split() != getattr(self.first, role).split():
                raise row.record.error(
                    f"the rows of group {row.group!r} differ in {role}",
                    row.columns.column(role) or role,
                    expected=f"the same {role} as in {self.first.record.location}",
                    found=repr(getattr(row, role)),
                    remedy="correct it, or name no group: --columns group=none",
                )
        self._references.update(dict.fromkeys(row.references))
        candidate = self._candidate(row)
        for rating in row.ratings:
            entries = candidate.ratings.setdefault(rating.aspect.name, [])
            if self._names.repeated == "error" and rating.rater:
                self._refuse_second(rating, row, entries)
            entries.append(_Entry(self._number(rating.rater), rating, row))
        for name, rater, text in row.comments:
            candidate.comments.setdefault(name, []).append((self._number(rater), text))

    def _number(self, rater: str) -> int:
        return self._raters.setdefault(rater, len(self._raters)) if rater else len(self._raters)

    def _candidate(self, row: Row) -> _CandidateRows:
        key: object = row.candidate or (row.text if row.several else row.number)
        known, group = self._candidates.get(key), row.group or self.first.number
        if known is None:
            id_ = row.candidate or row.number
            while any(id_ == other.id for other in self._candidates.values()):
                id_ += "."
            known = self._candidates[key] = _CandidateRows(row, id_, {}, {})
        elif not row.several:
            location = known.row.record.full_name("text").rpartition(".")[0] or known.row.record.location
            raise row.record.error(
                f"group {group!r} has two candidates with the id {key!r}: also in {location}",
                row.columns.column("candidate") or "candidate",
                remedy="name the system that wrote each; where a row is one rater's, name the column: --columns "
                "rater=COLUMN",
            )
        elif known.row.text != row.text:
            raise row.record.error(
                f"the rows of candidate {key!r} of group {group!r} differ in their text",
                row.columns.column("text") or "text",
                expected=f"the same text as in {known.row.record.location}",
                found=row.text,
                remedy="name another column as candidate, or none: --columns candidate=none tells texts apart by "
                "their words",
            )
        return known

    @staticmethod
    def _refuse_second(rating: Rating, row: Row, entries: Iterable[_Entry]) -> None:
        for before in entries:
            if before.rating.rater == rating.rater and before.row.record is not row.record:
                raise row.record.error(
                    f"rater {rating.rater!r} has rated {rating.aspect.name} of this candidate twice, also in "
                    f"{before.row.record.location}",
                    row.columns.column("rater") or "rater",
                    remedy="say what becomes of them, --columns repeated=mean, first, last, sum, or separate where the "
                    "same text was rated as two; if two systems wrote it, name theirs: --columns candidate=COLUMN",
                )

    def group(self) -> LocatedGroup:
        """The group; raises `InputError` if a sum of ratings is outside the scale."""
        first = self.first
        candidates = tuple(
            Candidate(
                c.id,
                c.row.text,
                {name: self._values(sorted(of, key=itemgetter(0))) for name, of in c.ratings.items()},
                {name: tuple(text for _, text in sorted(of, key=itemgetter(0))) for name, of in c.comments.items()},
                dict(c.row.record.values) if self._keep else {},
            )
            for c in self._candidates.values()
        )
        id_ = first.group or first.number
        group = RatedGroup(id_, first.source, candidates, first.context, tuple(self._references))
        return LocatedGroup(first.task, group, first.record)

    def _values(self, entries: Sequence[_Entry]) -> tuple[float, ...]:
        """The ratings of an aspect in the order of the raters, each rater's as `repeated` says."""
        how = self._names.repeated
        if how in ("error", "raters", "separate"):
            return tuple(entry.rating.value for entry in entries)
        by_rater: dict[str, list[_Entry]] = defaultdict(list)
        for entry in entries:
            by_rater[entry.rating.rater].append(entry)
        values: list[float] = []
        for of in by_rater.values():
            # Of a rater's record with several ratings all count.
            kept = {"first": of[0].row.record, "last": of[-1].row.record}.get(how)
            numbers = [e.rating.value for e in of if kept is None or e.row.record is kept]
            values += numbers if kept else [math.fsum(numbers) / len(of)] if how == "mean" else [self._sum(of)]
        return tuple(values)

    def _sum(self, entries: Sequence[_Entry]) -> float:
        _, rating, row = entries[-1]
        total, scale = math.fsum(entry.rating.value for entry in entries), rating.aspect.scale
        if not scale.contains(total):
            raise row.record.error(
                f"the sum of {len(entries)} ratings is outside the scale of {rating.aspect.name}",
                rating.field,
                expected=f"a sum from {scale}",
                found=f"{total:g}",
                remedy="give the scale of the sums in the task file",
            )
        aspect = self._names.aspects.get(rating.aspect.name)
        return scale.low + scale.high - total if aspect and aspect.lower_is_better else total


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
            task: Task = task_named(name)
        if chosen is None or task.name == chosen.name:
            return chosen or task
        if refuse_others:
            problem = f"the group is of another task than {chosen.name}"
            remedy = "remove it from the file, or skip such groups: --task NAME with the judge's task"
            raise record.with_location(OtherTaskError(problem, found=name, remedy=remedy), field)
        return None

    return find
