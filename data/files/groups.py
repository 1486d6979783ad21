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
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from debate_judge.data.files.names import missing_columns_error, refuse_other_meaning, siblings
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
    errors, found = FirstErrors(), dict[str, LocatedGroup]()
    for entry in iter_groups(file, task, columns, gather=True, on_bad_cell=errors):
        first = next(iter(found.values()), entry)
        if entry.task.name != first.task.name:
            raise entry.record.error(
                "the file has groups of several tasks",
                "task",
                found=f"{first.task.name} in {first.record.location}, and {entry.task.name}",
                remedy=f"choose one with --task, e.g. --task {entry.task.name}",
            )
        if before := found.get(entry.group.id):
            problem = f"a second group with the id {entry.group.id!r}"
            location, remedy = f"the id of {before.record.location}", "rename one of the groups"
            errors(entry.record.error(problem, "group", found=location, remedy=remedy))
        found.setdefault(entry.group.id, entry)
    if errors.first:
        raise errors.first[0].with_others(errors.first[1:])
    if not found:
        raise _no_groups_error(file, task, columns)
    groups = tuple(entry.group for entry in found.values())
    used = next(iter(found.values())).task
    if columns.named:
        used = replace(used, columns=columns.over(_of_task(used)).to_table())
    return Corpus(used, groups, Origin(short_name(file.name), file.name))


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
    names = columns.over(_of_task(chosen))
    all_notes = notes or ReadingNotes(file.name)
    task_of = _task_finder(file.folder, chosen, refuse_other_tasks)
    reader = RowReader(names, task_of, all_notes, on_bad_cell)
    groups = _groups(file, names, reader, chosen, all_notes, gather, keep_columns, on_error, on_bad_cell)
    return groups if notes is not None else _logging(groups, all_notes, gather)


def _groups(
    file: RecordFile,
    names: ColumnNames,
    reader: RowReader,
    task: Task | None,
    notes: ReadingNotes,
    gather: bool,
    keep: bool,
    on_error: ErrorHandler | None,
    on_bad_cell: ErrorHandler | None,
) -> Iterator[LocatedGroup]:
    if not file.is_default:
        notes.add(file.format)
    records = inner_records(file.opened(names, notes, on_error), names.records, on_error)
    head, later = first_records(limit_memory(records, file.name) if gather else records)
    if not head:
        return
    _check_columns(head, names, task or reader.task_of(head[0]), notes, gather)
    bad_lines: set[int] = set()

    def skip(error: InputError) -> None:
        """Pass on the error of a record, which is then left out; one of JSON with its whole group."""
        if on_error is None or isinstance(error, OtherTaskError):
            raise error
        bad_lines.add(error.line or 0)
        on_error(error)

    rows = (row for record in chain(head, later) for row in _skipping(reader.rows(record), skip if on_error else None))
    if gather:
        by_key: dict[object, list[Row]] = defaultdict(list)
        for row in rows:
            by_key[row.key].append(row)
        if names.repeated == "error":
            _refuse_repeated_texts([row for members in by_key.values() for row in members])
        rows = (row for members in by_key.values() for row in members)
    for builder in _builders(rows, names, keep, on_bad_cell or (skip if on_error else None)):
        if builder.first is not None and builder.first.record.line not in bad_lines:
            with redirect_errors(on_bad_cell):
                yield builder.group()


def _builders(
    rows: Iterable[Row], names: ColumnNames, keep: bool, on_bad_row: ErrorHandler | None
) -> Iterator[_GroupBuilder]:
    """The groups of adjacent rows; where a row cannot be read, those before it come first."""
    raters: dict[str, int] = {}
    builder, key = _GroupBuilder(names, raters, keep), None
    failed: InputError | None = None
    stream = iter(rows)
    while failed is None:
        try:
            row = next(stream, None)
        except InputError as error:
            failed, row = error, None
        if builder.first is not None and (row is None or row.key != key):
            yield builder
            builder = _GroupBuilder(names, raters, keep)
        if row is None:
            break
        key = row.key
        with redirect_errors(on_bad_row):
            builder.add(row)
    if failed is not None:
        raise failed


def _skipping(rows: Iterator[Row], on_error: ErrorHandler | None) -> Iterator[Row]:
    with redirect_errors(on_error):
        yield from rows


