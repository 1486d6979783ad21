"""Rows of tables, and records with a list of candidates, as groups.

A record with a list of candidates becomes one row per candidate; nested objects of ratings and comments become columns.
Rows with the same value in the column `group` form a group; without this column, rows with equal task, source and
context; without a source, every text is a group. Rows of a group with the same value in the column `candidate` are
about one candidate. Without this column every row is a candidate, except in tables with one row per rating or rater,
where rows with equal texts are about the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from debate_judge.data.errors import ErrorHandler, did_you_mean, redirect_errors
from debate_judge.data.files.columns import (
    COMMENTS,
    NESTED,
    ROLES,
    ColumnNames,
    ReadingNotes,
    RowLayout,
    column_names,
    has_similar_column,
    holds_number,
    missing_column_error,
    normalized_name,
    row_layout,
    unread_hint,
)
from debate_judge.data.files.guessed_roles import (
    join_raters_hint,
    rater_column,
    refuse_other_meaning,
    refuse_repeated_texts,
    summarized_name,
)
from debate_judge.data.files.ratings import comments_in, rating_of
from debate_judge.data.files.records import Record, is_blank, is_missing
from debate_judge.data.schema import Aspect, Candidate, RatedGroup, Task

T = TypeVar("T")

_MAX_LAYOUTS = 1000
"""Maximum number of cached layouts, of records with different fields."""


class LocatedGroup(NamedTuple):
    """A group with its task and its first record, for errors."""

    task: Task
    group: RatedGroup
    record: Record


class _Row(NamedTuple):
    """A row with the roles of its columns."""

    record: Record
    number: int
    """Number of the row, from 1; the id of a group or candidate without an id."""
    task: Task | None
    """None for a row of another task than the caller chose."""
    layout: RowLayout
    """Without a task only the columns `task` and `group`."""

    def column(self, role: str) -> str | None:
        return self.layout.roles.get(role)

    def optional(self, role: str) -> str:
        """The text in the column of a role; empty without one."""
        column = self.column(role)
        return "" if column is None else self.record.optional_text(column)

    def identifier(self, role: str) -> str:
        """The id in the column of a role; empty without such a column."""
        column = self.column(role)
        return "" if column is None else self.record.identifier(column).strip()

    def optional_identifier(self, role: str) -> str:
        """As `identifier`; empty also if it is blank."""
        return "" if is_blank(self.record.values.get(self.column(role) or "")) else self.identifier(role)

    @property
    def group_key(self) -> object:
        """The key that the rows of a group share."""
        task = self.task.name if self.task else None
        if "group" in self.layout.roles:
            return self.identifier("group")
        if source := self.optional("source"):
            return task, " ".join(source.split()), self.optional("context")
        if not self.layout.allows_several_rows:
            return self.number
        return task, "", self.optional_identifier("candidate") or self.optional("text")


@dataclass
class _CandidateRows:
    """A candidate while its rows are collected."""

    first: Record
    id: str
    text: str
    ratings: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    """Aspect -> (number of the rater, rating)."""
    comments: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    """Aspect -> (number of the rater, comment)."""
    row_of_rating: dict[tuple[str, str], Record] = field(default_factory=dict)
    """Aspect and rater -> the row with that rating."""

    def candidate(self, keep: bool) -> Candidate:
        row = dict(self.first.values) if keep else {}
        return Candidate(self.id, self.text, _by_rater(self.ratings), _by_rater(self.comments), row)


def _by_rater(numbered: Mapping[str, list[tuple[int, T]]]) -> dict[str, tuple[T, ...]]:
    """Aspect -> values in the order of the raters' numbers."""
    return {name: tuple(v for _, v in sorted(values, key=itemgetter(0))) for name, values in numbered.items()}


