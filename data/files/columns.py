"""The mapping of a user's columns to texts and ratings: which column is what, and how its values are read.

A mapping is written down: in a task file, in `--columns`, or by the names of the columns where these are the project's
own (`ROLES`, the aspects of the task). `debate check` drafts one. A column of a mapping is a name, a path such as
`data.answer`, several joined by `+`, or a pattern: in `summary_{system}` the placeholder stands for each system, and
each text that it matches is one more text of the row; `{system:a|b}` for these only, `{rater}` for raters, `{value}`
for the value whose column is ticked. `name[]` is a cell that holds a list of texts.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.records import ClosedModel, Number, Record, Text, validated
from debate_judge.data.schema import Task

logger = logging.getLogger(__name__)

ROLES = (
    *("group", "source", "candidate", "text", "context", "reference", "references", "task"),
    *("rater", "aspect", "rating", "comment", "response_a", "response_b", "winner", "strength"),
)
"""The project's names of columns, apart from those of aspects."""

PREFERENCE = "preference"
"""The aspect of verdicts on pairs that name no aspect."""


def word_list(text: str) -> tuple[str, ...]:
    """The words that bars divide."""
    return tuple(text.split("|"))


SOURCE_WORDS = word_list(
    "source|question|prompt|input|query|request|instruction|article|document|passage|dialogue|history|"
    "conversation|message|email|ticket|src|original|orig|premise"
)
TEXT_WORDS = word_list(
    "text|response|answer|output|decoded|reply|completion|generation|generated|prediction|summary|hypothesis|"
    "translation|candidate|story|simplification|paraphrase|content"
)
"""Words in the names of columns of texts; a mapping is drafted and suggested by them, never read."""
_RATER = "rater|annotator|judge|human|expert|worker|person"
_RATER_ENDING = (
    rf"(?:[_ .-]+(?:(?:{_RATER}|r|a)[_ .-]?)?(?:\d+|[A-Za-z])|[_ .-]*\((?:{_RATER})[_ .-]?(?:\d+|[A-Za-z])\))"
)
_PLACEHOLDER = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
_MAX_NAMED = 20
"""Maximum number of unread columns that a note lists."""


def normalized_name(name: str) -> str:
    """The name in lower case with underscores for blanks and hyphens, for comparisons."""
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def name_without_rater(name: str) -> str | None:
    """The normalized name of a column without the ending that numbers a rater; None without such an ending."""
    match = re.fullmatch(rf"(.+?){_RATER_ENDING}", name)
    return normalized_name(match.group(1)) if match else None


def code_of(value: object) -> str:
    """A value as mappings write it: numbers without trailing zeros, words in lower case."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value) if isinstance(value, int) else f"{value:.15g}"
    text = " ".join(str(value).split()).casefold()
    return f"{float(text):.15g}" if re.fullmatch(r"[+-]?\d+(\.\d+)?", text, re.ASCII) else text


class AspectColumns(ClosedModel):
    """Where the ratings of an aspect are, and what their values mean."""

    column: str | list[str] = ""
    """Column or pattern; several for several raters. With a row a rating: the aspect's name in the column `aspect`."""
    comment: str | list[str] = ""
    labels: dict[str, Number] = Field(default_factory=dict)
    """Value of a cell -> rating."""
    missing: list[str | Number] = Field(default_factory=list)
    """Values that mean that there is no rating."""
    lower_is_better: bool = False

    @cached_property
    def ratings(self) -> dict[str, float | None]:
        """Code of a value -> its rating, None for a missing one."""
        return {code_of(v): float(r) for v, r in self.labels.items()} | {code_of(v): None for v in self.missing}


