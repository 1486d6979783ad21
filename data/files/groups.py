"""Rated groups from users' files.

A record becomes rows of a long table: a source, one of its texts, and the ratings and comments that the record has of
it. A row of a table may hold several texts (`columns`), a record a list of records, and a pair is two texts with a
verdict: the better one has 1, the other 0, and in a tie both have 0.5; a `strength` between 0 and 1 scales the distance
from 0.5. A line of JSON with a group, broken up here for reading:

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
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from debate_judge.data.errors import ErrorHandler, InputError, did_you_mean, redirect_errors
from debate_judge.data.files.columns import (
    PREFERENCE,
    ROLES,
    TEXT_WORDS,
    AspectColumns,
    Cell,
    ColumnNames,
    Keys,
    ReadingNotes,
    TextColumns,
    cached_keys,
    code_of,
    missing_columns_error,
    normalized_name,
    refuse_other_meaning,
    require_columns,
    text_columns,
)
from debate_judge.data.files.formats import RecordFile, detect_format, short_name
from debate_judge.data.files.records import (
    Record,
    first_records,
    is_blank,
    is_missing,
    joined_messages,
    listed_texts,
    looks_like_a_number,
    messages_in,
    rating_of,
)
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task, fingerprint, is_visible
from debate_judge.data.tasks import find_task

NO_RENAMES = ColumnNames()
NO_ROWS_REMEDY = "write a row or record for each text; a file with a header alone has none"
TIES = frozenset(("tie", "tied", "draw", "equal", "same", "both", "neither", "similar", "none"))
MARKS = (frozenset(("a", "1", "left", "first")), frozenset(("b", "2", "right", "second")))
"""What a verdict or a column may call the first and the second text."""

_AFTER_MARK = re.compile(r"[ _](?:(?:is|was|are)[ _])?(?:better|best|wins|won|preferred|chosen)$")
_BEFORE_MARK = re.compile(rf"^(?:model|option|assistant|{'|'.join(TEXT_WORDS)})[ _]?")
_CHOSEN = {"tick", "x", "✓", "1", "true", "yes", "on", "selected"}
_UNMAPPED = AspectColumns()
_ANY = Scale(-1e300, 1e300)
_MAX_ERRORS = 20
"""Number of errors of a file that are told at once."""
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
    groups, locations, errors = dict[str, RatedGroup](), dict[str, str](), list[InputError]()
    first: LocatedGroup | None = None

    def keep(error: InputError) -> None:
        # They do not arrive in the order of their lines, because a reader looks ahead.
        errors.append(error)
        errors.sort(key=lambda error: error.line or 0)
        del errors[_MAX_ERRORS:]

    for entry in iter_groups(file, task, columns, gather=True, on_error=keep):
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
            keep(entry.record.error(problem, "group", found=f"the id of {locations[name]}", remedy=remedy))
        groups[name], locations[name] = entry.group, entry.record.location
    if errors:
        raise errors[0].with_others(errors[1:])
    if first is None:
        of_task = f" of task {task.name if isinstance(task, Task) else task!r}" if task else ""
        problem = f"no group{of_task or 's'} in the file"
        remedy = NO_ROWS_REMEDY + ("; --task names the task of the groups" if task else "")
        raise InputError(problem, file=file.name, remedy=remedy)
    used = first.task
    if columns.named:
        used = replace(used, columns=columns.over(ColumnNames.of_task(used)).to_table())
    return Corpus(used, tuple(groups.values()), Origin(short_name(file.name), file.name))


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
        on_error: Called with the error of a record, which is then skipped, one of JSON with its whole group; by default
            it is raised. A record of another task, and what leaves later records uncertain, is always raised.

    Raises:
        InputError: With file, line (or row) and field.
    """
    file = path if isinstance(path, RecordFile) else detect_format(path)
    chosen = find_task(task) if isinstance(task, str) else task
    names, all_notes = columns.over(ColumnNames.of_task(chosen)), notes or ReadingNotes(file.name)
    bad_lines: set[int] = set()

    def skip(error: InputError) -> None:
        if on_error is None or isinstance(error, OtherTaskError):
            raise error
        bad_lines.add(error.line or 0)
        on_error(error)

    handler = skip if on_error else None
    reader = _RowReader(names, all_notes, file.folder, chosen, refuse_other_tasks)

    def groups() -> Iterator[LocatedGroup]:
        logged = notes is not None
        for rows in _grouped(_rows(file, names, reader, chosen, gather, handler), names, gather):
            with redirect_errors(handler):
                group = _group(rows, names, keep_columns, handler)
                if rows[0].record.line not in bad_lines:
                    yield group
            # Groups that are streamed cost LM calls while later ones are read, so a misspelt column is told at once.
            if not logged and not gather:
                all_notes.log()
                logged = True
        if notes is None:
            all_notes.log()

    return groups()


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


