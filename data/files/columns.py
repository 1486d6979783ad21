"""Maps the columns of a user's table to the project's names (`ROLES` and the aspects of the task).

A column matches by its name, ignoring case and whether blanks, hyphens or underscores separate its words, or by an
entry of `--columns`. `helpfulness_1` and `helpfulness_rater2` are two raters of the aspect helpfulness. A table with
columns aspect and rating has one row per rating; one with a column rater has one row per candidate and rater. Other
columns are not read; `ReadingNotes` lists them in one line, with the missing name that each one resembles.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.records import Record, looks_like_a_number
from debate_judge.data.schema import Task

logger = logging.getLogger(__name__)

ROLES = (
    *("group", "source", "candidate", "text", "context", "reference", "references", "task"),
    *("rater", "aspect", "rating", "comment", "ratings", "comments"),
)
"""The project's names of columns, apart from those of aspects."""

NESTED = ("id", "candidates", "ratings", "comments")
"""Fields of JSON records only: nested objects, and a candidate's id."""

_MAX_NAMED = 20
"""Maximum number of unread columns that the notes list."""

COMMENTS = "comments."
"""Prefix of the columns with comments on one aspect."""

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "source": (
        *("question", "prompt", "input", "query", "request", "instruction", "article", "document", "passage"),
        *("dialogue", "history", "conversation", "message", "user_message", "customer_message", "email", "ticket"),
        "src",
    ),
    "text": (
        *("answer", "output", "response", "reply", "completion", "generation", "generated", "summary", "prediction"),
        *("candidate_text", "model_output", "model_response", "translation", "hypothesis", "content"),
    ),
    "candidate": ("system", "model", "model_name", "system_name", "candidate_id", "system_id"),
    "group": ("article_id", "doc_id", "question_id", "prompt_id", "source_id", "group_id"),
    "context": ("background", "fact", "facts", "knowledge", "policy", "passages"),
    "aspect": ("criterion", "criteria", "dimension", "metric", "quality", "attribute", "aspect_name"),
    "rating": ("score", "value", "grade", "label", "points", "mark", "stars", "judgement", "judgment"),
    "comment": (
        *("comments", "rationale", "reason", "explanation", "note", "notes", "feedback", "justification", "remark"),
    ),
}
"""Role -> other common names, which errors and notes suggest; `guess_roles` guesses by them."""

RATER_NAME = re.compile(
    r"(?:annotator|labell?er|rater|reviewer|evaluator|assessor|grader|scorer|judge|coder|worker|expert|user|participant"
    r"|respondent|turker|crowd_?worker)(?:_(?:id|e?_?mail|name|login|key|uuid|initials|number|nr|no))?|username"
    r"|(?:prolific|mturk|amt)_p?id"
    r"|(?:annotated|labell?ed|rated|reviewed|evaluated|assessed|graded|scored|judged|coded|completed|created)_by"
    r"(?:_(?:id|e?_?mail|name))?"
)
"""Other names of the column `rater`, normalized (`normalized_name`)."""

_REQUIRED_CUTOFF = 0.6
"""Least similarity of a column's name to a required one: lower than the default, because an unread source would change
the groups."""

_NOTED_CUTOFF = 0.8
"""The same for columns that are not read: most of them are something else; 'duration' is not a misspelt 'rating'."""

TEXT_ROLES = ("group", "source", "context", "candidate", "text")
"""Roles that identify a text."""

_RATER_WORD = "rater|annotator|judge|human|expert|worker|person"
_RATER_ENDING = (
    rf"(?:[_ .-]+(?:(?:{_RATER_WORD}|r|a)[_ .-]?)?(?:\d+|[A-Za-z])|[_ .-]*\((?:{_RATER_WORD})[_ .-]?(?:\d+|[A-Za-z])\))"
)


def normalized_name(name: str) -> str:
    """The name in lower case with underscores for blanks and hyphens, for comparisons."""
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def snake_case_name(name: str) -> str:
    """`normalized_name` with underscores between words such as those of `workerId`, to recognize common names."""
    return normalized_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))


def name_without_rater(name: str) -> str | None:
    """The normalized name of a column without the ending that numbers a rater; None without such an ending."""
    match = re.fullmatch(rf"(.+?){_RATER_ENDING}", name)
    return normalized_name(match.group(1)) if match else None