class ColumnNames(ClosedModel):
    """A mapping: the `[columns]` of a task file and the columns of its aspects, or `--columns`."""

    roles: dict[str, Text] = Field(default_factory=dict)
    """Role -> column; `none` for a role that no column has."""
    aspects: dict[str, AspectColumns] = Field(default_factory=dict)
    records: str = ""
    """Path of the list of records inside of each record, or of the file: `instances[]`, `documents[].answers[]`; with
    `outputs[]+scores[]`, the n-th values of several lists are a record."""
    sheet: str = ""
    """Name of a workbook's sheet, or two joined by +; `*` reads all, and the column `sheet` has their names."""
    join: str = ""
    """Columns, joined by +, that two files have in common."""
    keep: dict[str, str | list[str]] = Field(default_factory=dict)
    """Column -> values; records with other values are left out."""
    decimal: Literal["point", "comma"] = "point"
    """What divides decimals in a table of commas, or in a sheet, where `4,5` may be two ratings."""
    codes: dict[str, str | Number] = Field(default_factory=dict)
    """Verdict on a pair -> a, b, tie, or the share of the first text from 0 to 1."""
    empty: Literal["error", "skip"] = "error"
    """What becomes of a record without a text."""
    repeated: Literal["error", "mean", "first", "last", "sum", "raters", "separate"] = "error"
    """What becomes of further ratings of a text by the same rater; `raters`: they are other raters', `separate`: they
    are of another, equal text."""
    optional: bool = False
    """Whether a column need not exist, as those of a task file in new data."""

    @classmethod
    def of(cls, columns: Mapping[str, Any], where: Record, *, optional: bool = False) -> Self:
        """The mapping of a table `[columns]`; entries with other names are the columns of aspects.

        Raises:
            InputError: An entry has a value of another type than it should.
        """
        known = {*cls.model_fields} - {"roles", "aspects", "optional"}
        settings = {name: value for name, value in columns.items() if name in known}
        aspects: dict[str, dict[str, Any]] = {name: dict(value) for name, value in columns.get("aspects", {}).items()}
        roles = {}
        for name, value in columns.items():
            if name in known or name == "aspects":
                continue
            if name in ROLES:
                roles[name] = value
                continue
            aspect, _, key = name.rpartition(".")
            if name.startswith("comments."):
                aspect, key = key, "comment"
            elif key not in AspectColumns.model_fields or not aspect:
                aspect, key = name, "column"
            aspects.setdefault(aspect, {})[key] = value
        values = {**settings, "roles": roles, "aspects": aspects, "optional": optional}
        return validated(cls, Record(values, where.file, path=where.path, format=where.format))

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """Parse the `NAME=COLUMN` entries of --columns.

        Raises:
            InputError: An entry is invalid, or a name occurs twice.
        """
        table: dict[str, Any] = {}
        for entry in entries:
            name, _, column = (part.strip() for part in entry.partition("="))
            if not name or not column or name in table:
                raise InputError(
                    "not a list of columns",
                    field="--columns",
                    expected="NAME=COLUMN,..., each once, e.g. source=question,text=answer,helpfulness=score_help",
                    found=entry,
                )
            table[name] = _parsed_entry(name, column, entry)
        return cls.of(table, Record({}, "", path="--columns"))

    @classmethod
    def of_task(cls, task: Task | None) -> Self:
        """The mapping of a task, whose columns need not exist."""
        return cls.of(task.columns if task else {}, Record({}, ""), optional=True)

    def over(self, defaults: ColumnNames) -> ColumnNames:
        """This mapping, with the entries of another one that it lacks."""
        update = {name: getattr(self, name) for name in self.model_fields_set - {"roles", "aspects", "optional"}}
        roles, aspects = {**defaults.roles, **self.roles}, {**defaults.aspects, **self.aspects}
        return defaults.model_copy(update={**update, "roles": roles, "aspects": aspects, "optional": not self.named})

    @property
    def named(self) -> bool:
        return bool(self.roles or self.aspects)

    @cached_property
    def indexed(self) -> bool:
        """Whether a column is in a list, at the place that its name has: `responses.0.text`."""
        return any(re.search(r"\.\d+(?:\.|$)", column) for column in self.roles.values())

    def to_table(self) -> dict[str, Any]:
        """The mapping as the table `[columns]` that `of` reads."""
        values = self.model_dump(exclude_defaults=True)
        return {**values.pop("roles", {}), **{n: v for n, v in values.items() if n != "optional"}}

    @cached_property
    def verdicts(self) -> dict[str, float]:
        """Code of a verdict -> rating of the first text."""
        sides: dict[object, float] = {"a": 1.0, "b": 0.0, "tie": 0.5}
        ratings = {code: sides.get(side, side) for code, side in self.codes.items()}
        for code, rating in ratings.items():
            if not isinstance(rating, int | float) or not 0 <= rating <= 1:
                expected = "a, b or tie, or the share of the first text from 0 to 1"
                raise InputError("not a verdict", field=f"columns.codes.{code}", expected=expected, found=repr(rating))
        return {code_of(code): float(rating) for code, rating in ratings.items()}

    def leaves_out(self, record: Record) -> str:
        """The column by which `keep` leaves a record out; empty if it keeps it."""
        for column, kept in self.keep.items():
            values = [kept] if isinstance(kept, str) else kept
            if code_of(record.values.get(column, "")) not in map(code_of, values):
                return column
        return ""