# --- nested records ---


def flat(record: Record, *, indexed: bool = False) -> Record:
    """The record with the fields of nested objects as `a.b`; with `indexed`, those in lists as `a.0.b`."""
    if not any(isinstance(value, dict) for value in record.values.values()) and not indexed:
        return record
    values: dict[str, object] = {}
    pending: list[tuple[str, object]] = list(record.values.items())[::-1]
    while pending:
        name, value = pending.pop()
        if indexed and isinstance(value, list) and value and isinstance(value[0], dict) and not messages_in(value):
            value = {str(number): item for number, item in enumerate(value)}
        if isinstance(value, dict) and value:
            pending += [(f"{name}.{key}", inner) for key, inner in list(value.items())[::-1]]
        else:
            values[name] = value
    names = dict(record.full_names)
    for name in values:
        top, dot, rest = name.partition(".")
        if dot and top in names and name not in names:
            names[name] = f"{names[top]}.{rest}"
    return replace(record, values=values, full_names=names)


def inner_records(records: Iterable[Record], path: str = "", on_error: ErrorHandler | None = None) -> Iterator[Record]:
    """The records at a path such as `documents[].answers[]`, each with the fields of those around it; `name.*` are the
    values of an object, with their name in the field `key`. Records of groups are those of their `candidates`."""
    steps = [re.sub(r"^\.|\[\]$|\.\*$", "", step) for step in re.findall(r".+?(?:\[\]|\.\*)", path)]
    for record in records:
        with redirect_errors(on_error):
            if "+" in path:
                yield from _side_by_side(record, [name.removesuffix("[]") for name in path.split("+")])
                continue
            level = [record]
            for step in steps or ["candidates"] * ("candidates" in record.values):
                level = [child for each in level for child in _children(each, step)]
            yield from level


def _side_by_side(record: Record, names: Sequence[str]) -> Iterator[Record]:
    """The n-th values of several lists as a record, with the other fields; an object has fields of its own."""
    lists = [record.items(name) for name in names]
    if len({*map(len, lists)}) != 1:
        lengths = ", ".join(f"{len(values)} in {name}" for name, values in zip(names, lists, strict=True))
        raise record.error("lists of different lengths", names[0], expected="a value of each for a text", found=lengths)
    shared = {key: value for key, value in record.values.items() if key not in names}
    for n, values in enumerate(zip(*lists, strict=True)):
        own = [value if isinstance(value, dict) else {name: value} for name, value in zip(names, values, strict=True)]
        full_names = {name: f"{name}[{n}]" for name in names}
        yield replace(record, values=shared | {k: v for each in own for k, v in each.items()}, full_names=full_names)


def _children(record: Record, name: str) -> Iterator[Record]:
    """The records in a field of a record, a list or an object of them, with the fields of the record."""
    *path, last = [name] if name in record.values else name.split(".")
    outer = record
    for step in path:
        outer = outer.child(step)
    if isinstance(outer.value(last), dict):
        keyed = outer.child(last)
        children = [({"key": key}, keyed.child(key)) for key in keyed.values]
    else:
        children = [({}, child) for child in outer.children(last)]
    # A candidate's id is one, beside that of its group.
    renamed = {"id": "candidate"} if name == "candidates" else {}
    shared = {key: value for key, value in record.values.items() if key != name.partition(".")[0]}
    for own, child in children:
        values = {renamed.get(field, field): value for field, value in child.values.items()}
        # The full path of a field, for errors.
        paths = {
            renamed.get(field, field): child.full_name(field) for field in (*child.values, *(["text"] * bool(renamed)))
        }
        yield replace(record, values=shared | own | values, full_names={**record.full_names, **paths})