def _check_columns(
    head: Sequence[Record], names: ColumnNames, task: Task | None, notes: ReadingNotes, gather: bool
) -> None:
    """Check that the mapping finds texts; note what it leaves out; refuse names that mean something else."""
    rows = [flat(record, indexed=names.indexed) for record in head]
    keys = list(dict.fromkeys(key for row in rows for key in map(str, row.values)))
    found = Keys(keys)
    if task is None:
        return
    require_columns(names, rows[0], keys, task)
    texts = text_columns(found, task, names)
    if not texts:
        raise missing_columns_error(rows, keys)
    unread = [key for key in keys if key not in {column for text in texts for column in text.used}]
    refuse_other_meaning(rows, texts[0], unread, names, gather=gather)
    known = [*ROLES[:8], *(aspect.name for aspect in task.aspects)]
    unused = [name for name in known if name not in {*texts[0].roles, *texts[0].ratings}]
    notes.add_unread((key for key in unread if key not in names.keep), unused)
    if texts[0].is_pair:
        notes.add(
            "pairs, the columns {} and {}".format(*(str(texts[0].column(r)) for r in ("response_a", "response_b")))
        )
    if others := siblings(texts[0].column("text"), unread) if len(texts) == 1 else []:
        notes.add(f"{', '.join(map(repr, others))} may be texts of their own; debate check drafts a pattern for them")


def _refuse_repeated_texts(rows: Sequence[Row]) -> None:
    """Ask what distinguishes the rows, if many repeat a text and nothing says which rater or system it is of.

    Raises:
        InputError: More than `_MAX_REPEATED_SHARE` of the rows do.
    """
    plain = [row for row in rows if _is_alone(row)]
    texts = [
        (row.key if row.source or row.group or row.columns.is_pair else "", " ".join(row.text.split())) for row in plain
    ]
    repeated = len(plain) - len(set(texts))
    if repeated <= max(_MIN_REPEATED, _MAX_REPEATED_SHARE * len(plain)):
        return
    first = min(plain, key=lambda row: row.record.line)
    what = "a pair" if first.columns.is_pair else "a text"
    values = {key: [str(row.record.values.get(key)) for row in plain] for key in first.record.values}
    unused = [key for key in values if key not in first.columns.used]
    apart = [key for key in unused if len({*zip(texts, values[key], strict=True)}) == len(plain)]
    name = next((key for key in apart if len({*values[key]}) <= len(plain) / 2), "COLUMN")
    raise first.record.error(
        f"{repeated} of {len(plain)} rows repeat {what}: does each row hold the rating of one rater?",
        first.columns.column("winner") or first.columns.column("text") or "text",
        found=first.record.field_names,
        remedy=f"if so, name the column of raters, --columns rater={name}, or, without one, --columns repeated=raters; "
        f"if several systems wrote the same text, name theirs: --columns candidate={name}",
    )


def _is_alone(row: Row) -> bool:
    """Whether nothing says which rater or system a row is of."""
    if row.columns.is_pair:
        return not row.columns.is_long and row.columns.column("rater") is None
    return not row.several and not row.candidate and not row.record.full_names


def _logging(groups: Iterable[LocatedGroup], notes: ReadingNotes, gather: bool) -> Iterator[LocatedGroup]:
    """The groups; the notes are logged after them, and of a stream also after the first.

    Streamed groups cost LM calls while later ones are read, so a misspelled column is reported at once.
    """
    for number, group in enumerate(groups):
        yield group
        if number == 0 and not gather:
            notes.log()
    notes.log()


class _Entry(NamedTuple):
    """A rating of a candidate."""

    number: int
    """Of its rater."""
    rating: Rating
    row: Row


@dataclass
class _CandidateRows:
    """A candidate while its rows are collected."""

    row: Row
    id: str
    ratings: dict[str, list[_Entry]] = field(default_factory=lambda: defaultdict(list))
    comments: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    """Aspect -> (number of the rater, comment)."""