class RowReader:
    """Reads the records of one file as groups.

    Args:
        columns: The user's names of columns.
        task_of: (row, field that names its task) -> task, or None for a row of another task than the caller chose.
        notes: Collects notes for the user.
        on_bad_cell: Called with the error of a rating or row, which is then left out; None to raise it.
        keep_columns: Whether a candidate keeps all columns of its first row.
    """

    def __init__(
        self,
        columns: ColumnNames,
        task_of: Callable[[Record, str], Task | None],
        notes: ReadingNotes,
        on_bad_cell: ErrorHandler | None = None,
        *,
        keep_columns: bool = False,
    ) -> None:
        self.columns = columns
        """The user's names of columns, with the rater column that was detected."""
        self._keep = keep_columns
        self._task_of = task_of
        self._notes = notes
        self._bad_cell = on_bad_cell
        self._layouts: dict[tuple[tuple[str, ...], str | None], RowLayout] = {}
        """Columns and name of the task -> layout; without a task, the columns `task` and `group`."""
        self._raters: dict[str, int] = {}
        self._has_sources: bool | None = None

    def groups_of_records(self, records: Iterable[Record], on_error: ErrorHandler | None) -> Iterator[LocatedGroup]:
        """The groups of records that hold one each; bad records are skipped if there is an `on_error`."""
        for number, record in enumerate(records, start=1):
            with redirect_errors(on_error or self._bad_cell):
                group = self._group(self._row(flat, number) for flat in candidate_records(record, self.columns))
                if group is not None:
                    yield group._replace(record=record)

    def groups_of_rows(self, records: Iterable[Record], *, gather: bool) -> Iterator[LocatedGroup]:
        """The groups of the chosen task.

        Args:
            records: The rows.
            gather: Whether the rows of a group need not be adjacent; all rows are then held in memory.
        """
        flat: Iterable[Record] = (flattened(record, self.columns) for record in records)
        if gather:
            flat = list(flat)
            self._detect_raters(flat)
        rows: Iterable[_Row] = (self._row(record, number) for number, record in enumerate(flat, start=1))
        if gather:
            by_key: dict[object, list[_Row]] = defaultdict(list)
            for row in rows:
                with redirect_errors(self._bad_cell):
                    by_key[row.group_key].append(row)
            rows = (row for members in by_key.values() for row in members)
        for _, members in groupby(rows, key=lambda row: row.group_key):
            if (group := self._group(members)) is not None:
                yield group

    def _detect_raters(self, records: Sequence[Record]) -> None:
        """Detect the column of raters; raise if texts repeat and there is none."""
        keys = tuple(map(str, records[0].values)) if records else ()
        roles, unmatched = self.columns.match(keys, ROLES)
        refuse_other_meaning(records, roles, unmatched, self.columns.names_for(keys))
        if (rater := rater_column(records, roles, unmatched)) is not None:
            self.columns = replace(self.columns, renamed={**self.columns.renamed, "rater": rater})
            self._notes.add(f"{rater!r} is taken for the rater")
        elif not {"rater", "candidate"} & set(roles) and not {"aspect", "rating"} <= set(roles) and "text" in roles:
            refuse_repeated_texts(records, roles, unmatched)

    def _row(self, record: Record, number: int) -> _Row:
        keys = tuple(map(str, record.values))
        layout = self._layout(keys, None, lambda: RowLayout(self.columns.match(keys, ("task", "group"))[0]))
        task = self._task_of(record, layout.roles.get("task", "task"))
        if task is not None:
            layout = self._layout(keys, task.name, lambda: self._new_layout(record, keys, task))
        return _Row(record, number, task, layout)

    def _layout(self, keys: tuple[str, ...], task: str | None, match: Callable[[], RowLayout]) -> RowLayout:
        layout = self._layouts.get((keys, task))
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[keys, task] = match()
        return layout

    def _new_layout(self, record: Record, keys: tuple[str, ...], task: Task) -> RowLayout:
        layout, names = row_layout(keys, task, self.columns), column_names(task)
        if self._has_sources is None and "task" not in layout.roles:
            self.columns.check(record, names)
        if "text" not in layout.roles:
            raise missing_column_error(record, "text", keys)
        if self._has_sources is None:
            self._has_sources = "source" in layout.roles or has_similar_column("source", layout.ignored)
        if self._has_sources and "source" not in layout.roles:
            raise missing_column_error(record, "source", keys)
        used = [c for columns in (*layout.ratings.values(), *layout.comments.values()) for c in columns]
        # A column `comment` cannot be suggested where there are several aspects.
        never_suggested = {"comment"} if len(task.aspects) > 1 and not layout.is_long else set()
        unmatched = [name for name in names if name not in {*layout.roles, *layout.ratings, *never_suggested}]
        self._notes.add_read([*layout.roles.values(), *used])
        self._notes.add_ignored(layout.ignored, lambda name: unread_hint(name, unmatched, layout.ignored, record))
        self._notes.add_ignored(layout.replaced, lambda _: "there are columns of single raters")
        # Columns that may be those of several raters of one aspect.
        single_columns = [columns[0] for columns in layout.ratings.values() if len(columns) == 1]
        unread = [name for name in layout.ignored if holds_number(name, record) and not summarized_name(name)]
        aspects = {normalized_name(aspect.name) for aspect in task.aspects}
        if hint := join_raters_hint(single_columns) or join_raters_hint(unread, aspects):
            self._notes.add(hint)
        return layout

    def _group(self, rows: Iterable[_Row]) -> LocatedGroup | None:
        # Each row is checked as it is read, so that the error is that of the first bad row.
        first: _Row | None = None
        candidates: dict[str, _CandidateRows] = {}
        references: dict[str, None] = {}
        group_id = source = ""
        for row in rows:
            with redirect_errors(self._bad_cell):
                if first is None:
                    first, group_id = row, row.identifier("group") if row.column("group") else str(row.number)
                elif row.column("group"):
                    _refuse_difference(first, row, group_id)
                if row.task is None:
                    continue
                source = source or _source(row)
                self._add_row(row, row.task, candidates, group_id)
                references |= dict.fromkeys(_references(row))
        if first is None or first.task is None or not candidates:
            return None
        rated = tuple(candidate.candidate(self._keep) for candidate in candidates.values())
        with redirect_errors(self._bad_cell):
            group = RatedGroup(group_id, source, rated, first.optional("context"), tuple(references))
            return LocatedGroup(first.task, group, first.record)
        return None

    def _add_row(self, row: _Row, task: Task, candidates: dict[str, _CandidateRows], group: str) -> None:
        record, column, several_rows = row.record, row.column("candidate"), row.layout.allows_several_rows
        id_, text_column = row.identifier("candidate"), row.layout.roles["text"]
        remedy = record.remedy or "fill it in, or leave out rows without a text, such as one of averages"
        text = replace(record, remedy=remedy).text(text_column)
        key = id_ if column else text if several_rows else str(row.number)
        candidate = candidates.get(key)
        if candidate is None:
            candidate = candidates[key] = _CandidateRows(record, id_ if column else str(row.number), text)
        elif not several_rows:
            location = candidate.first.full_name(column or "").rpartition(".")[0] or candidate.first.location
            raise record.error(
                f"group {group!r} has two candidates with the id {key!r}: also in {location}",
                column or "candidate",
                remedy="name the system that wrote each; where a row is one rater's, add a column rater",
            )
        elif candidate.text != text:
            raise record.error(
                f"the rows of candidate {key!r} of group {group!r} differ in their text",
                text_column,
                expected=f"the same text as in {candidate.first.location}",
                found=text,
            )
        self._add_ratings(row, task, candidate)

    def _add_ratings(self, row: _Row, task: Task, candidate: _CandidateRows) -> None:
        record, layout, rater = row.record, row.layout, row.optional_identifier("rater")
        rater_number = self._raters.setdefault(rater, len(self._raters)) if rater else len(self._raters)
        columns, comment_columns = layout.ratings, layout.comments
        if layout.is_long:
            aspect = self._aspect_of_row(record, layout, task)
            if aspect is None:
                return
            columns, comment_columns = {aspect: (layout.roles["rating"],)}, {aspect: layout.comments.get("", ())}
        elif "" in comment_columns and len(task.aspects) == 1:
            comment_columns = {task.aspects[0].name: comment_columns[""], **comment_columns}
        for name in columns:
            values = [value for column in columns[name] for value in self._ratings(record, task.aspect(name), column)]
            if values and rater and (before := candidate.row_of_rating.setdefault((name, rater), record)) is not record:
                raise record.error(
                    f"rater {rater!r} has rated {name} of this candidate twice, also in {before.location}",
                    layout.roles["rater"],
                    remedy="leave one out; if two systems wrote the text, name theirs: --columns candidate=COLUMN",
                )
            if values:
                candidate.ratings[name] += [(rater_number, value) for value in values]
        for name in filter(None, comment_columns):
            if texts := [text for column in comment_columns[name] for text in comments_in(record, column)]:
                candidate.comments[name] += [(rater_number, text) for text in texts]

    def _ratings(self, record: Record, aspect: Aspect, column: str) -> Iterator[float]:
        """The ratings in a cell."""
        for name, value in record.values_in(column, aspect.scale):
            with redirect_errors(self._bad_cell):
                yield rating_of(value, aspect, record, name)
                # A comma in a cell that was read as ratings was a decimal comma.
                if callable(record.decimal_commas) and "," in str(record.values[column]):
                    self._notes.add(f"commas in {column!r} are read as decimal points")

    def _aspect_of_row(self, record: Record, layout: RowLayout, task: Task) -> str | None:
        column = layout.roles["aspect"]
        if is_missing(record.values[column]) and is_missing(record.values[layout.roles["rating"]]):
            return None
        name = record.text(column).strip()
        names = {normalized_name(aspect.name): aspect.name for aspect in reversed(task.aspects)}
        aspect = names.get(normalized_name(name))
        if aspect is None:
            hint = did_you_mean(name, names.values(), "did you mean ratings of {}?") or ""
            self._notes.add_ignored([f"ratings of {name}"], lambda _: hint)
        return aspect