# --- rows ---


class _Rating(NamedTuple):
    """A rating of one rater."""

    aspect: Aspect
    value: float
    rater: str
    """Empty for one whose name is not known."""
    order: int
    """Number of the rater, in the order in which raters are met."""
    field: str


class _Row(NamedTuple):
    """A text with what a record has about it."""

    record: Record
    number: str
    """Number of the record, from 1, and of its text; the id of a group or candidate without one."""
    task: Task
    group: str
    """Its id; empty without one."""
    source: str
    context: str
    references: tuple[str, ...]
    columns: TextColumns
    key: object = None
    """What the rows of a group have in common."""
    candidate: str = ""
    """The id of the text; empty without one."""
    text: str = ""
    ratings: Sequence[_Rating] = ()
    comments: Sequence[tuple[str, int, str]] = ()
    """Aspect, number of the rater, and comment."""
    several: bool = True
    """Whether a text may have several rows."""

    @property
    def is_alone(self) -> bool:
        """Whether nothing says which rater or system the row is of."""
        if self.columns.is_pair:
            return not self.columns.is_long and self.columns.column("rater") is None
        return not self.several and not self.candidate and not self.record.full_names


class _RowReader:
    """Reads the records of one file as rows, which have the chosen task or name theirs."""

    def __init__(
        self, names: ColumnNames, notes: ReadingNotes, folder: Path, chosen: Task | None, refuse_others: bool
    ) -> None:
        self.notes, self._names, self._chosen, self._refuse_others = notes, names, chosen, refuse_others
        self._task_named = cache(lambda name: find_task(name, folder))
        """Reads each task file once."""
        self._columns: dict[tuple[tuple[str, ...], str], list[TextColumns]] = {}
        self._number = 0
        self._raters: dict[str, int] = {}
        self._pairs: dict[str, tuple[str, tuple[str, str]]] = {}
        """Source and texts of a pair -> id of its group, and the texts in the order in which they came first."""
        self._pairs_of_group: Counter[str] = Counter()
        self._seen: Counter[object] = Counter()

    def task_of(self, record: Record) -> Task | None:
        """The task of a record without objects inside; None for one of another task than was chosen."""
        role, chosen = self._names.roles.get("task", "task"), self._chosen
        field = cached_keys(tuple(map(str, record.values))).named(role) or ("" if role == "none" else "task")
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
            task: Task = self._task_named(name)
        if chosen is None or task.name == chosen.name:
            return chosen or task
        if self._refuse_others:
            problem = f"the group is of another task than {chosen.name}"
            remedy = "remove it from the file, or skip such groups: --task NAME with the judge's task"
            raise record.with_location(OtherTaskError(problem, found=name, remedy=remedy), field)
        return None

    def rows(self, record: Record) -> Iterator[_Row]:
        """The rows of a record; none of one that the mapping leaves out."""
        record = flat(record, indexed=self._names.indexed)
        if self._names.decimal == "comma":
            record = replace(record, decimal_commas=True)
        if column := self._names.leaves_out(record):
            self.notes.add(f"{{}} records are left out by keep.{column}")
            return
        self._number += 1
        task = self.task_of(record)
        if task is None:
            return
        keys = tuple(map(str, record.values))
        found = self._columns.get((keys, task.name))
        if found is None:
            if len(self._columns) > 1000:  # Records may each have fields of their own.
                self._columns.clear()
            found = self._columns[keys, task.name] = text_columns(cached_keys(keys), task, self._names)
        if not found:
            first = self._names.roles.get("response_a", "response_a")
            is_half_pair = cached_keys(keys).named(first) is not None and "text" not in self._names.roles
            replace(record, values={}).value("response_b" if is_half_pair else "text")
        for n, columns in enumerate(found, start=1):
            yield from self._rows(record, str(self._number) + f".{n}" * (n > 1), task, columns)

    def _rows(self, record: Record, number: str, task: Task, columns: TextColumns) -> Iterator[_Row]:
        given, group_column = columns.column("source"), columns.column("group")
        source, context = (
            "\n\n".join(filter(None, (_optional(record, c) for c in columns.roles.get(role, ()))))
            for role in ("source", "context")
        )
        roles = ("response_a", "response_b") if columns.is_pair else ("text",)
        texts = [self._messages(record, columns.roles[role]) for role in roles]
        if not all(texts):
            self.notes.add("{} records without a text are left out")
            return
        before = [joined_messages(messages[:-1]) for messages in texts]
        parts = [messages[-1][1] for messages in texts]
        if len({*before}) > 1 and not given:
            parts, before = [joined_messages(messages) for messages in texts], [""]
        source = source or before[0]
        if given and not source:
            remedy = "repeat it in every row; in a spreadsheet, unmerge its cells and fill them down"
            replace(record, remedy=record.remedy or remedy).text(given)
        group = record.identifier(group_column).strip() if group_column else ""
        row = _Row(record, number, task, group, source, context, tuple(_references(record, columns)), columns)
        yield from self._pair(row, (parts[0], parts[1])) if columns.is_pair else [self._text(row, parts[0])]

    def _messages(self, record: Record, columns: Sequence[str]) -> list[tuple[str, str]]:
        """The messages of a conversation, or a text as its only one; none for an empty text that is left out."""
        messages = []
        for column in columns:
            value = record.values.get(column.removesuffix("[]"))
            if self._names.empty == "skip" and (value is None or value == [] or not is_visible(str(value))):
                return []
            messages += _messages_in(record, column)
        return messages if len(columns) == 1 else [("", "\n\n".join(text for _, text in messages))]

    def _text(self, row: _Row, text: str) -> _Row:
        record, columns, repeated = row.record, row.columns, self._names.repeated
        rater = _identifier(record, columns.column("rater"))
        id_column = columns.column("candidate")
        id_ = record.identifier(id_column).strip() if id_column else columns.system
        several = bool(columns.is_long or columns.column("rater") or repeated != "error")
        ratings = list(self._ratings(row, rater))
        comments = self._comments(row, rater, [rating.aspect.name for rating in ratings])
        key: object = row.number
        if row.group:
            key = ("group", row.task.name, row.group)
        elif row.source:
            key = (row.task.name, " ".join(row.source.split()), row.context)
        elif several:
            key = (row.task.name, id_, text)
        if repeated == "separate":
            # The n-th row of a rater about a text is about the n-th of several equal texts.
            aspects = tuple(rating.aspect.name for rating in ratings) if columns.is_long else ()
            self._seen[key, id_, text, rater, aspects] += 1
            if (n := self._seen[key, id_, text, rater, aspects]) > 1:
                id_ = f"{id_ or row.number}.{n}"
                key = key if row.source or row.group else (key, n)
        return row._replace(key=key, candidate=id_, text=text, ratings=ratings, comments=comments, several=several)

    def _pair(self, row: _Row, texts: tuple[str, str]) -> Iterator[_Row]:
        """The rows of a pair, one per text; a pair in the other order is the same pair."""
        origin = [row.source, row.context] if row.context else [row.source]
        key = fingerprint([*origin, *sorted(texts)])
        columns = (str(row.columns.column("response_a")), str(row.columns.column("response_b")))
        is_decided = "winner" not in row.columns.roles and not row.columns.ratings
        if key not in self._pairs:
            group = row.group or fingerprint([*origin, *texts])
            self._pairs_of_group[group] += 1
            number = self._pairs_of_group[group]
            # The order of the texts must not reveal which one was chosen.
            flipped = is_decided and fingerprint(list(texts)) > fingerprint(list(texts[::-1]))
            self._pairs[key] = (group if number == 1 else f"{group}.{number}"), texts[::-1] if flipped else texts
        group, first_order = self._pairs[key]
        rater, of_first = _identifier(row.record, row.columns.column("rater")), []
        if not is_decided:
            of_first = list(self._ratings(row, rater))
        elif normalized_name(columns[0]) == "chosen" and any(a.name == PREFERENCE for a in row.task.aspects):
            of_first = [self._rating(row.task.aspect(PREFERENCE), 1.0, rater, columns[0])]
        of_second = [rating._replace(value=1 - rating.value) for rating in of_first]
        comments = self._comments(row, "", [rating.aspect.name for rating in of_first])
        swapped = texts != first_order
        row = row._replace(group=group, key=("pair", key))
        first = row._replace(candidate=columns[swapped], text=texts[0], ratings=of_first, comments=comments)
        second = row._replace(candidate=columns[1 - swapped], text=texts[1], ratings=of_second)
        yield from (second, first) if swapped else (first, second)

    # --- ratings ---

    def _ratings(self, row: _Row, rater: str) -> Iterator[_Rating]:
        """The ratings of a row; of a pair, those of the first text."""
        record, columns, task = row.record, row.columns, row.task
        cells: Mapping[str, Sequence[Cell]] = columns.ratings
        if columns.is_long:
            column = str((columns.is_pair and columns.column("winner")) or columns.column("rating"))
            named = self._aspect(record, str(columns.column("aspect")), column, task)
            cells = {named.name: [Cell(column)]} if named else {}
        strength, of_strength = 1.0, columns.column("strength") if columns.is_pair else None
        if of_strength is not None and not is_missing(record.values.get(of_strength)):
            strength = record.number(of_strength)
            if not 0 <= strength <= 1:
                found, remedy = f"{strength:g}", "divide all strengths by the greatest one"
                raise record.error("not a strength", of_strength, expected="from 0 to 1", found=found, remedy=remedy)
        for name, of_aspect in cells.items():
            aspect, mapped = task.aspect(name), self._names.aspects.get(name, _UNMAPPED)
            for cell in of_aspect:
                values = self._values(record, cell, mapped, aspect)
                for n, (field, value) in enumerate(values, start=1):
                    of = cell.rater or rater
                    if columns.is_pair:
                        number: float | None = 0.5 + (self._verdict(row, value, field) - 0.5) * strength
                        of = of or str(n) * (len(values) > 1)
                    else:
                        number = self._number_of(record, value, aspect, mapped, field)
                    if number is not None:
                        yield self._rating(aspect, number, of, field)

    def _rating(self, aspect: Aspect, value: float, rater: str, field: str) -> _Rating:
        return _Rating(aspect, value, rater, self._order(rater), field)

    def _order(self, rater: str) -> int:
        return self._raters.setdefault(rater, len(self._raters)) if rater else len(self._raters)

    @staticmethod
    def _values(record: Record, cell: Cell, mapped: AspectColumns, aspect: Aspect) -> list[tuple[str, object]]:
        value = record.values.get(cell.column)
        if cell.value:
            # One-hot: the column that is ticked names the value.
            named: object = float(cell.value) if looks_like_a_number(cell.value) else cell.value
            return [(cell.column, named)] if code_of(value) in _CHOSEN else []
        if mapped.ratings and isinstance(value, str) and code_of(value) in mapped.ratings:
            return [(cell.column, value)]
        return record.values_in(cell.column, aspect.scale)

    def _number_of(
        self, record: Record, value: object, aspect: Aspect, mapped: AspectColumns, field: str
    ) -> float | None:
        """A value on the scale of its aspect; None for a code that means that there is none."""
        if mapped.ratings and (code := code_of(value)) in mapped.ratings:
            value = mapped.ratings[code]
        elif isinstance(value, str) and mapped.labels:
            raise record.error(
                f"no label of {aspect.name}",
                field,
                expected=", ".join(mapped.labels),
                found=value,
                remedy=f"add it to labels, or to missing, in [aspects.{aspect.name}]",
            )
        if value is None:
            return None
        if isinstance(value, str) and looks_like_a_number(value.strip()):
            value = float(value)
        is_sum = self._names.repeated == "sum"
        rating = rating_of(value, replace(aspect, scale=_ANY) if is_sum else aspect, record, field)
        return rating if is_sum else _turned(rating, aspect, mapped)

    def _verdict(self, row: _Row, value: object, field: str) -> float:
        """The rating of the first text of a pair: 1, 0.5 or 0, or a share."""
        record, code = row.record, code_of(value)
        columns = [str(row.columns.column(role)) for role in ("response_a", "response_b")]
        first = self._names.verdicts.get(code)
        if first is None:
            # As codes, because a model called 7 is a number in one cell and a text in another.
            models = [model and code_of(model) for model in map(record.values.get, ("model_a", "model_b"))]
            first = clear_verdict(code, columns, models)
        if first is None:
            is_code = looks_like_a_number(code)
            raise record.error(
                f"{code} may mean any text, or a tie" if is_code else "not a verdict on the pair",
                field,
                expected=f"a, b, tie, or the name of a column: {' or '.join(columns)}",
                found=value,
                remedy="say what each value means, e.g. --columns codes=0:a+1:b+2:tie",
            )
        return first

    def _aspect(self, record: Record, column: str, rating: str, task: Task) -> Aspect | None:
        """The aspect that a row of one rating names; None for one that the task does not have."""
        if is_missing(record.values[column]) and is_missing(record.values[rating]):
            return None
        name = record.text(column).strip()
        names = {normalized_name(aspect.name): aspect for aspect in reversed(task.aspects)}
        for aspect in task.aspects:
            mapped = self._names.aspects.get(aspect.name, _UNMAPPED).column
            names |= dict.fromkeys(map(normalized_name, [mapped] if isinstance(mapped, str) else mapped), aspect)
        if normalized_name(name) not in names:
            near = did_you_mean(name, [aspect.name for aspect in task.aspects], "did you mean ratings of {}?")
            self.notes.add(f"not read: 'ratings of {name}'" + (f" ({near})" if near else ""))
        return names.get(normalized_name(name))

    def _comments(self, row: _Row, rater: str, rated: Sequence[str]) -> list[tuple[str, int, str]]:
        """Aspect, number of the rater and text of each comment."""
        found, of_columns, aspects = [], row.columns.comments, row.task.aspects
        for name, columns in of_columns.items():
            if name:
                of = [name]
            elif row.columns.is_long and not row.columns.is_pair:
                aspect = self._aspect(row.record, str(row.columns.column("aspect")), columns[0], row.task)
                of = [aspect.name] if aspect else []
            else:
                # A comment on no aspect is on the only one that there is, or on the first verdict.
                of = [aspects[0].name] if len(aspects) == 1 else [*rated[:1]] if row.columns.is_pair else []
            of = [aspect for aspect in of if name or aspect not in of_columns]
            for column in columns if of else ():
                is_list = isinstance(row.record.values.get(column), list)
                texts = row.record.texts(column, blank=True) if is_list else [row.record.optional_text(column)]
                found += [(aspect, self._order(rater), text) for aspect in of for text in texts if text.strip()]
        return found