def _parsed_entry(name: str, column: str, entry: str) -> Any:
    """The value of an entry of --columns."""
    key = name.rpartition(".")[2]
    if name in ("keep", "codes") or key == "labels":
        pairs = [part.rpartition(":") if key == "labels" else part.partition(":") for part in column.split("+")]
        if not all(colon and value for _, colon, value in pairs):
            expected = f"{name}=VALUE:MEANING+VALUE:MEANING"
            raise InputError(f"no values of {name}", field="--columns", expected=expected, found=entry)
        return {code.strip(): _number_or_text(value) if name != "keep" else value.strip() for code, _, value in pairs}
    if key == "missing":
        return [_number_or_text(value) for value in column.split("+")]
    return column == "true" if key == "lower_is_better" else column


def _number_or_text(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value.strip()


# --- the columns of one table ---


class Cell(NamedTuple):
    """A column with ratings of an aspect."""

    column: str
    rater: str = ""
    """The rater in its name."""
    value: str = ""
    """The rating in its name, if the column says whether it was chosen."""


class TextColumns(NamedTuple):
    """The columns of one text, or of one pair, of each row."""

    roles: Mapping[str, tuple[str, ...]]
    """Role -> columns, whose texts are joined."""
    system: str
    """What stands for the placeholder of the text's column, unless that is a number."""
    ratings: Mapping[str, tuple[Cell, ...]]
    """Aspect -> its columns."""
    comments: Mapping[str, tuple[str, ...]]
    """Aspect -> its columns of comments; the empty name: on every rating of the row."""

    def column(self, role: str) -> str | None:
        columns = self.roles.get(role)
        return columns[0] if columns else None

    @property
    def is_long(self) -> bool:
        """Whether a row is one rating."""
        return "aspect" in self.roles and ("rating" in self.roles or "winner" in self.roles)

    @property
    def is_pair(self) -> bool:
        return "response_a" in self.roles and "response_b" in self.roles

    @property
    def used(self) -> set[str]:
        cells = {cell.column for cells in self.ratings.values() for cell in cells}
        texts = {column for columns in (*self.roles.values(), *self.comments.values()) for column in columns}
        return cells | texts | {column.removesuffix("[]") for column in texts}


class Keys:
    """The columns of a table, and which of them a mapping means."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.names = tuple(keys)
        self._set = {*self.names}
        self._normalized = {normalized_name(key): key for key in reversed(self.names)}

    def named(self, name: str) -> str | None:
        """The column with this name, or one that differs in case or blanks only."""
        return name if name in self._set else self._normalized.get(normalized_name(name))

    def matching(self, pattern: str, known: Mapping[str, str]) -> list[tuple[dict[str, str], str]]:
        """The columns that match a pattern, each with what its placeholders stand for."""
        if pattern in self._set:
            return [({}, pattern)]
        if not _PLACEHOLDER.search(pattern):
            column = self.named(pattern.removesuffix("[]"))
            return [({}, column + "[]" * pattern.endswith("[]"))] if column else []
        parts, seen = [], set()
        pieces = _PLACEHOLDER.split(pattern.removesuffix("[]"))
        for text, name, choices in zip(pieces[::3], [*pieces[1::3], ""], [*pieces[2::3], ""], strict=True):
            any_of = "|".join(map(re.escape, choices.split("|"))) if choices else ".+?"
            known_text = re.escape(known[name]) if name in known else f"(?P<{name}>{any_of})"
            parts += [re.escape(text), "" if not name else f"(?P={name})" if name in seen else known_text]
            seen |= {name} - known.keys()
        try:
            expression = re.compile("".join(parts))
        except re.error:
            raise InputError("not a pattern of columns", field="columns", found=pattern) from None
        ending = "[]" * pattern.endswith("[]")
        return [(m.groupdict(), key + ending) for key in self.names if (m := expression.fullmatch(key))]

    def parts(self, column: str, known: Mapping[str, str]) -> list[str]:
        """The names and patterns of an entry: one, or those that are joined by +."""
        return [column] if self.matching(column, known) else [part.strip() for part in column.split("+")]

    def columns(self, column: str, known: Mapping[str, str]) -> list[str]:
        """The columns of a role; empty if one of them does not exist."""
        found = [self.matching(part, known) for part in self.parts(column, known)]
        return [part[0][1] for part in found] if all(found) else []

    def cells(self, columns: str | list[str], known: Mapping[str, str]) -> tuple[Cell, ...]:
        """The columns of an aspect's ratings."""
        cells = []
        for column in self.parts(columns, known) if isinstance(columns, str) else columns:
            matches = self.matching(column, known)
            if not matches:
                matches = [({}, key) for key in self.names if name_without_rater(key) == normalized_name(column)]
            cells += [Cell(key, found.get("rater", ""), found.get("value", "")) for found, key in matches]
        return tuple(cells)


def text_columns(keys: Keys, task: Task | None, names: ColumnNames) -> list[TextColumns]:
    """The texts of each row of a table, by its columns; empty if it has no column of texts.

    Args:
        keys: The columns.
        task: The task, whose aspects are columns by their names.
        names: The mapping.
    """
    spec = {role: column for role, column in names.roles.items() if column != "none" or keys.named("none")}
    aspect_names = {normalized_name(a.name) for a in task.aspects} if task else set()
    for role in ROLES:
        column = keys.named(role)
        if names.optional and role in spec and not _PLACEHOLDER.search(spec[role]) and not keys.columns(spec[role], {}):
            del spec[role]
        elif role in names.roles:
            continue
        taken = {part.removesuffix("[]") for mapped in spec.values() for part in (mapped, *mapped.split("+"))}
        beside_text = role in ("response_a", "response_b") and "text" in names.roles
        if column is not None and role not in aspect_names and column not in taken and not beside_text:
            spec.setdefault(role, column)
    chosen, rejected = keys.named("chosen"), keys.named("rejected")
    if "response_a" not in spec and "text" not in spec and chosen and rejected:
        spec |= {"response_a": chosen, "response_b": rejected}
    texts = keys.matching(spec.get("text") or spec.get("response_a", ""), {})
    found = [_one_text(keys, task, names, spec, bound) for bound, _ in texts]
    return [columns for columns in found if columns.is_pair or "text" in columns.roles]


def _one_text(
    keys: Keys, task: Task | None, names: ColumnNames, spec: Mapping[str, str], bound: Mapping[str, str]
) -> TextColumns:
    roles = {role: tuple(found) for role, column in spec.items() if (found := keys.columns(column, bound))}
    if "aspect" not in roles or not {"rating", "winner"} & roles.keys():
        roles = {role: columns for role, columns in roles.items() if role not in ("aspect", "rating")}
    is_pair = "response_a" in roles
    aspects = [aspect.name for aspect in task.aspects] if task else []
    taken = {column for columns in roles.values() for column in columns}
    ratings: dict[str, tuple[Cell, ...]] = {}
    comments: dict[str, tuple[str, ...]] = {}
    # Longest names first: one aspect may be called `quality` and another `quality_a`.
    for name in sorted(aspects, key=len, reverse=True):
        mapped = names.aspects.get(name, AspectColumns())
        cells = keys.cells(mapped.column, bound) if mapped.column else ()
        if not cells and (not mapped.column or names.optional):
            of_raters = (
                k for k in keys.names if name_without_rater(k.removeprefix("ratings.")) == normalized_name(name)
            )
            alone = (name, f"ratings.{name}", *((f"{name}_winner", f"winner_{name}") if is_pair else ()))
            cells = tuple(map(Cell, of_raters)) or tuple(Cell(key) for key in map(keys.named, alone) if key)[:1]
        if cells := tuple(cell for cell in cells if cell.column not in taken):
            ratings[name] = cells
            taken |= {cell.column for cell in cells}
        if of_aspect := keys.cells(mapped.comment or f"comments.{name}", bound):
            comments[name] = tuple(cell.column for cell in of_aspect)
    if "comment" in spec:
        of_row = roles.pop("comment", ())
        comments[""] = of_row or tuple(cell.column for cell in keys.cells(spec["comment"], bound))
    if is_pair and PREFERENCE in aspects and PREFERENCE not in ratings and not {"aspect", "rating"} <= roles.keys():
        winners = [k for k in keys.names if normalized_name(k).startswith("winner_") and k not in taken]
        verdicts = keys.cells(spec["winner"], bound) if "winner" in spec else ()
        if verdicts := verdicts or tuple(Cell(key, key[len("winner_") :]) for key in winners):
            ratings[PREFERENCE] = verdicts
    system = next((value for value in bound.values() if not value.isdigit()), "")
    return TextColumns(roles, system, {n: ratings[n] for n in aspects if n in ratings}, comments)


@lru_cache(maxsize=64)
def cached_keys(keys: tuple[str, ...]) -> Keys:
    return Keys(keys)


def require_columns(names: ColumnNames, record: Record, keys: Sequence[str], task: Task) -> None:
    """Check that each entry of --columns has a role or an aspect, and a column of the file.

    Raises:
        InputError: An entry has an unknown name or column.
    """
    known, found = (*ROLES, *(aspect.name for aspect in task.aspects)), Keys(keys)
    for name in (*names.roles, *names.aspects):
        if name not in known:
            raise InputError(
                f"{name!r} is neither a column nor an aspect",
                field="--columns",
                expected=", ".join(known),
                found=name,
                remedy=did_you_mean(name, known) or "declare the aspect in a task file; debate check drafts one",
            )
    if names.optional:
        return
    is_long = found.named("aspect") is not None or "aspect" in names.roles
    wanted = [column for column in names.roles.values() if column != "none"]
    for aspect in names.aspects.values():
        for columns in (*(() if is_long else (aspect.column,)), aspect.comment):
            wanted += [columns] if isinstance(columns, str) else columns
    texts = found.matching(names.roles.get("text", ""), {})
    bound = texts[0][0] if texts else {}
    for column in filter(None, wanted):
        for part in found.parts(column, bound):
            if not found.cells(part, bound):
                raise record.error(
                    f"no column {part!r}",
                    "--columns",
                    expected="a column, a path such as data.answer, or a pattern; several joined by +",
                    found="columns " + ", ".join(keys),
                    remedy=did_you_mean(part, keys) or "name one of these columns",
                )


class ReadingNotes:
    """Collects notes for the user on how a file was read, and logs them in one line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._notes: Counter[str] = Counter()
        self._unread: dict[str, str] = {}
        self._logged = ""

    def add(self, note: str) -> None:
        """Add a note; `{}` in it is the number of times that it was added."""
        self._notes[note] += 1

    def add_unread(self, columns: Iterable[str], names: Collection[str]) -> None:
        """Note columns that are not read, and which of our unused names one may be."""
        for column in columns:
            near = did_you_mean(column, names, cutoff=0.8) if normalized_name(column) not in ROLES else None
            self._unread.setdefault(column, f"{column!r} ({near})" if near else repr(column))

    def text(self) -> str:
        """All notes in one line; empty if there are none."""
        notes = [note.replace("{}", f"{count:,}") for note, count in self._notes.items()]
        if unread := [*self._unread.values()]:
            notes.append(f"not read: {', '.join(unread[:_MAX_NAMED])}{', and others' * (len(unread) > _MAX_NAMED)}")
        return f"{self._name}: {'; '.join(notes)}" if notes else ""

    def log(self) -> None:
        """Log the notes, unless the same text was logged before."""
        if (text := self.text()) != self._logged:
            logger.warning("%s", text)
            self._logged = text


# --- what names of columns probably mean, for drafts and errors; nothing is read by these ---

CONTEXT_WORDS = word_list("context|background|fact|facts|knowledge|policy|passages|evidence")
REFERENCE_WORDS = word_list("reference|references|ref|refs|gold")
COMMENT_WORDS = word_list("comment|comments|rationale|reason|explanation|note|notes|feedback|justification")
_NO_TEXT = word_list("date|id|ids|idx|index|lang|language|len|length|link|name|time|type|url")
RATER_NAME = re.compile(
    r"(?:annotator|labell?er|rater|reviewer|evaluator|assessor|grader|scorer|judge|coder|worker|expert|user|participant"
    r"|respondent|turker|crowd_?worker)(?:_(?:id|e?_?mail|name|login|key|uuid|initials|number|nr|no|index))?|username"
    r"|(?:prolific|mturk|amt)_p?id"
    r"|(?:annotated|labell?ed|rated|reviewed|evaluated|assessed|graded|scored|judged|coded|completed|created)_by"
    r"(?:_(?:id|e?_?mail|name))?"
)
"""Names of columns of raters, normalized."""


def tokens(name: str) -> list[str]:
    """The words of a column's name, in lower case, without a first word such as `Input.` that says where it is from."""
    name = re.sub(r"^(?:Input|Answer)\.", "", name)
    return [
        word.lower() for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z0-9])|(?<=[0-9])(?=[A-Za-z])", name) if word
    ]


