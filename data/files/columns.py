"""Matches the columns of a user's table with our names for them (`ROLES` and the aspects of the task).

A column matches by its name, whatever its case and whether blanks, hyphens or underscores divide its words, or because
`--columns` says so. `helpfulness_1` and `helpfulness_rater2` are two raters of the aspect helpfulness. A table with the
columns aspect and rating has one row for each rating; one with a column rater has one row for each candidate and rater.
Other columns are not read. `ReadingNotes` lists them in one line, with the missing name that each one resembles.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.other_names import by_other_name, even, rater_base
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Task

logger = logging.getLogger(__name__)

ROLES = (
    "group",
    "source",
    "candidate",
    "text",
    "context",
    "reference",
    "references",
    "task",
    "rater",
    "aspect",
    "rating",
    "comment",
    "ratings",
    "comments",
)
"""Our names of columns, apart from those of aspects."""

COMMENTS = "comments."
"""Prefix of the columns with comments on one aspect."""


@dataclass(frozen=True)
class Columns:
    """The names that a user gave with `--columns`."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the user's column."""
    learnt: Mapping[str, str] = field(default_factory=dict)
    """The same from a task file or an export. It holds for tables that have the column; others are read without it."""

    @classmethod
    def of(cls, entries: Iterable[str]) -> Columns:
        """Read `NAME=COLUMN` entries.

        Raises:
            InputError: An entry has another form, or a name comes twice.
        """
        renamed: dict[str, str] = {}
        for entry in entries:
            ours, equals, theirs = (part.strip() for part in entry.partition("="))
            if not equals or not ours or not theirs or ours in renamed or theirs in renamed.values():
                raise InputError(
                    "not a list of columns",
                    field="--columns",
                    expected="NAME=COLUMN,..., each once, e.g. source=question,text=answer,helpfulness=score_help",
                    found=entry,
                )
            renamed[ours] = theirs
        return cls(renamed)

    def naming(self, keys: Iterable[str]) -> dict[str, str]:
        """Our name -> the user's column, for a table with these columns."""
        there = {base for key in keys for base in (key, rater_base(key))}
        taken = set(self.renamed.values())
        known = {
            ours: theirs
            for ours, theirs in self.learnt.items()
            if ours not in self.renamed and theirs not in taken and not there.isdisjoint((theirs, even(theirs)))
        }
        return known | dict(self.renamed)

    def find(self, keys: Sequence[str], names: Collection[str]) -> tuple[dict[str, str], list[str]]:
        """Match a record's `keys` with our `names`: our name -> key, and the keys that match none, in their order."""
        renamed = self.naming(keys)
        found = {ours: theirs for ours, theirs in renamed.items() if ours in names and theirs in keys}
        taken = set(renamed.values())
        rest = []
        plain = {even(name): name for name in names}
        # Exact names come first, so that `text` wins where there is a column `Text` as well.
        for key in sorted(keys, key=lambda key: key not in names):
            ours = key if key in names else plain.get(even(key))
            if key in taken:
                if key not in found.values():
                    rest.append(key)
            elif ours is None or ours in found or ours in renamed:
                rest.append(key)
            else:
                found[ours] = key
        return found, [key for key in keys if key in rest]

    def require(self, record: Record, keys: Collection[str], names: Collection[str], bases: Collection[str]) -> None:
        """Check that every entry of `--columns` names one of ours and a column that exists.

        Args:
            record: The first one of the file.
            keys: All field names in it.
            names: Our names.
            bases: Names that stand for several columns of raters, e.g. `help` for `help_1` and `help_2`.

        Raises:
            InputError: An entry does not.
        """
        for ours, theirs in self.renamed.items():
            if ours not in names:
                raise InputError(
                    f"{ours!r} is neither a column nor an aspect",
                    field="--columns",
                    expected=", ".join(names),
                    found=f"{ours}={theirs}",
                    remedy=did_you_mean(ours, names),
                )
            if theirs not in keys and theirs not in bases:
                raise record.error(
                    f"no column {theirs!r}",
                    "--columns",
                    found="columns " + ", ".join(keys),
                    remedy=did_you_mean(theirs, keys),
                )


@dataclass(frozen=True)
class RowLayout:
    """What each column of a table holds, for one task."""

    roles: Mapping[str, str]
    """Role -> the user's column."""
    ratings: Mapping[str, tuple[str, ...]]
    """Aspect -> its columns: one, or one for each rater."""
    comments: Mapping[str, tuple[str, ...]]
    """Aspect -> the columns with comments on it."""
    ignored: tuple[str, ...]
    """Columns that are not read."""
    replaced: tuple[str, ...] = ()
    """Columns that are not read since their aspect also has one for each rater: most likely the means of these."""

    @property
    def long(self) -> bool:
        """Whether a row is one rating."""
        return "aspect" in self.roles and "rating" in self.roles

    @property
    def merges(self) -> bool:
        """Whether several rows may be about one candidate."""
        return self.long or "rater" in self.roles