def clear_verdict(value: object, columns: Sequence[str], models: Sequence[object] = ()) -> float | None:
    """The rating of the first text by a verdict that is no code: 1, 0.5 or 0; None for other values."""
    word = normalized_name(str(value))
    if word in TIES or re.match(r"tie\b|tie_|both_|equally", word):
        return 0.5
    mark = _BEFORE_MARK.sub("", _AFTER_MARK.sub("", word))
    for marks, column, model, rating in zip(MARKS, columns, models or (None, None), (1.0, 0.0), strict=True):
        named = {normalized_name(column), *([normalized_name(str(model))] if model else [])}
        if word in named or (mark in marks and not word.isdigit()):
            return rating
    return None


def _messages_in(record: Record, column: str, *, required: bool = True) -> list[tuple[str, str]]:
    """Role and text of each message in a column; a text, or those in the list of a column `name[]`, as the only one."""
    name, value = column.removesuffix("[]"), record.values.get(column.removesuffix("[]"))
    if isinstance(value, str) and value.isascii() and name == column and is_visible(value):
        return [("", value)]
    if messages := messages_in(value):
        return messages
    if name != column and value is not None:
        texts = listed_texts(value)
        if texts is None:
            raise record.error("not a list of texts", name, expected='["…"]', found=value)
        record = replace(record, values={name: "\n\n".join(texts)})
    if required:
        remedy = record.remedy or "fill it in, or leave such records out: --columns empty=skip"
        return [("", replace(record, remedy=remedy).text(name))]
    return [("", text)] if (text := record.optional_text(name)) else []


