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
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.errors import ErrorHandler, FirstErrors, InputError, did_you_mean, redirect_errors
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
    comments_in,
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

TIES = frozenset(("tie", "tied", "draw", "equal", "same", "both", "neither", "similar", "none"))
MARKS = (frozenset(("a", "1", "left", "first")), frozenset(("b", "2", "right", "second")))
"""What a verdict or a column may call the first and the second text."""
_AFTER_MARK = re.compile(r"[ _](?:(?:is|was|are)[ _])?(?:better|best|wins|won|preferred|chosen)$")
_BEFORE_MARK = re.compile(rf"^(?:model|option|assistant|{'|'.join(TEXT_WORDS)})[ _]?")
_CHOSEN = {"tick", "x", "✓", "1", "true", "yes", "on", "selected"}
_UNMAPPED = AspectColumns()
_ANY = Scale(-1e300, 1e300)


class Rating(NamedTuple):
    """A rating of one rater."""

    aspect: Aspect
    value: float
    rater: str
    """Empty for one whose name is not known."""
    field: str


class Row(NamedTuple):
    """A text with what a record has about it."""

    record: Record
    number: str
    """Number of the record, from 1, and of its text; the id of a group or candidate without one."""
    task: Task
    group: str
    """Its id; empty without one."""
    key: object
    """What the rows of a group have in common."""
    source: str
    context: str
    references: tuple[str, ...]
    candidate: str
    """The id of the text; empty without one."""
    text: str
    ratings: Sequence[Rating]
    comments: Sequence[tuple[str, str, str]]
    """Aspect, rater and comment."""
    columns: TextColumns
    several: bool
    """Whether a text may have several rows."""

    @property
    def is_alone(self) -> bool:
        """Whether nothing says which rater or system the row is of."""
        if self.columns.is_pair:
            return not self.columns.is_long and self.columns.column("rater") is None
        return not self.several and not self.candidate and not self.record.full_names


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
    steps = [step.removeprefix(".") for step in re.findall(r".+?(?:\[\]|\.\*)", path)]
    for record in records:
        level = [record]
        with redirect_errors(on_error):
            if "+" in path:
                yield from _side_by_side(record, [name.removesuffix("[]") for name in path.split("+")])
                continue
            for step in [*steps, *(["candidates"] if "candidates" in record.values and not steps else [])]:
                level = [c for each in level for c in _children(each, step.removesuffix("[]").removesuffix(".*"))]
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
        children = [(key, keyed.child(key)) for key in keyed.values]
    else:
        children = [("", child) for child in outer.children(last)]
    # A candidate's id is one, beside that of its group.
    renamed = {"id": "candidate"} if name == "candidates" else {}
    shared = {key: value for key, value in record.values.items() if key != name.partition(".")[0]}
    for key, child in children:
        own: dict[str, object] = {"key": key} if key else {}
        own |= {renamed.get(field, field): value for field, value in child.values.items()}
        # The full path of a field, for errors.
        named = [*child.values, *(["text"] if renamed else [])]
        paths = {renamed.get(field, field): child.full_name(field) for field in named}
        yield replace(record, values=shared | own, full_names={**record.full_names, **paths})