def role_of_name(name: str) -> str:
    """The role that a column probably has by its name; empty for other names."""
    words = [word for word in tokens(name) if not word.isdigit() and len(word) > 1]
    if not words or words[-1] in _NO_TEXT:
        return ""
    if any(word in REFERENCE_WORDS for word in words):
        return "reference"
    if any(word in COMMENT_WORDS for word in words[-1:]):
        return "comment"
    if any(word in ("src", "source", "orig", "original") for word in words):
        return "source"
    for word in (words[-1], *words):
        for role, known in (("text", (*TEXT_WORDS, "simp", "simplified", "target")), ("source", SOURCE_WORDS)):
            if any(word == name or (len(name) > 4 and word.startswith(name)) for name in known):
                return role
        if word in CONTEXT_WORDS:
            return "context"
    return ""


_ASPECT_NAME = re.compile(
    r".*(?:ness|ity|[aeo]ncy|ance|ence|ment|[ts]ion|ful|[ai]ble|ing|ive|ous|al|ic|ure|acy|less|ly|ent|ant|ed|y)"
    r"|.*(?:quality|score|rating|rank|error|label|answer|text|summary|style|tone|fact|topic|word|time|count|num|mean|min"
    r"|max|avg|std|total|model|system|help|harm|safe|toxic|clear|correct|good|bad|like|use|true|truth|bias|logic|humou?r|wit"
    r"|trust|depth|length|focus|warm|kind|concise|overall|sense|plot|gramma|level|class|value|grade|stars?).*"
)
"""Names, in lower case, that aspects have and people do not."""
_TITLE_NAME = re.compile(
    r"[A-Z][a-z]+|[A-Z]{2,3}|.*@.*|[A-Z0-9]*[0-9][A-Z0-9]*[A-Z][A-Z0-9]*|[A-Z][A-Z0-9]*\d[A-Z0-9]*"
)
"""Names as people, their initials, addresses and ids of workers have."""