def _optional(record: Record, column: str) -> str:
    return joined_messages(_messages_in(record, column, required=False))


def _identifier(record: Record, column: str | None) -> str:
    """The id in a column; empty without one, or where it is blank."""
    return "" if column is None or is_blank(record.values.get(column)) else record.identifier(column).strip()


def _references(record: Record, columns: TextColumns) -> Iterator[str]:
    found = [column for role in ("reference", "references") for column in columns.roles.get(role, ())]
    # Lists come first, whatever the column.
    for column in sorted(found, key=lambda column: not isinstance(record.values.get(column), list)):
        if isinstance(record.values.get(column), list):
            yield from record.texts(column)
        elif text := _optional(record, column):
            yield text


def _rows(
    file: RecordFile,
    names: ColumnNames,
    reader: _RowReader,
    task: Task | None,
    gather: bool,
    on_error: ErrorHandler | None,
) -> Iterator[_Row]:
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


# --- groups ---


def _grouped(rows: Iterator[_Row], names: ColumnNames, gather: bool) -> Iterator[list[_Row]]:
    """The rows of each group, of all rows or of adjacent ones; where a row cannot be read, those before it come
    first."""
    groups: dict[object, list[_Row]] = {}
    failed: InputError | None = None
    while True:
        try:
            row = next(rows, None)
        except InputError as error:
            failed, row = error, None
        if row is None or (not gather and row.key not in groups):
            if gather and failed is None and names.repeated == "error":
                _refuse_repeated_texts([row for of_group in groups.values() for row in of_group if row.is_alone])
            for key in list(groups):  # A group takes less memory than the rows that it is made of.
                yield groups.pop(key)
        if row is None:
            break
        groups.setdefault(row.key, []).append(row)
    if failed is not None:
        raise failed