def joined_columns(column: str, name: str, keys: Collection[str]) -> list[str]:
    """The columns that `--columns NAME=COLUMN+COLUMN` names for an aspect or its comments; for other names, COLUMN."""
    is_joined = "+" in column and column not in keys and (name == "comment" or name not in (*ROLES, *NESTED))
    return [part.strip() for part in column.split("+")] if is_joined else [column]


def missing_column_error(record: Record, role: str, keys: Iterable[str]) -> InputError:
    """The error for a missing column; it suggests a similar one."""
    paths = {f"{key}.{name}": name for key, value in record.values.items() if isinstance(value, dict) for name in value}
    paths |= {key: key.rpartition(".")[2] for key in keys if "." in key}
    common = (role, *OTHER_NAMES.get(role, ()))
    names = [key for key in keys if normalized_name(key) in common[1:]]
    names += [path for path, name in paths.items() if normalized_name(str(name)) in common]
    near = did_you_mean(role, list(keys), cutoff=_REQUIRED_CUTOFF)
    expected = "a text in every row, or candidates in every group" if role == "text" else None
    if expected and any(name_without_rater(key) in common for key in keys):
        expected += "; in each row of two texts, a column winner as well"
    return record.error(
        f"the field {role!r} is missing",
        role,
        expected=expected,
        found="fields " + ", ".join(keys) if keys else "no fields",
        remedy=f"{near + ' ' if near else ''}say which column it is with --columns {role}={[*names, 'COLUMN'][0]}",
    )


def has_similar_column(role: str, keys: Collection[str]) -> bool:
    """Whether a column resembles `role`, so that the file probably has it under another name."""
    return bool(did_you_mean(role, list(keys), cutoff=_REQUIRED_CUTOFF) or column_with_common_name(role, keys))


def unread_hint(name: str, names: Collection[str], unread: Collection[str], record: Record) -> str:
    """A hint for a column that is not read: which of our names it may mean, or that it holds a number; else empty.

    Args:
        name: Name of the column.
        names: Our names that no column matched.
        unread: All columns that matched none of our names.
        record: A record with the column.
    """
    near = did_you_mean(name, names, cutoff=_NOTED_CUTOFF)
    if near and normalized_name(name) not in ROLES:
        return near
    role = next((role for role in (*OTHER_NAMES, "rater") if column_with_common_name(role, [name]) is not None), "")
    if role == "comment" and role not in names and any(our_name.startswith(COMMENTS) for our_name in names):
        return f"--columns {COMMENTS}ASPECT={name} if it is that"
    # Aspect and rating are used only together.
    partner = {"aspect": "rating", "rating": "aspect"}.get(role)
    if role in names and (partner not in names or column_with_common_name(str(partner), unread) is not None):
        return f"--columns {role}={name} if it is that"
    return "holds numbers" if holds_number(name, record) else ""


def holds_number(name: str, record: Record) -> bool:
    value = record.values.get(name)
    value = next(iter(value), None) if isinstance(value, list) else value
    number = looks_like_a_number(value.strip()) if isinstance(value, str) else isinstance(value, int | float)
    return number and not isinstance(value, bool)


def column_with_common_name(role: str, keys: Iterable[str]) -> str | None:
    """The column that has the first, most common, of the other names of a role."""
    by_name = {name: key for key in reversed(list(keys)) for name in (snake_case_name(key), normalized_name(key))}
    if role == "rater":
        return next((key for name, key in reversed(by_name.items()) if RATER_NAME.fullmatch(name)), None)
    return next((by_name[word] for word in OTHER_NAMES.get(role, ()) if word in by_name), None)