def looks_like_raters(names: Iterable[str], *, people: bool = False) -> bool:
    """Whether several names are probably those of raters, and none that of an aspect.

    Args:
        names: The names.
        people: Whether each has to be written like a name of a person or the id of a worker.
    """
    names = list(dict.fromkeys(names))
    if len(names) < 2 or (people and not all(map(_TITLE_NAME.fullmatch, names))):
        return False
    return not any(_ASPECT_NAME.fullmatch(" ".join(tokens(name))) for name in names if not is_rater_name(name))


def part_in_name(part: str, name: str) -> re.Match[str] | None:
    """Where a name has a part of another one as a word, as a number, or as the capital letter at its end."""
    escaped = re.escape(part)
    found = re.search(rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])", name)
    if found is None and part.isdigit():
        found = re.search(rf"(?<!\d){escaped}(?!\d)", name)
    if found is None and len(part) == 1 and part.isupper():
        found = re.search(rf"(?<=[a-z]){part}(?![a-z])", name)
    return found


def _difference(first: str, second: str) -> tuple[str, str, str] | None:
    """The pattern that two names share, with the part in which they differ: `summary_{x}`, bart, t5."""
    # A number is a part of its own after a word, as in `response1`, and not in a short name such as `x1` or `t5`.
    digits = r"(?<=[A-Za-z]{4})(?=[0-9])" if re.search(r"[^A-Za-z0-9]", first) else r"(?<=[A-Za-z])(?=[0-9])"
    split = rf"([^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])|(?<=[0-9]{{2}})(?=[A-Za-z])|{digits})"
    parts = [re.split(split, name) for name in (first, second)]
    a, b = ([part for part in each if part] for each in parts)
    # A part that differs may itself be of several words: `gpt-4` and `bart`.
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = next((i for i, (x, y) in enumerate(zip(a[::-1], b[::-1], strict=False)) if x != y), min(len(a), len(b)))
    end = min(end, len(a) - start, len(b) - start)
    middle = ["".join(each[start : len(each) - end]) for each in (a, b)]
    before, after = "".join(a[:start]), "".join(a[len(a) - end :])
    if not all(middle) or not (before.strip("._- ") or after.strip("._- ")):
        return None
    return f"{before}{{x}}{after}", middle[0], middle[1]