def _refuse_repeated_texts(rows: Sequence[_Row]) -> None:
    """Ask what distinguishes the rows, if many repeat a text and nothing says which rater or system it is of.

    Raises:
        InputError: More than `_MAX_REPEATED_SHARE` of the rows do.
    """

    def text_of(row: _Row) -> tuple[object, str]:
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


def _group(rows: Sequence[_Row], names: ColumnNames, keep: bool, on_error: ErrorHandler | None) -> LocatedGroup:
    """The group of these rows; one that contradicts an earlier one is passed to `on_error` and left out."""
    first, of_candidates, references = rows[0], dict[object, list[_Row]](), dict[str, None]()
    rated: dict[object, Record] = {}
    """Candidate, aspect and rater -> the record of the rating."""
    for row in rows:
        with redirect_errors(on_error):
            key = row.candidate or (row.text if row.several else row.number)
            _refuse_contradiction(row, first, of_candidates.get(key, []), key)
            of_raters = [(key, rating.aspect.name, rating.rater) for rating in row.ratings if rating.rater]
            if names.repeated == "error":
                _refuse_second_rating(row, [(rated[of], *of[1:]) for of in of_raters if of in rated])
            rated |= dict.fromkeys(of_raters, row.record)
            of_candidates.setdefault(key, []).append(row)
            references.update(dict.fromkeys(row.references))
    candidates: dict[str, Candidate] = {}
    for of_candidate in of_candidates.values():
        row = of_candidate[0]
        id_ = row.candidate or row.number
        while id_ in candidates:
            id_ += "."
        ratings: dict[str, list[tuple[_Rating, _Row]]] = defaultdict(list)
        comments: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for each in of_candidate:
            for rating in each.ratings:
                ratings[rating.aspect.name].append((rating, each))
            for aspect, order, text in each.comments:
                comments[aspect].append((order, text))
        candidates[id_] = Candidate(
            id_,
            row.text,
            {name: _values(sorted(of, key=lambda entry: entry[0].order), names) for name, of in ratings.items()},
            {name: tuple(text for _, text in sorted(of, key=lambda c: c[0])) for name, of in comments.items()},
            dict(row.record.values) if keep else {},
        )
    group = RatedGroup(
        first.group or first.number, first.source, tuple(candidates.values()), first.context, tuple(references)
    )
    return LocatedGroup(first.task, group, first.record)