@dataclass(frozen=True)
class ColumnNames:
    """Names of the columns in a user's file."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the user's column, from `--columns`."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The same from a task file or an export; used only for tables that have the column."""

    @classmethod
    def parse(cls, entries: Iterable[str]) -> ColumnNames:
        """Parse `NAME=COLUMN` entries.

        Raises:
            InputError: An entry is invalid, or a name occurs twice.
        """
        renamed: dict[str, str] = {}
        for entry in entries:
            name, _, column = (part.strip() for part in entry.partition("="))
            if not name or not column or name in renamed or column in renamed.values():
                raise InputError(
                    "not a list of columns",
                    field="--columns",
                    expected="NAME=COLUMN,..., each once, e.g. source=question,text=answer,helpfulness=score_help",
                    found=entry,
                )
            renamed[name] = column
        return cls(renamed)

    def names_for(self, keys: Collection[str]) -> dict[str, str]:
        """Our name -> the user's column, in a table with the columns `keys`."""
        present = {base for key in keys for base in (key, name_without_rater(key))} if self.defaults else set()
        used_defaults = {
            name: column
            for name, column in self.defaults.items()
            if name not in self.renamed
            and column not in self.renamed.values()
            and all(not present.isdisjoint((key, normalized_name(key))) for key in joined_columns(column, name, keys))
        }
        return used_defaults | dict(self.renamed)

    def with_paths(self, record: Record) -> Record:
        """The record with a column for each name that is the path of a nested field, e.g. `data.answer`."""
        if not any(isinstance(value, dict) for value in record.values.values()):
            return record
        values = dict(record.values)
        for name, column in (*self.renamed.items(), *self.defaults.items()):
            for path in joined_columns(column, name, values):
                inner: object = record.values
                for key in path.split(".") if path not in values else ():
                    inner = inner.get(key) if isinstance(inner, dict) else None
                if inner is not None and inner is not record.values:
                    values[path] = inner
        return replace(record, values=values)

    def match(self, keys: Sequence[str], names: Collection[str]) -> tuple[dict[str, str], list[str]]:
        """Match the fields `keys` of a record with our `names`: our name -> field, and the fields that match none."""
        our_names, renamed = {normalized_name(name): name for name in names}, self.names_for(keys)
        matched = {name: column for name, column in renamed.items() if name in names and column in keys}
        claimed = {key for name, column in renamed.items() for key in (column, *joined_columns(column, name, keys))}
        # Exact names come first, so that `text` wins where there is a column `Text` as well.
        for key in sorted(keys, key=lambda key: key not in names):
            name = key if key in names else our_names.get(normalized_name(key))
            if name is not None and key not in claimed and name not in matched and name not in renamed:
                matched[name] = key
        matched_columns = set(matched.values())
        return matched, [key for key in keys if key not in matched_columns]

    @cached_property
    def cached_match(self) -> Callable[[tuple[str, ...], tuple[str, ...]], tuple[dict[str, str], list[str]]]:
        """`match` with a cache, as most records of a file have the same fields; its results must not be changed."""
        return lru_cache(maxsize=16)(self.match)

    def check(self, record: Record, names: Collection[str]) -> None:
        """Check that every entry of `--columns` has one of our `names` and a column of the file's first record.

        Raises:
            InputError: An entry has an unknown name or column.
        """
        keys = list(map(str, record.values))
        bases = {name_without_rater(key) for key in keys}
        for our_name, column in self.renamed.items():
            if our_name not in (*names, *NESTED):
                raise InputError(
                    f"{our_name!r} is neither a column nor an aspect",
                    field="--columns",
                    expected=", ".join((*names, *NESTED)),
                    found=f"{our_name}={column}",
                    remedy=did_you_mean(our_name, (*names, *NESTED)),
                )
            for key in joined_columns(column, our_name, keys) if our_name not in NESTED else ():
                if key not in keys and (key != column or normalized_name(key) not in bases):
                    raise record.error(
                        f"no column {key!r}",
                        "--columns",
                        expected="a column, or a path such as data.answer; several columns of one aspect joined by +",
                        found="columns " + ", ".join(keys),
                        remedy=did_you_mean(key, keys) or "name one of these columns",
                    )


@dataclass(frozen=True)
class RowLayout:
    """The role of each column of a table, for one task."""

    roles: Mapping[str, str]
    """Role -> the user's column."""
    ratings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Aspect -> its columns: one, or one per rater."""
    comments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Aspect -> its columns of comments; the empty name -> comments on a row's rating, or on the only aspect."""
    ignored: tuple[str, ...] = ()
    """Columns that are not read."""
    replaced: tuple[str, ...] = ()
    """Columns that are not read because their aspect also has one per rater: most likely the means of these."""

    @property
    def is_long(self) -> bool:
        """Whether a row is one rating."""
        return "aspect" in self.roles and "rating" in self.roles

    @property
    def allows_several_rows(self) -> bool:
        """Whether a candidate may have several rows."""
        return self.is_long or "rater" in self.roles


