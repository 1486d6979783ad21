"""Groups from the rows of a table: one row per candidate, per candidate and rater, or per rating.

Rows with the same value in the column `group` form a group. Without this column, rows with equal task, source and
context do; without a source, every text is a group of its own. Rows of a group with the same value in the column
`candidate` are about one candidate. Without this column every row is a candidate, except in tables with one row per
rating or rater, where rows with equal texts are about the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import NamedTuple

from debate_judge.data.files.columns import (
    Columns,
    ReadingNotes,
    RowLayout,
    aspect_fields,
    names_in_rows,
    row_layout,
)
from debate_judge.data.files.other_names import even, lacks, missing, rater_base
from debate_judge.data.files.ratings import comments_of, rating_of, ratings_of
from debate_judge.data.files.records import Record
from debate_judge.data.files.task_file import RESERVED
from debate_judge.data.schema import Candidate, RatedGroup, Task


class _Row(NamedTuple):
    """A row, with what each of its columns holds."""

    record: Record
    number: int
    """Place among the rows, from 1; the id of a group or candidate that has no id of its own."""
    roles: Mapping[str, str]
    """Role -> column."""
    layout: RowLayout | None
    """None for a row of a task that the caller does not want."""
    task: Task | None

    def optional(self, role: str) -> str:
        """The text in the column of a role; empty if there is none."""
        return self.record.optional_text(self.roles[role]) if role in self.roles else ""

    def name(self, role: str) -> str:
        """The id in the column of a role; empty where there is no such column, or it is blank."""
        value = self.record.values.get(self.roles[role]) if role in self.roles else None
        blank = value is None or (isinstance(value, str) and not value.strip())
        return "" if blank else self.record.identifier(self.roles[role]).strip()


@dataclass
class _CandidateRows:
    """A candidate, collected from its rows."""

    first: Record
    id: str
    text: str
    ratings: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Aspect -> number of the rater, and the rating."""
    comments: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Likewise."""
    given: dict[tuple[str, str], Record] = field(default_factory=dict)
    """Aspect and rater -> the row with that rating."""

    def finished(self, keep: bool) -> Candidate:
        ratings = {name: tuple(v for _, v in sorted(values, key=_place)) for name, values in self.ratings.items()}
        comments = {name: tuple(t for _, t in sorted(texts, key=_place)) for name, texts in self.comments.items()}
        return Candidate(self.id, self.text, ratings, comments, dict(self.first.values) if keep else {})


def _place(value: tuple[int, object]) -> int:
    return value[0]


class RowReader:
    """Reads the rows of one table.

    Args:
        columns: Names that the user gave.
        task_of: (row, field that names its task) -> task, or None for a row that the caller does not want.
        notes: Collects which columns are not read.
        keep: Whether a candidate keeps all columns of its first row.
    """

    def __init__(
        self,
        columns: Columns,
        task_of: Callable[[Record, str], Task | None],
        notes: ReadingNotes,
        *,
        keep: bool = False,
    ) -> None:
        self._columns = columns
        self._keep = keep
        self._task_of = task_of
        self._notes = notes
        self._roles: dict[tuple[str, ...], dict[str, str]] = {}
        self._layouts: dict[tuple[tuple[str, ...], str], RowLayout] = {}
        self._raters: dict[str, int] = {}
        self._sourced: bool | None = None

    def groups(self, records: Iterable[Record], *, gather: bool) -> Iterator[tuple[Task, RatedGroup, Record]]:
        """The groups of the wanted tasks, each with the row that it begins with.

        Args:
            records: The rows.
            gather: Whether rows of a group may be apart; all are held in memory then. Otherwise a group ends where a
                row of another begins.
        """
        rows: Iterable[_Row] = (self._row(record, number) for number, record in enumerate(records, start=1))
        if gather:
            by_key: dict[object, list[_Row]] = {}
            for row in rows:
                by_key.setdefault(self._key(row), []).append(row)
            rows = [row for members in by_key.values() for row in members]
        for _, members in groupby(rows, key=self._key):
            made = self._group(members)
            if made is not None:
                yield made

    def _row(self, record: Record, number: int) -> _Row:
        keys = tuple(map(str, record.values))
        roles = self._roles.get(keys)
        if roles is None:
            roles = self._roles[keys] = self._columns.find(keys, RESERVED)[0]
        task = self._task_of(record, roles.get("task", "task"))
        if task is None:
            return _Row(record, number, roles, None, None)
        layout = self._layouts.get((keys, task.name))
        if layout is None:
            layout = self._layouts[keys, task.name] = self._layout(record, keys, task)
        return _Row(record, number, layout.roles, layout, task)

    def _layout(self, record: Record, keys: tuple[str, ...], task: Task) -> RowLayout:
        layout, names = row_layout(keys, task, self._columns), names_in_rows(task)
        if not self._layouts and "task" not in layout.roles:
            bases = {base for key in keys if (base := rater_base(key)) is not None}
            renamed = {theirs for theirs in self._columns.renamed.values() if even(theirs) in bases}
            self._columns.require(record, keys, names, renamed)
        if "text" not in layout.roles:
            raise missing(record, "text", keys)
        if self._sourced is None:
            self._sourced = "source" in layout.roles or not lacks("source", layout.ignored)
        if self._sourced and "source" not in layout.roles:
            raise missing(record, "source", keys)
        used = [c for taken in (*layout.ratings.values(), *layout.comments.values()) for c in taken]
        # A column `comment` would not say which of several aspects it is on.
        useless = {"comment"} if len(task.aspects) > 1 and not layout.long else set()
        absent = [name for name in names if name not in {*layout.roles, *layout.ratings, *useless}]
        self._notes.fields([*layout.roles.values(), *used], layout.ignored, absent)
        self._notes.fields((), layout.replaced, (), "there are columns of single raters")
        return layout

    def _key(self, row: _Row) -> object:
        """What the rows of one group have in common."""
        if "group" in row.roles:
            return row.record.identifier(row.roles["group"]).strip()
        task = None if row.task is None else row.task.name
        if source := row.optional("source"):
            return task, " ".join(source.split()), row.optional("context")
        if row.layout is None or not row.layout.merges:
            return row.number
        return task, "", row.name("candidate") or row.optional("text")

    def _group(self, rows: Iterator[_Row]) -> tuple[Task, RatedGroup, Record] | None:
        # Each row is checked as it is read, so that an error is about the first row that has one.
        first: _Row | None = None
        made: dict[str, _CandidateRows] = {}
        references: dict[str, None] = {}
        name = source = ""
        for row in rows:
            if first is None:
                first = row
                name = row.name("group") if "group" in row.roles else str(row.number)
            elif "group" in row.roles:
                _refuse_difference(first, row, name)
            if row.layout is None or row.task is None:
                continue
            source = source or _source(row)
            self._add(row, row.layout, row.task, made, name)
            references.update(dict.fromkeys(_references(row, row.layout)))
        if first is None or first.task is None:
            return None
        candidates = tuple(rated.finished(self._keep) for rated in made.values())
        group = RatedGroup(name, source, candidates, first.optional("context"), tuple(references))
        return first.task, group, first.record

    def _add(self, row: _Row, layout: RowLayout, task: Task, made: dict[str, _CandidateRows], group: str) -> None:
        record, text = row.record, row.record.text(layout.roles["text"])
        column = layout.roles.get("candidate")
        key = record.identifier(column).strip() if column else text if layout.merges else str(row.number)
        known = made.get(key)
        if known is None:
            known = made[key] = _CandidateRows(record, key if column else str(row.number), text)
        elif not layout.merges:
            raise record.error(
                f"group {group!r} has two candidates with the id {key!r}",
                column or "candidate",
                expected="a different id for every candidate of a group",
                found=f"{key!r}, as in {known.first.where}",
                remedy="put the name of the system that wrote the candidate into this column, or, where each row is "
                "one rater's, that of the rater into a column rater",
            )
        elif known.text != text:
            raise record.error(
                f"the rows of candidate {key!r} of group {group!r} differ in their text",
                layout.roles["text"],
                expected=f"the same text as in {known.first.where}",
                found=text,
                remedy="repeat it in every row of the candidate, or give another text its own candidate",
            )
        self._rate(row, layout, task, known)

    def _rate(self, row: _Row, layout: RowLayout, task: Task, rated: _CandidateRows) -> None:
        record = row.record
        rater = row.name("rater")
        place = self._raters.setdefault(rater, len(self._raters)) if rater else len(self._raters)
        ratings, comments = _ratings_and_comments(record, layout, task, self._notes)
        for column in chain([layout.roles.get("rating", "")], *layout.ratings.values()):
            # A comma in a cell that was read as ratings was a decimal one.
            if ratings and record.comma_columns is not None and "," in str(record.values.get(column, "")):
                self._notes.add(f"commas in {column!r} are read as decimal points")
        for aspect in ratings if rater else ():
            before = rated.given.setdefault((aspect, rater), record)
            if before is not record:
                raise record.error(
                    f"rater {rater!r} has rated {aspect} of this candidate twice",
                    layout.roles["rater"],
                    expected="one rating of each rater",
                    found=f"another one in {before.where}",
                )
        for aspect, values in ratings.items():
            rated.ratings.setdefault(aspect, []).extend((place, value) for value in values)
        for aspect, texts in comments.items():
            rated.comments.setdefault(aspect, []).extend((place, text) for text in texts)


def _ratings_and_comments(
    record: Record, layout: RowLayout, task: Task, notes: ReadingNotes
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[str, ...]]]:
    """What a row holds: aspect -> ratings, and aspect -> comments."""
    if layout.long:
        return _one_rating(record, layout, task, notes)
    columns = dict(layout.ratings)
    if "task" in layout.roles:
        # Where rows choose their task, a blank cell may belong to another task's aspect.
        columns = {a: tuple(c for c in taken if str(record.values[c]).strip()) for a, taken in columns.items()}
    ratings, comments = ratings_of(record, task, columns), comments_of(record, layout.comments)
    if "comment" in layout.roles and len(task.aspects) == 1:
        comments |= comments_of(record, {task.aspects[0].name: (layout.roles["comment"],)})
    if "ratings" in layout.roles and record.values[layout.roles["ratings"]] is not None:
        nested = record.child(layout.roles["ratings"])
        ratings |= ratings_of(nested, task, aspect_fields(nested, task, Columns(), notes))
    return ratings, comments


def _one_rating(
    record: Record, layout: RowLayout, task: Task, notes: ReadingNotes
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[str, ...]]]:
    """`_ratings_and_comments` for a table with one rating a row."""
    given = record.text(layout.roles["aspect"]).strip()
    aspect = next((a for a in task.aspects if even(a.name) == even(given)), None)
    if aspect is None:
        notes.fields((), [f"ratings of {given}"], [f"ratings of {a.name}" for a in task.aspects])
        return {}, {}
    column = layout.roles["rating"]
    values = tuple(rating_of(value, aspect, record, field) for field, value in record.several(column, aspect.scale))
    comment = layout.roles.get("comment")
    told = comments_of(record, {aspect.name: (comment,)}) if comment else {}
    return ({aspect.name: values} if values else {}), told


def _source(row: _Row) -> str:
    source = row.optional("source")
    if source or "source" not in row.roles:
        return source
    told = "repeat it in every row; in a spreadsheet, unmerge its cells and fill them down"
    return replace(row.record, remedy=told).text(row.roles["source"])


def _references(row: _Row, layout: RowLayout) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    for role in ("reference", "references"):
        column = layout.roles.get(role)
        if column is not None and isinstance(row.record.values.get(column), list):
            found += row.record.texts(column)
        elif column is not None:
            found += tuple(filter(None, [row.record.optional_text(column)]))
    return found


def _refuse_difference(first: _Row, row: _Row, group: str) -> None:
    for role in ("source", "context", "task"):
        column = row.roles.get(role)
        if column is not None and row.record.values.get(column) != first.record.values.get(column):
            raise row.record.error(
                f"the rows of group {group!r} differ in {role}",
                column,
                expected=f"the same {role} as in {first.record.where}",
                found=repr(row.record.values.get(column)),
                remedy="repeat it in every row of the group, or give another source its own group",
            )