def row_layout(keys: Sequence[str], task: Task, columns: Columns) -> RowLayout:
    """Match all columns of a table."""
    aspects = [aspect.name for aspect in task.aspects]
    found, rest = columns.find(keys, names_in_rows(task))
    renamed = columns.naming(keys)
    ratings, rest = _with_raters({a: found[a] for a in aspects if a in found}, rest, aspects, "", renamed)
    commented = {a: found[COMMENTS + a] for a in aspects if COMMENTS + a in found}
    comments, rest = _with_raters(commented, rest, aspects, COMMENTS, renamed)
    used = {column for taken in (*ratings.values(), *comments.values()) for column in taken}
    replaced = tuple(found[a] for a in aspects if a in found and found[a] not in used)
    roles = {role: found[role] for role in ROLES if role in found and role not in aspects}
    return RowLayout(roles, ratings, comments, tuple(rest), replaced)


def names_in_rows(task: Task) -> tuple[str, ...]:
    """All names that a column of a table can have."""
    aspects = [aspect.name for aspect in task.aspects]
    return (*aspects, *(role for role in ROLES if role not in aspects), *(COMMENTS + a for a in aspects))


def _with_raters(
    found: Mapping[str, str], rest: Sequence[str], aspects: Sequence[str], prefix: str, renamed: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Add the columns of single raters, which replace the one column in `found` where an aspect has any.

    Args:
        found: Aspect -> the column that is named like it.
        rest: Columns that match no name.
        aspects: All aspects of the task.
        prefix: What stands before the aspect in the columns' names: nothing, or `COMMENTS`.
        renamed: As `Columns.naming` gives it.

    Returns:
        Aspect -> its columns, and the columns that are still unmatched.
    """
    made: dict[str, tuple[str, ...]] = {aspect: (column,) for aspect, column in found.items()}
    left = list(rest)
    # The longest name first: an aspect may be called `quality`, and another `quality_a`.
    for aspect in sorted(aspects, key=len, reverse=True):
        base = renamed.get(prefix + aspect, prefix + aspect)
        raters = tuple(key for key in left if rater_base(key) == even(base))
        if raters:
            made[aspect] = raters
            left = [key for key in left if key not in raters]
    return {aspect: made[aspect] for aspect in aspects if aspect in made}, left


class ReadingNotes:
    """Collects what a user should know about how a file was read, and logs it in one line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[str] = []
        self._told = ""
        self._used: set[str] = set()
        self._ignored: dict[str, str] = {}

    def add(self, part: str) -> None:
        if part not in self._parts:
            self._parts.append(part)

    def fields(self, used: Iterable[str], ignored: Iterable[str], names: Collection[str], why: str = "") -> None:
        """Note which fields are read and which are not.

        Args:
            used: Names of fields that are read.
            ignored: Names of fields that are not.
            names: Ours that no field matched; the one that an ignored name resembles is suggested.
            why: Why the fields are ignored, if not because their names are unknown.
        """
        self._used.update(used)
        for name in (unread := list(ignored)):
            self._ignored.setdefault(name, why or did_you_mean(name, names) or by_other_name(name, names, unread))

    @property
    def ignored(self) -> dict[str, str]:
        """Field that no record was read from -> the reason, or the name that may be meant."""
        return {name: hint for name, hint in self._ignored.items() if name not in self._used}

    def line(self) -> str:
        """All notes in one line; empty if there are none."""
        parts = list(self._parts)
        if found := self.ignored:
            shown = ", ".join(f"{name!r}" + (f" ({hint})" if hint else "") for name, hint in found.items())
            parts.append(f"not read: {shown}")
        return f"{self._name}: {'; '.join(parts)}" if parts else ""

    def tell(self) -> None:
        """Log the line, unless exactly this line has been logged."""
        text = self.line()
        if text != self._told:
            logger.warning("%s", text)
            self._told = text


def aspect_fields(record: Record, task: Task, columns: Columns, notes: ReadingNotes) -> dict[str, tuple[str, ...]]:
    """Aspect -> the fields of an object of ratings that hold it: one, or one for each rater."""
    keys = tuple(map(str, record.values))
    found = dict(row_layout(keys, task, columns).ratings)
    used = [field for fields in found.values() for field in fields]
    absent = [aspect.name for aspect in task.aspects if aspect.name not in found]
    notes.fields(used, [key for key in keys if key not in used], absent)
    return found