def flat_rows(records: Iterable[Record], columns: ColumnNames) -> Iterator[Record]:
    """The rows of all records: one per candidate if the first one holds a group, else one each."""
    in_groups = None
    for record in records:
        in_groups = holds_group(record, columns) if in_groups is None else in_groups
        yield from candidate_records(record, columns) if in_groups else [flattened(record, columns)]


def holds_group(record: Record, columns: ColumnNames) -> bool:
    """Whether a record holds a group with a list of candidates."""
    return "candidates" in columns.match(tuple(map(str, record.values)), NESTED)[0]


def candidate_records(record: Record, columns: ColumnNames) -> Iterator[Record]:
    """The rows of a record that holds a group: one per candidate, each with the group's fields."""
    names = columns.cached_match(tuple(map(str, record.values)), (*ROLES, *NESTED))[0]
    record.require(names.get("group", "group"), column := names.get("candidates", "candidates"))
    shared = {key: value for key, value in record.values.items() if key != column}
    for child in record.children(column):
        fields = columns.cached_match(tuple(map(str, child.values)), ("id", "text", *NESTED))[0]
        child.require(id_ := fields.get("id", "id"))
        # Its id becomes our column `candidate`, also if the group has a field of this name.
        key_of = {"candidate" if key == id_ else key: key for key in child.values}
        values = {**shared, **{name: child.values[key] for name, key in key_of.items()}}
        full_names = {name: child.full_name(key) for name, key in {"text": "text", **key_of}.items()}
        yield flattened(replace(record, values=values, full_names=full_names), columns)