class _GroupBuilder:
    """Collects the rows of a group; each row is checked as it comes, so that the error is that of the first bad one."""

    def __init__(self, names: ColumnNames, raters: dict[str, int], keep: bool) -> None:
        self.first: Row | None = None
        self._names, self._raters, self._keep = names, raters, keep
        self._candidates: dict[object, _CandidateRows] = {}
        self._references: dict[str, None] = {}

    def add(self, row: Row) -> None:
        self.first = self.first or row
        for role in ("source", "context") if row.group else ():
            before, now = getattr(self.first, role), getattr(row, role)
            if " ".join(now.split()) != " ".join(before.split()):
                raise row.record.error(
                    f"the rows of group {row.group!r} differ in {role}",
                    row.columns.column(role) or role,
                    expected=f"the same {role} as in {self.first.record.location}",
                    found=repr(now),
                    remedy="correct it, or name no group: --columns group=none",
                )
        self._references |= dict.fromkeys(row.references)
        candidate = self._candidate(row)
        for rating in row.ratings:
            if not math.isnan(rating.value):
                self._add_rating(candidate.ratings[rating.aspect.name], rating, row)
        for name, rater, text in row.comments:
            candidate.comments[name].append((self._number(rater), text))

    def _number(self, rater: str) -> int:
        return self._raters.setdefault(rater, len(self._raters)) if rater else len(self._raters)

    def _candidate(self, row: Row) -> _CandidateRows:
        key: object = row.candidate or (row.text if row.several else row.number)
        known = self._candidates.get(key)
        if known is None:
            id_ = row.candidate or str(row.number)
            while any(id_ == other.id for other in self._candidates.values()):
                id_ += "."
            known = self._candidates[key] = _CandidateRows(row, id_)
        elif not row.several:
            location = known.row.record.full_name("text").rpartition(".")[0] or known.row.record.location
            raise row.record.error(
                f"group {row.group or row.number!r} has two candidates with the id {key!r}: also in {location}",
                row.columns.column("candidate") or "candidate",
                remedy="name the system that wrote each; where a row is one rater's, name the column: --columns "
                "rater=COLUMN",
            )
        elif known.row.text != row.text:
            raise row.record.error(
                f"the rows of candidate {key!r} of group {row.group or known.row.number!r} differ in their text",
                row.columns.column("text") or "text",
                expected=f"the same text as in {known.row.record.location}",
                found=row.text,
                remedy="name another column as candidate, or none: --columns candidate=none tells texts apart by "
                "their words",
            )
        return known

    def _add_rating(self, entries: list[_Entry], rating: Rating, row: Row) -> None:
        same = (
            e for e in entries if rating.rater and e.rating.rater == rating.rater and e.row.record is not row.record
        )
        if self._names.repeated == "error" and (before := next(same, None)):
            raise row.record.error(
                f"rater {rating.rater!r} has rated {rating.aspect.name} of this candidate twice, also in "
                f"{before.row.record.location}",
                row.columns.column("rater") or "rater",
                remedy="say what becomes of them, --columns repeated=mean, first, last, sum, or separate where the "
                "same text was rated as two; if two systems wrote it, name theirs: --columns candidate=COLUMN",
            )
        entries.append(_Entry(self._number(rating.rater), rating, row))

    def group(self) -> LocatedGroup:
        first = self.first
        if first is None:
            raise ValueError("a group without rows")
        candidates = tuple(
            Candidate(
                c.id,
                c.row.text,
                {
                    name: self._values(sorted(entries, key=itemgetter(0)))
                    for name, entries in c.ratings.items()
                    if entries
                },
                {name: tuple(text for _, text in sorted(of, key=itemgetter(0))) for name, of in c.comments.items()},
                dict(c.row.record.values) if self._keep else {},
            )
            for c in self._candidates.values()
        )
        id_ = first.group or str(first.number)
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
        if how in ("first", "last"):
            at = 0 if how == "first" else -1
            return tuple(e.rating.value for of in by_rater.values() for e in of if e.row.record is of[at].row.record)
        return tuple(self._combined(of_rater) for of_rater in by_rater.values())

    def _combined(self, entries: Sequence[_Entry]) -> float:
        total = math.fsum(entry.rating.value for entry in entries)
        if self._names.repeated == "mean":
            return total / len(entries)
        _, rating, row = entries[-1]
        scale = rating.aspect.scale
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
            task = task_named(name)
        if chosen is None or task.name == chosen.name:
            return chosen or task
        if refuse_others:
            problem = f"the group is of another task than {chosen.name}"
            remedy = "remove it from the file, or skip such groups: --task NAME with the judge's task"
            raise record.with_location(OtherTaskError(problem, found=name, remedy=remedy), field)
        return None

    return find


def _no_groups_error(file: RecordFile, task: Task | str | None, columns: ColumnNames) -> InputError:
    """The error for a file without groups of the task; it names the tasks that the file has."""
    names: list[str] = []
    with suppress(InputError):
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