def _refuse_contradiction(row: _Row, first: _Row, known: Sequence[_Row], key: object) -> None:
    """Refuse a row that differs from the first of its group, or from those known of its candidate."""
    record, columns, group = row.record, row.columns, row.group or first.number
    for role in ("source", "context") if row.group else ():
        if getattr(row, role).split() != getattr(first, role).split():
            raise record.error(
                f"the rows of group {group!r} differ in {role}",
                columns.column(role) or role,
                expected=f"the same {role} as in {first.record.location}",
                found=repr(getattr(row, role)),
                remedy="correct it, or name no group: --columns group=none",
            )
    if known and (not row.several or known[0].text != row.text):
        before = known[0].record
        raise record.error(
            f"group {group!r} has two candidates with the id {key!r}: also in "
            + (before.full_name("text").rpartition(".")[0] or before.location),
            columns.column("candidate") or "candidate",
            found=row.text,
            remedy="name the system that wrote each, --columns candidate=COLUMN, or none to tell texts apart by their "
            "words; where a row is one rater's, name the column: --columns rater=COLUMN",
        )


def _refuse_second_rating(row: _Row, before: Iterable[tuple[Record, str, str]]) -> None:
    """Refuse a row whose rater has rated the candidate in another record: record, aspect and rater of ratings."""
    for record, aspect, rater in before:
        if record is not row.record:
            raise row.record.error(
                f"rater {rater!r} has rated {aspect} of this candidate twice, also in {record.location}",
                row.columns.column("rater") or "rater",
                remedy="say what becomes of them, --columns repeated=mean, first, last, sum, or separate where the "
                "same text was rated as two; if two systems wrote it, name theirs: --columns candidate=COLUMN",
            )