def flattened(record: Record, columns: ColumnNames) -> Record:
    """The record with nested ratings, comments and the dotted paths of `--columns` as columns."""
    if not record.full_names and not any(isinstance(value, dict) for value in record.values.values()):
        return record
    values, full_names = dict(record.values), dict(record.full_names)
    matched = columns.cached_match(tuple(map(str, values)), NESTED)[0]
    for role, prefix in (("ratings", ""), ("comments", COMMENTS)):
        # In a table, a column of this name may hold something else.
        if role in matched and (record.full_names or isinstance(values[matched[role]], dict)):
            if values[matched[role]] is not None:
                inner = record.child(matched[role])
                values |= {prefix + str(key): value for key, value in inner.values.items()}
                full_names |= {prefix + str(key): inner.full_name(str(key)) for key in inner.values}
            del values[matched[role]]
    return columns.with_paths(replace(record, values=values, full_names=full_names))


def _source(row: _Row) -> str:
    source, column = row.optional("source"), row.column("source")
    if source or column is None:
        return source
    remedy = "repeat it in every row; in a spreadsheet, unmerge its cells and fill them down"
    return replace(row.record, remedy=remedy).text(column)


def _references(row: _Row) -> Iterator[str]:
    columns = [column for role in ("reference", "references") if (column := row.column(role))]
    # Lists come first, whatever the column.
    for column in sorted(columns, key=lambda column: not isinstance(row.record.values.get(column), list)):
        if isinstance(row.record.values.get(column), list):
            yield from row.record.texts(column)
        elif text := row.record.optional_text(column):
            yield text


def _refuse_difference(first: _Row, row: _Row, group: str) -> None:
    for role in ("source", "context", "task"):
        column = row.column(role)
        if column is not None and row.record.values.get(column) != first.record.values.get(column):
            expected, found = f"the same {role} as in {first.record.location}", row.record.values.get(column)
            raise row.record.error(
                f"the rows of group {group!r} differ in {role}", column, expected=expected, found=repr(found)
            )
