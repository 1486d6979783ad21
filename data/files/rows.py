"""Records as rows of the long table: a source, one of its texts, and the ratings and comments that a record has of it.

A row of a table may hold several texts (`columns`), a record a list of records, and a pair is two texts with a
verdict: the better one has 1, the other 0, and in a tie both have 0.5; a `strength` between 0 and 1 scales the distance
from 0.5.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from debate_judge.data.errors import ErrorHandler, InputError, did_you_mean, redirect_errors
from debate_judge.data.files.columns import (
    PREFERENCE,
    TEXT_WORDS,
    AspectColumns,
    Cell,
    ColumnNames,
    ReadingNotes,
    TextColumns,
    cached_keys,
    code_of,
    normalized_name,
    text_columns,
)
from debate_judge.data.files.ratings import comments_in, rating_of
from debate_judge.data.files.records import Record, is_blank, is_missing, looks_like_a_number
from debate_judge.data.schema import Aspect, Scale, Task, fingerprint, is_visible

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


_SPEAKERS, _SPOKEN = ("role", "from", "speaker", "user"), ("content", "value", "text", "utterance")


def messages_in(value: object) -> list[tuple[str, str]]:
    """Role and text of each message of a conversation; empty for other values."""
    messages = value if isinstance(value, list) else []
    if not messages or not isinstance(messages[0], dict):
        return []
    speaker = next((name for name in _SPEAKERS if name in messages[0]), "role")
    text = next((name for name in _SPOKEN if name in messages[0]), "content")
    # Fields with other names may hold ratings, and then the list is one of texts.
    plain = "content" in messages[0] or ({*messages[0]} == {speaker, text})
    if not plain or not all(isinstance(m, dict) and isinstance(m.get(text), str) for m in messages):
        return []
    return [(str(message.get(speaker)), message[text]) for message in messages]


def joined_messages(messages: Sequence[tuple[str, str]]) -> str:
    """Messages as one text; a single one without its role."""
    return "\n".join(text if len(messages) == 1 else f"{role}: {text}" for role, text in messages)


def listed_texts(value: object) -> list[str] | None:
    """The texts in a cell that holds a list of them; None for another value."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, list) or not all(isinstance(item, str) or item is None for item in value):
        return None
    return [item for item in value if item is not None]


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