def _values(entries: Sequence[tuple[_Rating, _Row]], names: ColumnNames) -> tuple[float, ...]:
    """The ratings of an aspect in the order of the raters, each rater's as `repeated` says.

    Raises:
        InputError: A sum of ratings is outside the scale.
    """
    how = names.repeated
    if how in ("error", "raters", "separate"):
        return tuple(rating.value for rating, _ in entries)
    by_rater: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rating, row in entries:
        by_rater[rating.rater][id(row.record)].append(rating.value)
    values: list[float] = []
    for records in by_rater.values():
        # Of a rater's record with several ratings all count.
        of_records = list(records.values())
        numbers = list(chain(*of_records))
        merged = {"first": of_records[0], "last": of_records[-1], "mean": [fmean(numbers)], "sum": [math.fsum(numbers)]}
        values += merged[how]
    if how == "sum":
        last, row = entries[-1]
        mapped = names.aspects.get(last.aspect.name, _UNMAPPED)
        values = [_turned(rating_of(sum_, last.aspect, row.record, last.field), last.aspect, mapped) for sum_ in values]
    return tuple(values)


def _turned(rating: float, aspect: Aspect, mapped: AspectColumns) -> float:
    """The rating, upside down where less is better."""
    return aspect.scale.low + aspect.scale.high - rating if mapped.lower_is_better else rating