@dataclass
class Family:
    """Columns whose names differ in one part."""

    pattern: str
    """With `{x}` for the part."""
    members: dict[str, str]
    """Part -> column."""

    @property
    def numbered(self) -> bool:
        return all(part.isdigit() for part in self.members)

    def named(self, placeholder: str) -> str:
        return self.pattern.replace("{x}", f"{{{placeholder}}}")


def families(names: Sequence[str]) -> list[Family]:
    """The largest families first; those that differ in numbers before those that differ in words."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for i, first in enumerate(names):
        for second in names[i + 1 :] if len(names) <= 300 else names[i + 1 : i + 60]:
            if shared := _difference(first, second):
                found[shared[0]] |= {shared[1]: first, shared[2]: second}
    all_families = [Family(pattern, members) for pattern, members in found.items()]
    return sorted(all_families, key=lambda f: (not f.numbered, -len(f.members)))


# --- errors that name what is missing ---


def missing_columns_error(rows: Sequence[Record], keys: Sequence[str]) -> InputError:
    """The error for a table without a column `text`: it names all that seems to be missing, and a command."""
    maybe: dict[str, str] = {}
    for key in keys[:200]:
        role = "rater" if is_rater_name(key) else role_of_name(key)
        is_text = _has_texts(rows, key) or (tokens(key) or [""])[-1] in (*TEXT_WORDS, *SOURCE_WORDS)
        if role == "rater" or (role and is_text):
            maybe.setdefault(role, key)
    entries = [f"{role}={maybe[role]}" for role in ("text", "source", "rater") if role in maybe]
    remedy = f"name them, e.g. --columns {','.join(entries)}; or " if "text" in maybe else ""
    near = did_you_mean("text", list(keys), "; did you mean {}?") or ""
    return rows[0].error(
        "the field 'text' is missing",
        "text",
        expected="a column text, with what was rated; if there are any, source (what it was written for) and rater",
        found="fields " + ", ".join(keys) if keys else "no fields",
        remedy=f"{remedy}draft a mapping: debate check {shlex.quote(rows[0].file)} --write-task task.toml{near}",
    )


def refuse_other_meaning(
    rows: Sequence[Record], columns: TextColumns, unread: Sequence[str], names: ColumnNames, *, gather: bool
) -> None:
    """Ask which column is the source, or the text, where one that is not read has texts and a usual name for them, or,
    without a source, a similar name. Roles that the mapping names are not asked about.

    Raises:
        InputError: There is such a column.
    """
    plain = [key for key in unread if "." not in key]
    for role, words in (("source", SOURCE_WORDS), ("text", TEXT_WORDS)):
        column = columns.column(role)
        other = next((key for key in plain if normalized_name(key) in words), None)
        if role in names.roles or (columns.is_pair and column is None):
            continue
        if column is None:
            other = other or next((k for k in plain if did_you_mean("source", [k], cutoff=0.6)), None)
            problem, found = "the field 'source' is missing", rows[0].field_names
            remedy = f"did you mean {other!r}? Say which it is: --columns source={other}, or source=none if texts have "
            remedy += "no source"
        else:
            other = other if gather and other and _has_texts(rows, other) else None
            problem = f"is {column!r} or {other!r} the {role}?"
            found = f"{rows[0].values.get(column)!r:.60}, and {rows[0].values.get(str(other))!r:.60} in {other!r}"
            remedy = f"say which: --columns {role}={other}, or {role}={column}"
            remedy += f"; --columns source={column},text={other} if both" if role == "text" else ""
        if other:
            raise rows[0].error(problem, column or "source", found=found, remedy=remedy)


def _has_texts(rows: Sequence[Record], key: str) -> bool:
    """Whether a column holds texts of several words."""
    texts = [value for row in rows[:50] if isinstance(value := row.values.get(key), str)]
    return bool(texts) and sum(len(text.split()) for text in texts) >= 2 * len(texts)


def is_rater_name(name: str) -> bool:
    snake = normalized_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2] or name))
    return any(RATER_NAME.fullmatch(form) for form in (snake, normalized_name(name)))