def row_layout(keys: Sequence[str], task: Task, columns: ColumnNames) -> RowLayout:
    """Match all columns of a table. Columns of single raters replace the column without a rater."""
    aspects = [aspect.name for aspect in task.aspects]
    comment_names = [COMMENTS + aspect for aspect in aspects]
    columns = ColumnNames(columns.names_for(keys))
    matched, unmatched = columns.match(keys, column_names(task))
    columns_of: dict[str, tuple[str, ...]] = {}
    bases = {key: name_without_rater(key) for key in unmatched}
    # Longest names first: one aspect may be called `quality` and another `quality_a`.
    for name in sorted((*aspects, *comment_names, "comment"), key=len, reverse=True):
        base = columns.renamed.get(name, name)
        several = (
            joined_columns(base, name, matched.values()) if name in columns.renamed and name not in matched else []
        )
        if raters := [key for key in unmatched if key in several or bases[key] == normalized_name(base)]:
            unmatched = [key for key in unmatched if key not in raters]
        if raters or name in matched:
            columns_of[name] = tuple(raters) or (matched[name],)
    used = {column for columns_of_name in columns_of.values() for column in columns_of_name}
    comments = {name.removeprefix(COMMENTS): columns_of[name] for name in comment_names if name in columns_of}
    # A comment on no aspect is on the row's rating, or on the only aspect that there is.
    comments |= {"": columns_of["comment"]} if "comment" in columns_of else {}
    # Objects of ratings and comments are columns by now; what still has such a name is something else.
    unused = {"ratings", "comments"} | (set() if {"aspect", "rating"} <= set(matched) else {"aspect", "rating"})
    unmatched += [matched[role] for role in ROLES if role in matched and role in unused and role not in aspects]
    return RowLayout(
        {role: matched[role] for role in ROLES if role in matched and role not in {*aspects, *unused}},
        {aspect: columns_of[aspect] for aspect in aspects if aspect in columns_of},
        comments,
        tuple(unmatched),
        tuple(matched[aspect] for aspect in aspects if aspect in matched and matched[aspect] not in used),
    )


def column_names(task: Task) -> tuple[str, ...]:
    """All names of ours that a column can have."""
    aspects = [aspect.name for aspect in task.aspects]
    return (*aspects, *(role for role in ROLES if role not in aspects), *(COMMENTS + a for a in aspects))


class ReadingNotes:
    """Collects notes for the user on how a file was read, and logs them in one line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._notes: dict[str, None] = {}
        self._logged = ""
        self._read: set[str] = set()
        self._ignored: dict[str, str] = {}
        self._truncated = False

    def add(self, note: str) -> None:
        self._notes[note] = None

    def add_read(self, names: Iterable[str]) -> None:
        """Note fields that are read, and with `data.answer` the object `data`."""
        self._read.update(path for name in names for path in (name, name.partition(".")[0]))

    def add_ignored(self, names: Iterable[str], hint: Callable[[str], str]) -> None:
        """Note fields that are not read, each with the reason or a suggestion, if `hint` has one."""
        for name in names:
            if name not in self._ignored:
                if len(self._ignored) == _MAX_NAMED:
                    self._truncated = True
                    return
                self._ignored[name] = hint(name)

    def text(self) -> str:
        """All notes in one line; empty if there are none."""
        notes = list(self._notes)
        shown = [f"{n!r}" + (f" ({hint})" if hint else "") for n, hint in self._ignored.items() if n not in self._read]
        if shown:
            notes.append(f"not read: {', '.join(shown)}{', and others' * self._truncated}")
        return f"{self._name}: {'; '.join(notes)}" if notes else ""

    def log(self) -> None:
        """Log the notes, unless the same text was logged before."""
        if (text := self.text()) != self._logged:
            logger.warning("%s", text)
            self._logged = text