class RowReader:
    """Reads the records of one file as rows.

    Args:
        names: The mapping.
        task_of: (record, field that names its task) -> task, or None for a record of another task than was chosen.
        notes: Collects notes for the user.
        on_bad_cell: Called with the error of a rating or row, which is then left out; None to raise it.
    """

    def __init__(
        self,
        names: ColumnNames,
        task_of: Callable[[Record, str], Task | None],
        notes: ReadingNotes,
        on_bad_cell: ErrorHandler | None = None,
    ) -> None:
        self.notes, self._names, self._task_of, self._bad_cell = notes, names, task_of, on_bad_cell
        self._columns: dict[tuple[tuple[str, ...], str], list[TextColumns]] = {}
        self._number = 0
        self._pairs: dict[str, tuple[str, tuple[str, str]]] = {}
        """Source and texts of a pair -> id of its group, and the texts in the order in which they came first."""
        self._pairs_of_group: Counter[str] = Counter()
        self._seen: Counter[object] = Counter()

    def task_of(self, record: Record) -> Task | None:
        """The task of a record without objects inside; None for one of another task than was chosen."""
        name = self._names.roles.get("task", "task")
        column = cached_keys(tuple(map(str, record.values))).named(name)
        return self._task_of(record, column or ("" if name == "none" else "task"))

    def rows(self, record: Record) -> Iterator[Row]:
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
            replace(record, values={}).value("text")
        for n, columns in enumerate(found, start=1):
            number = str(self._number) if n == 1 else f"{self._number}.{n}"
            with redirect_errors(self._bad_cell):
                yield from self._rows(record, number, task, columns)

    def _rows(self, record: Record, number: str, task: Task, columns: TextColumns) -> Iterator[Row]:
        given, group_column = columns.column("source"), columns.column("group")
        source, context = (
            "\n\n".join(filter(None, (_optional(record, c) for c in columns.roles.get(role, ()))))
            for role in ("source", "context")
        )
        texts = []
        for name in ("response_a", "response_b") if columns.is_pair else ("text",):
            messages = self._messages(record, columns.roles[name])
            if messages is None:
                self.notes.add("{} records without a text are left out")
                return
            texts.append(messages)
        before = [joined_messages(messages[:-1]) for messages in texts]
        parts = [messages[-1][1] for messages in texts]
        if len({*before}) > 1 and not given:
            parts, before = [joined_messages(messages) for messages in texts], [""]
        source = source or before[0]
        if given and not source:
            remedy = "repeat it in every row; in a spreadsheet, unmerge its cells and fill them down"
            replace(record, remedy=record.remedy or remedy).text(given)
        group = record.identifier(group_column).strip() if group_column else ""
        references = tuple(_references(record, columns))
        row = Row(record, number, task, group, None, source, context, references, "", "", (), (), columns, False)
        yield from self._pair(row, (parts[0], parts[1])) if columns.is_pair else [self._text(row, parts[0])]

    def _messages(self, record: Record, columns: Sequence[str]) -> list[tuple[str, str]] | None:
        """The messages of a conversation, or a text as its only one; None for an empty text that is left out."""
        messages = []
        for column in columns:
            value = record.values.get(column)
            if isinstance(value, str) and value.isascii() and is_visible(value):
                messages.append(("", value))
                continue
            if self._names.empty == "skip" and (value is None or value == [] or not is_visible(str(value))):
                return None
            remedy = record.remedy or "fill it in, or leave such records out: --columns empty=skip"
            messages += messages_in(value) or [("", _listed(replace(record, remedy=remedy), column, blank=False))]
        return messages if len(columns) == 1 else [("", "\n\n".join(text for _, text in messages))]

    def _text(self, row: Row, text: str) -> Row:
        record, columns, names = row.record, row.columns, self._names
        rater = _identifier(record, columns.column("rater"))
        id_column = columns.column("candidate")
        id_ = record.identifier(id_column).strip() if id_column else columns.system
        several = bool(columns.is_long or columns.column("rater") or names.repeated != "error")
        ratings = list(self._ratings(row, rater))
        comments = list(self._comments(row, rater, [rating.aspect.name for rating in ratings]))
        key: object = row.number
        if row.group:
            key = ("group", row.task.name, row.group)
        elif row.source:
            key = (row.task.name, " ".join(row.source.split()), row.context)
        elif several:
            key = (row.task.name, id_, text)
        if names.repeated == "separate":
            # The n-th row of a rater about a text is about the n-th of several equal texts.
            aspects = tuple(rating.aspect.name for rating in ratings) if columns.is_long else ()
            self._seen[key, id_, text, rater, aspects] += 1
            if (n := self._seen[key, id_, text, rater, aspects]) > 1:
                id_ = f"{id_ or row.number}.{n}"
                key = key if row.source or row.group else (key, n)
        return row._replace(key=key, candidate=id_, text=text, ratings=ratings, comments=comments, several=several)

    # --- ratings ---

    def _ratings(self, row: Row, rater: str) -> Iterator[Rating]:
        record, columns, task = row.record, row.columns, row.task
        cells: Mapping[str, Sequence[Cell]] = columns.ratings
        if columns.is_long:
            rating = str(columns.column("rating"))
            named = self._aspect(record, str(columns.column("aspect")), rating, task)
            cells = {named.name: [Cell(rating)]} if named else {}
        for name, of_aspect in cells.items():
            aspect, mapped = task.aspect(name), self._names.aspects.get(name, _UNMAPPED)
            for cell in of_aspect:
                for field, value in self._values(record, cell, mapped, aspect):
                    with redirect_errors(self._bad_cell):
                        number = self._rating(record, value, aspect, mapped, field)
                        if number is not None:
                            yield Rating(aspect, number, cell.rater or rater, field)

    @staticmethod
    def _values(record: Record, cell: Cell, mapped: AspectColumns, aspect: Aspect) -> list[tuple[str, object]]:
        value = record.values.get(cell.column)
        if cell.value:
            named: object = float(cell.value) if looks_like_a_number(cell.value) else cell.value
            return [(cell.column, named)] if code_of(value) in _CHOSEN else []
        if mapped.ratings and isinstance(value, str) and code_of(value) in mapped.ratings:
            return [(cell.column, value)]
        return record.values_in(cell.column, aspect.scale)

    def _rating(self, record: Record, value: object, aspect: Aspect, mapped: AspectColumns, field: str) -> float | None:
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
        return aspect.scale.low + aspect.scale.high - rating if mapped.lower_is_better and not is_sum else rating

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

    def _comments(self, row: Row, rater: str, rated: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        for name, columns in row.columns.comments.items():
            aspects = row.task.aspects
            if name:
                of = [name]
            elif row.columns.is_long and not row.columns.is_pair:
                aspect = self._aspect(row.record, str(row.columns.column("aspect")), columns[0], row.task)
                of = [aspect.name] if aspect else []
            else:
                # A comment on no aspect is on the only one that there is, or on the first verdict.
                of = [aspects[0].name] if len(aspects) == 1 else [*rated[:1]] if row.columns.is_pair else []
            of = [aspect for aspect in of if name or aspect not in row.columns.comments]
            for column in columns if of else ():
                if row.record.values.get(column) is not None:
                    yield from ((aspect, rater, text) for aspect in of for text in comments_in(row.record, column))

    # --- pairs ---

    def _pair(self, row: Row, texts: tuple[str, str]) -> Iterator[Row]:
        """The rows of a pair: for each verdict one per text; a pair in the other order is the same pair."""
        origin = [row.source, row.context] if row.context else [row.source]
        key = fingerprint([*origin, *sorted(texts)])
        columns = (str(row.columns.column("response_a")), str(row.columns.column("response_b")))
        if key not in self._pairs:
            group = row.group or fingerprint([*origin, *texts])
            self._pairs_of_group[group] += 1
            number = self._pairs_of_group[group]
            # The order of the texts must not reveal which one was chosen.
            flipped = self._is_decided(row) and fingerprint(list(texts)) > fingerprint(list(texts[::-1]))
            self._pairs[key] = (group if number == 1 else f"{group}.{number}"), texts[::-1] if flipped else texts
        group, first_order = self._pairs[key]
        verdicts = list(self._verdicts(row, columns))
        swapped = texts != first_order
        for i in (1, 0) if swapped else (0, 1):
            ratings = [
                Rating(aspect, share if i == 0 else 1 - share, rater, field) for aspect, share, rater, field in verdicts
            ]
            comments = list(self._comments(row, "", [rating.aspect.name for rating in ratings])) if i == 0 else []
            candidate = columns[1 - i if swapped else i]
            yield row._replace(
                group=group,
                key=("pair", key),
                candidate=candidate,
                text=texts[i],
                ratings=ratings,
                comments=comments,
                several=True,
            )

    @staticmethod
    def _is_decided(row: Row) -> bool:
        return "winner" not in row.columns.roles and not row.columns.ratings

    def _verdicts(self, row: Row, columns: tuple[str, str]) -> Iterator[tuple[Aspect, float, str, str]]:
        """Aspect, rating of the first text, rater and field of each verdict."""
        record, task = row.record, row.task
        rater = _identifier(record, row.columns.column("rater"))
        if self._is_decided(row):
            if any(aspect.name == PREFERENCE for aspect in task.aspects) and normalized_name(columns[0]) == "chosen":
                yield task.aspect(PREFERENCE), 1.0, rater, columns[0]
            return
        cells: Mapping[str, Sequence[Cell]] = row.columns.ratings
        if row.columns.is_long:
            winner = row.columns.column("winner") or str(row.columns.column("rating"))
            aspect = self._aspect(record, str(row.columns.column("aspect")), winner, task)
            cells = {aspect.name: [Cell(winner)]} if aspect else {}
        share = self._strength(record, row.columns.column("strength"))
        for name, of_aspect in cells.items():
            for cell in of_aspect:
                # One-hot: the column that is ticked names the winner.
                raw = record.values.get(cell.column)
                value = cell.value if cell.value and code_of(raw) in _CHOSEN else None if cell.value else raw
                listed = value.split(";") if record.format == "csv" and isinstance(value, str) else value
                values = [v for v in (listed if isinstance(listed, list) else [listed]) if not is_missing(v)]
                for n, verdict in enumerate(values, start=1):
                    first = self._first_rating(record, verdict, columns)
                    if first is None:
                        raise self._no_verdict(record, verdict, cell.column, columns)
                    of = cell.rater or rater or (str(n) if len(values) > 1 else "")
                    yield task.aspect(name), 0.5 + (first - 0.5) * share, of, cell.column

    def _first_rating(self, record: Record, value: object, columns: tuple[str, str]) -> float | None:
        if (code := code_of(value)) in self._names.verdicts:
            return self._names.verdicts[code]
        return clear_verdict(value, columns, (record.values.get("model_a"), record.values.get("model_b")))

    @staticmethod
    def _no_verdict(record: Record, value: object, column: str, texts: tuple[str, str]) -> InputError:
        is_code = re.fullmatch(r"-?\d+(\.\d+)?", code_of(value)) is not None
        return record.error(
            f"{value!r} may mean any text, or a tie" if is_code else "not a verdict on the pair",
            column,
            expected=f"a, b, tie, or the name of a column: {' or '.join(texts)}",
            found=value,
            remedy="say what each value means, e.g. --columns codes=0:a+1:b+2:tie",
        )

    @staticmethod
    def _strength(record: Record, name: str | None) -> float:
        if name is None or is_missing(record.values.get(name)):
            return 1.0
        strength = record.number(name)
        if not 0 < strength <= 1:
            expected = "a number above 0 and up to 1: divide all strengths by the greatest one"
            raise record.error("not a strength", name, expected=expected, found=f"{strength:g}")
        return strength


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


def _listed(record: Record, column: str, *, blank: bool) -> str:
    if not column.endswith("[]"):
        return record.text(column, blank=blank)
    base = column.removesuffix("[]")
    texts = listed_texts(record.value(base))
    if texts is None:
        raise record.error("not a list of texts", base, expected='["…"]', found=record.values[base])
    return replace(record, values={base: "\n\n".join(texts)}).text(base, blank=blank)


def _optional(record: Record, column: str) -> str:
    if column.endswith("[]"):
        return _listed(record, column, blank=True)
    if messages := messages_in(record.values.get(column)):
        return joined_messages(messages)
    return record.optional_text(column)


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
