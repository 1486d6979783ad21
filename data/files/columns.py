"""Which of a user's columns is which of ours: by name, by `--columns`, or as one of several raters of an aspect.

A column is ours if it has the name, up to case and to blanks or hyphens for underscores, or if the user says so.
`helpfulness_1` and `helpfulness_rater2` are two raters of the aspect helpfulness. A table with the columns aspect and
rating has one row for each rating; one with a column rater has one row for each candidate and rater. What is left over
is not read; `ReadingNotes` says so in one line, and where a name is nearly one that is missing it says that, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from debate_judge.data.errors import InputError, did_you_mean
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
"""Columns of a table that are not named after an aspect."""

COMMENTS = "comments."
"""What the columns with comments on one aspect begin with."""

OTHER_WORDS: Mapping[str, tuple[str, ...]] = {
    "source": (
        *("question", "prompt", "input", "query", "instruction", "article", "document", "passage", "dialogue"),
        *("history", "conversation", "message", "user_message", "customer_message", "email", "ticket"),
    ),
    "text": (
        *("answer", "output", "response", "reply", "completion", "generation", "generated", "summary", "prediction"),
        *("candidate_text", "model_output", "model_response", "translation", "content"),
    ),
    "candidate": ("system", "model", "model_name", "system_name", "candidate_id", "system_id"),
    "group": ("article_id", "doc_id", "question_id", "prompt_id", "source_id", "group_id"),
    "context": ("background", "fact", "facts", "knowledge", "policy", "passages"),
}
"""What people call a column of ours; such a column is proposed, never taken."""

_RATER = r"[_ .-]+(?:(?:rater|annotator|judge|human|expert|worker|person|r|a)[_ .-]?)?(?:\d+|[A-Za-z])"


@dataclass(frozen=True)
class Columns:
    """The names that a user gave with `--columns`: ours -> theirs."""

    renamed: Mapping[str, str] = field(default_factory=dict)

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

    def find(self, keys: Sequence[str], names: Collection[str]) -> tuple[dict[str, str], list[str]]:
        """Which of the `keys` have one of our `names`: ours -> theirs, and the keys that have none."""
        found = {ours: theirs for ours, theirs in self.renamed.items() if ours in names and theirs in set(keys)}
        taken = set(self.renamed.values())
        rest = []
        plain = {even(name): name for name in names}
        # Exact names come first, so that `Text` is no rival of `text`.
        for key in sorted(keys, key=lambda key: key not in names):
            ours = key if key in names else plain.get(even(key))
            if key in taken:
                if key not in found.values():
                    rest.append(key)
            elif ours is None or ours in found or ours in self.renamed:
                rest.append(key)
            else:
                found[ours] = key
        return found, [key for key in keys if key in rest]

    def require(self, record: Record, keys: Collection[str], names: Collection[str], bases: Collection[str]) -> None:
        """Refuse a renaming that finds no column, or whose name means nothing here.

        Args:
            record: The first one of the file.
            keys: All field names in it.
            names: What can be given a column.
            bases: Keys without the endings that tell raters apart.

        Raises:
            InputError: One of the two.
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
    """What the columns of a table hold, for one task."""

    roles: Mapping[str, str]
    """Role -> the user's column."""
    ratings: Mapping[str, tuple[str, ...]]
    """Aspect -> its columns: one, or one for each rater."""
    comments: Mapping[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    """Columns of an aspect that has columns of single raters besides: their mean, most likely."""

    @property
    def long(self) -> bool:
        """Whether a row is one rating."""
        return "aspect" in self.roles and "rating" in self.roles

    @property
    def merges(self) -> bool:
        """Whether several rows may be about one candidate."""
        return self.long or "rater" in self.roles


def row_layout(keys: Sequence[str], task: Task, columns: Columns) -> RowLayout:
    """Find out what the columns of a table hold."""
    aspects = [aspect.name for aspect in task.aspects]
    found, rest = columns.find(keys, names_in_rows(task))
    ratings, rest = _with_raters({a: found[a] for a in aspects if a in found}, rest, aspects, "", columns)
    told = {a: found[COMMENTS + a] for a in aspects if COMMENTS + a in found}
    comments, rest = _with_raters(told, rest, aspects, COMMENTS, columns)
    used = {column for taken in (*ratings.values(), *comments.values()) for column in taken}
    replaced = tuple(found[a] for a in aspects if a in found and found[a] not in used)
    roles = {role: found[role] for role in ROLES if role in found and role not in aspects}
    return RowLayout(roles, ratings, comments, tuple(rest), replaced)


def names_in_rows(task: Task) -> tuple[str, ...]:
    """All names that a column of a table can have."""
    aspects = [aspect.name for aspect in task.aspects]
    return (*aspects, *(role for role in ROLES if role not in aspects), *(COMMENTS + a for a in aspects))


def _with_raters(
    found: Mapping[str, str], rest: Sequence[str], aspects: Sequence[str], prefix: str, columns: Columns
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The columns of each aspect, those of single raters before one for all, and the columns that are left."""
    made: dict[str, tuple[str, ...]] = {aspect: (column,) for aspect, column in found.items()}
    left = list(rest)
    # The longest name first: an aspect may be called `quality`, and another `quality_a`.
    for aspect in sorted(aspects, key=len, reverse=True):
        base = columns.renamed.get(prefix + aspect, prefix + aspect)
        raters = tuple(key for key in left if rater_base(key) == even(base))
        if raters:
            made[aspect] = raters
            left = [key for key in left if key not in raters]
    return {aspect: made[aspect] for aspect in aspects if aspect in made}, left


def rater_base(key: str) -> str | None:
    """The name of a column without the ending that tells a rater, evened out; None where it has none."""
    match = re.fullmatch(rf"(.+?){_RATER}", key)
    return even(match.group(1)) if match else None


def even(name: str) -> str:
    """A name for comparisons: without case, blanks and hyphens as underscores."""
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def missing(record: Record, role: str, keys: Iterable[str]) -> InputError:
    """The error of a column that every table needs, with the column that it may be."""
    names = [key for key in keys if even(key) in OTHER_WORDS.get(role, ())]
    near = did_you_mean(role, list(keys), "is it called {}?")
    guess = names[0] if names else "COLUMN"
    return record.error(
        f"the field {role!r} is missing",
        role,
        expected="a text in every row, or candidates in every group" if role == "text" else None,
        found="fields " + ", ".join(keys) if keys else "no fields",
        remedy=f"{near + ' ' if near else ''}say which column it is with --columns {role}={guess}",
    )


def lacks(role: str, keys: Collection[str]) -> bool:
    """Whether nothing in a file looks like the column `role`, so that the file has none rather than another name."""
    return did_you_mean(role, list(keys)) is None and not any(even(key) in OTHER_WORDS[role] for key in keys)


def _by_other_word(name: str, names: Collection[str]) -> str:
    """Which of the names that no column has may be meant by a usual word for it."""
    role = next((role for role, words in OTHER_WORDS.items() if role in names and even(name) in words), None)
    return f"--columns {role}={name} if it is that" if role else ""


class ReadingNotes:
    """What a user has to know of how a file was read, told in one line."""

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
            names: Ours that no field has; an ignored name that is near to one of them may be meant.
            why: The reason, where it is not that the names are unknown.
        """
        self._used.update(used)
        for name in ignored:
            self._ignored.setdefault(name, why or did_you_mean(name, names) or _by_other_word(name, names))

    @property
    def ignored(self) -> dict[str, str]:
        """Fields that are not read in any record -> why, or what may be meant."""
        return {name: hint for name, hint in self._ignored.items() if name not in self._used}

    def line(self) -> str:
        """All of it; empty where there is nothing to say."""
        parts = list(self._parts)
        if found := self.ignored:
            shown = ", ".join(f"{name!r}" + (f" ({hint})" if hint else "") for name, hint in found.items())
            parts.append(f"not read: {shown}")
        return f"{self._name}: {'; '.join(parts)}" if parts else ""

    def tell(self) -> None:
        """Say it, unless it has been said."""
        text = self.line()
        if text != self._told:
            logger.warning("%s", text)
            self._told = text


def aspect_fields(record: Record, task: Task, columns: Columns, notes: ReadingNotes) -> dict[str, tuple[str, ...]]:
    """Aspect -> the fields of an object that are named like it, or like it and one of its raters."""
    keys = tuple(map(str, record.values))
    found = dict(row_layout(keys, task, columns).ratings)
    used = [field for fields in found.values() for field in fields]
    absent = [aspect.name for aspect in task.aspects if aspect.name not in found]
    notes.fields(used, [key for key in keys if key not in used], absent)
    return found
