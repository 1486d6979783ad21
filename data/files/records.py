"""A record of a file with its location, so that every error about it can name file, line and field.

Its getters check the types of fields, and read ratings: a rating has to lie on the scale of its aspect, but need not be
a whole step, because means over raters such as 3.67 are ratings, too. Nothing is clamped, and words such as "yes" are
ratings only on a scale of two values. Records with fixed fields are read by pydantic models, whose errors are converted
to errors of the record (`validated`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal, NoReturn, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Aspect, Scale, Task, is_visible

T = TypeVar("T", bound=str)
M = TypeVar("M", bound=BaseModel)

MISSING_WORDS = frozenset({"n/a", "#n/a", "na", "n.a.", "nan", "none", "null", "-", "–", "—"})
"""Words that other programs write for a missing number, in lower case."""

YES_NO_WORDS = {
    **dict.fromkeys(("yes", "y", "true", "pass", "good", "correct"), True),
    **dict.fromkeys(("no", "n", "false", "fail", "bad", "incorrect"), False),
}
"""Word for a rating on a scale of two values, in lower case -> whether it means the upper value."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LISTED_NUMBERS = re.compile(r"\s*\[[-\d., ]*\]\s*")
_FRACTION = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*(?:%|/\s*\d+)")
"""A fraction or percentage, such as `4/5` or `80 %`, with its first number."""
_LARGEST = 1e300
"""Largest number, because differences of two numbers have to be finite, too."""
_NO_NAMES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Record:
    """Fields of an object or row in a file; the getters raise an `InputError` if a value has another type."""

    values: Mapping[str, object]
    file: str
    line: int = 0
    """Number of the first line, or of the row (see `unit`), from 1; 0 if the file is one record."""
    path: str = ""
    """Path of nested fields from the top of the record to this one, e.g. `candidates[2]`."""
    format: Literal["json", "csv", "toml"] = "json"
    """`csv` is a row of any table: texts that look like one number, or several (`4;5;4`), are converted."""
    remedy: str | None = None
    """Remedy for errors that have none of their own."""
    unit: Literal["line", "row"] = "line"
    decimal_commas: bool = False
    """Whether `4,5` in a table is a number; otherwise it is one where 4 and 5 cannot be two ratings."""
    full_names: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    """Field taken from a nested object -> its full name, e.g. tone -> `candidates[2].ratings.tone`."""

    @property
    def location(self) -> str:
        """The location in the file, e.g. `line 3`."""
        return f"{self.unit} {self.line}"

    def full_name(self, name: str) -> str:
        """The name of a field with its path, e.g. `candidates[2].text`."""
        base, bracket, index = name.partition("[")
        if base in self.full_names:
            return self.full_names[base] + bracket + index
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def error(
        self,
        problem: str,
        field: str = "",
        *,
        expected: str | None = None,
        found: object = None,
        remedy: str | None = None,
    ) -> InputError:
        """An error about a field of this record, or about the record."""
        return self.with_location(InputError(problem, expected=expected, found=found, remedy=remedy), field)

    def with_location(self, error: InputError, field: str = "") -> InputError:
        """An error that has no location yet, with that of this record or of one of its fields."""
        location = {"file": self.file or None, "line": self.line or None, "unit": self.unit}
        return error.replaced(**location, field=self.full_name(field) or None, remedy=error.remedy or self.remedy)

    @contextmanager
    def located(self, field: str = "") -> Iterator[None]:
        """Add the location of this record, or of its field, to errors of the block that name no file."""
        try:
            yield
        except InputError as error:
            if error.file is not None:
                raise
            raise self.with_location(error, error.field or field) from None

    def value(self, name: str) -> object:
        """A required field of any type."""
        if name not in self.values:
            remedy = did_you_mean(name, [n for n in self.values if isinstance(n, str)])
            if self.format == "toml":
                remedy = f"add {name} to [{self.path}]" if self.path else f"add {name} at the top of the file"
            raise self.error(f"the field {name!r} is missing", name, found=self.field_names, remedy=remedy)
        return self.values[name]

    @property
    def field_names(self) -> str:
        """The names of all fields, for errors."""
        return "fields " + ", ".join(map(str, self.values)) if self.values else "no fields"

    def require(self, *names: str) -> None:
        for name in names:
            self.value(name)

    def refuse_unknown_fields(self, allowed: Collection[str]) -> None:
        """Raise if there is a field with a name that is not in `allowed`."""
        for name in self.values:
            if name not in allowed:
                expected, remedy = "one of " + ", ".join(allowed), did_you_mean(name, allowed)
                raise self.error(f"unknown field {name!r}", name, expected=expected, remedy=remedy)

    # --- texts and numbers ---

    def text(self, name: str, *, blank: bool = False) -> str:
        """A required text, unchanged; without a visible character only if `blank` is set."""
        return self._text(name, self.value(name), blank)

    def optional_text(self, name: str) -> str:
        """A text; empty if the field is missing, null or blank."""
        text = "" if self.values.get(name) is None else self.text(name, blank=True)
        return text if is_visible(text) else ""

    def texts(self, name: str, *, blank: bool = False) -> tuple[str, ...]:
        """A list of texts, with blank ones only if `blank` is set; empty if the field is missing or null."""
        values = [] if self.values.get(name) is None else self.items(name)
        return tuple(self._text(f"{name}[{i}]", value, blank) for i, value in enumerate(values))

    def _text(self, name: str, value: object, blank: bool) -> str:
        if not isinstance(value, str):
            self._wrong_type(name, "a text in quotes", value)
        try:
            value.encode()
        except UnicodeEncodeError as error:
            # JSON can contain half of a surrogate pair, which cannot be encoded for files, hashes or requests.
            problem = f"half a character (a lone surrogate) at position {error.start + 1}"
            remedy = "write the text again from its original; the escape is one half of an emoji or symbol"
            raise self.error(problem, name, remedy=remedy) from None
        if not blank and not is_visible(value):
            remedy = self.remedy or "fill it in, or leave the record out"
            raise self.error(f"{name} is empty", name, expected="a text that is not empty", remedy=remedy)
        return value

    def identifier(self, name: str) -> str:
        """A required id: a text or a whole number."""
        value = self.value(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            self._wrong_type(name, "a text or a whole number", value)
        return self.text(name)

    def choice(self, name: str, choices: Collection[T], remedy: str | None = None) -> T:
        """A required id that is one of the choices; `remedy` is used if no choice is similar."""
        value = self.identifier(name).strip()
        if value in choices:
            return cast("T", value)
        expected = f"one of {', '.join(islice(choices, 8))}{', …' * (len(choices) > 8)}"
        remedy = did_you_mean(value, choices) or remedy
        raise self.error(f"unknown {name} {value!r}", name, expected=expected, remedy=remedy)

    def boolean(self, name: str) -> bool:
        """A required true or false."""
        value = self.value(name)
        if not isinstance(value, bool):
            self._wrong_type(name, "true or false", value)
        return value

    def number(self, name: str) -> float:
        """A required finite number."""
        return self._number(name, self._cell(self.value(name)))

    def optional_number(self, name: str) -> float | None:
        """A required field with a finite number; None if it is null or blank."""
        return None if is_blank(self.value(name)) else self.number(name)

    def numbers(self, name: str) -> tuple[float, ...]:
        """The finite numbers of a field, see `values_in`; blanks are left out."""
        return tuple(self._number(field, value) for field, value in self.values_in(name))

    def values_in(self, name: str, scale: Scale | None = None) -> list[tuple[str, object]]:
        """The one or several values of a required field, each with its field's name.

        Several are a list, or in a table cell `4;5;4` or `[4, 5]`; numbers in cells are converted. Missing values
        (null, a blank, `N/A`), also of single raters, are left out. `scale` is that of ratings, see `decimal_commas`.
        """
        value = self.value(name)
        if self.format == "csv" and isinstance(value, str):
            is_list = "[" in value and _LISTED_NUMBERS.fullmatch(value)
            parts = value.strip(" []").split(",") if is_list else value.split(";")
            return [(name, self._cell(part, scale)) for part in parts if not is_missing(part)]
        if isinstance(value, list):
            cells = enumerate(value)
            return [(f"{name}[{i}]", self._cell(item, scale)) for i, item in cells if not is_missing(item)]
        return [] if is_missing(value) else [(name, value)]

    def _cell(self, value: object, scale: Scale | None = None) -> object:
        """A text in a table as a number if it looks like one, else stripped; other values unchanged."""
        if self.format != "csv" or not isinstance(value, str):
            return value
        text = value.strip()
        if "," in text and allows_decimal_comma(text):
            decimal = self.decimal_commas or (scale is not None and not _is_two_ratings(text, scale))
            text = text.replace(",", ".") if decimal else text
        return float(text) if looks_like_a_number(text) else text

    def _number(self, name: str, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST:
            return float(value)
        expected = "a finite number" + " without quotes" * (isinstance(value, str) and self.format != "csv")
        remedy = "write decimals with a point" if isinstance(value, str) and "," in value else None
        raise self.error("not a number", name, expected=expected, found=describe_value(value), remedy=remedy)

    # --- lists and objects ---

    def items(self, name: str) -> list[object]:
        """A required list."""
        value = self.value(name)
        if not isinstance(value, list):
            self._wrong_type(name, "a list", value)
        return value

    def child(self, name: str) -> Record:
        """A required object as a record."""
        return self._child(name, self.value(name))

    def children(self, name: str) -> list[Record]:
        """A required list of objects, at least one, each as a record."""
        values = self.items(name)
        if not values:
            raise self.error(f"{name} is empty", name, expected="at least one object")
        return [self._child(f"{name}[{i}]", value) for i, value in enumerate(values)]

    def _child(self, name: str, value: object) -> Record:
        if not isinstance(value, dict):
            self._wrong_type(name, f"a table [{self.full_name(name)}]" if self.format == "toml" else "an object", value)
        return replace(self, values=value, path=self.full_name(name))

    def _wrong_type(self, name: str, expected: str, value: object) -> NoReturn:
        found, remedy = describe_value(value), self.remedy or f"write {expected}"
        raise self.error("wrong type", name, expected=expected, found=found, remedy=remedy)


# --- values ---


def is_missing(value: object) -> bool:
    """Whether a value is missing: null, blank, or one of `MISSING_WORDS`."""
    if isinstance(value, str):
        # Words are short: longer cells need not be looked at.
        return (len(value) < 20 and value.strip().lower() in MISSING_WORDS) or not is_visible(value)
    return value is None


def is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not is_visible(value))


def looks_like_a_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def allows_decimal_comma(text: str) -> bool:
    """Whether a text is a number if its comma, if any, is decimal."""
    return "." not in text and looks_like_a_number(text.strip().replace(",", "."))


def _is_two_ratings(text: str, scale: Scale) -> bool:
    first, _, second = text.partition(",")
    whole = first.lstrip("+-").isdigit() and second.isdigit() and (second == "0" or second[0] != "0")
    return whole and scale.contains(float(first)) and scale.contains(float(second))


def json_type(value: object) -> str:
    """The type of a JSON value, in words."""
    names = {bool: "true/false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def describe_value(value: object) -> str:
    """A JSON value for a message: its type and its text."""
    return json.dumps(value) if value is None or isinstance(value, bool) else f"{json_type(value)}: {value!r}"


_HEAD, _HEAD_CHARACTERS = 200, 200_000
"""Maximum number of the first records of a file, and of their characters, approximately."""


def first_records(records: Iterator[Record]) -> tuple[list[Record], Iterator[Record]]:
    """The first records of a file, by which its layout is known (the very first may not be rated yet), and the others;
    an error in reading a first record is raised where the others are read."""
    head: list[Record] = []
    size = 0
    try:
        for record in records:
            head.append(record)
            size += sum(map(len, map(str, record.values.values())))
            if len(head) == _HEAD or size > _HEAD_CHARACTERS:
                break
    except InputError as error:
        if not head:
            raise
        return head, _raising(error)
    return head, records


def _raising(error: InputError) -> Iterator[Record]:
    raise error
    yield


# --- ratings ---


def ratings_in(record: Record, task: Task, names: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """The ratings in fields named like aspects; aspects without a rating are left out.

    Raises:
        InputError: An aspect that the task does not have, or a value that is not a rating of it.
    """
    ratings = {}
    for name in names:
        with record.located(name):
            aspect = task.aspect(name)
        values = record.values_in(name, aspect.scale)
        ratings[name] = tuple(rating_of(value, aspect, record, field) for field, value in values)
    return {name: values for name, values in ratings.items() if values}


def rating_of(value: object, aspect: Aspect, record: Record, field: str) -> float:
    """One rater's value on the scale of an aspect.

    Args:
        value: A number; on a scale of two values also one of `YES_NO_WORDS`.
        aspect: The rated aspect.
        record: The record of the value, for errors.
        field: The field of the value, for errors.

    Raises:
        InputError: It is not a rating of the aspect.
    """
    scale = aspect.scale
    choice = YES_NO_WORDS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(choice, bool) and scale.binary:
        return scale.high if choice else scale.low
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and scale.low <= cast("float", value) <= scale.high:
        return float(cast("float", value))
    problem, found = f"rating outside the scale of {aspect.name}", f"{value!r:.40}"
    remedy = "correct it, leave it blank where there is none, or give the raters' scale in a task file"
    if not is_number:
        problem, found = f"not a rating of {aspect.name}", describe_value(value)
        remedy = number_remedy(value) or "correct it or leave it out; take a column that holds no ratings out"
    or_words = ", or yes/no, true/false, pass/fail, good/bad, correct/incorrect" if scale.binary else ""
    raise record.error(problem, field, expected=f"a number from {scale}{or_words}", found=found, remedy=remedy)


def number_remedy(value: object) -> str | None:
    """The remedy for a rating that is written in quotes, as a fraction or percentage, or with a comma; None for other
    values."""
    text = value.strip() if isinstance(value, str) else ""
    if looks_like_a_number(text):
        return "write the number without quotes"
    if "," in text and allows_decimal_comma(text):
        point, semicolon = text.replace(",", "."), text.replace(",", ";")
        return (
            f"write decimals with a point, {point}, or say --columns decimal=comma; several raters in a cell have a "
            f"semicolon, {semicolon}"
        )
    match = _FRACTION.fullmatch(text)
    return f"write the number alone: {match[1].replace(',', '.')} and not {match[0]}" if match else None


# --- conversations and lists in a cell ---

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


# --- records as models ---

Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]

# With a pattern, pydantic refuses halves of surrogate pairs.
AnyText = Annotated[str, StringConstraints(pattern="")]
"""A text that may be blank."""
Text = Annotated[str, StringConstraints(pattern=r"\S")]
"""A text with at least one visible character."""


class FileModel(BaseModel):
    """An object of a JSON file, validated without conversion. Unknown fields, e.g. of other versions, are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class ClosedModel(FileModel):
    """An object that people write by hand: unknown fields are errors."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields(cls, values: Any) -> Any:
        if isinstance(values, dict):
            Record(values, "").refuse_unknown_fields(cls.model_fields)
        return values


def validated(model: type[M], record: Record) -> M:
    """The record as a model.

    Raises:
        InputError: With file, line and field, for the first field that cannot be used.
    """
    try:
        return model.model_validate(record.values)
    except ValidationError as error:
        raise input_error(error, record) from None


_EXPECTED = {
    **dict.fromkeys(("float", "finite"), "a finite number without quotes"),
    "int": "a whole number",
    "bool": "true or false",
    **dict.fromkeys(("list", "tuple"), "a list"),
    **dict.fromkeys(("dict", "model"), "an object"),
}
"""First word of the type of pydantic's error -> what is expected."""


def input_error(error: ValidationError, record: Record) -> InputError:
    """The first error of pydantic about a record, as the `InputError` that the getters of `Record` raise."""
    first = error.errors(include_url=False)[0]
    location, cause = list(first["loc"]), first.get("ctx", {}).get("error")
    if location and location[-1] == "[key]":
        del location[-2:]
    field, kind, value = _field_path(location), first["type"], first["input"]
    if isinstance(cause, InputError):
        return record.with_location(cause, ".".join(filter(None, (field, cause.field))))
    try:
        if kind.startswith("missing"):
            owner = record.full_name(_field_path(location[:-1]))
            replace(record, values=value, path=owner).value(str(location[-1]))
        elif kind.startswith("string"):
            replace(record, values={field: value}).text(field)
    except InputError as refused:
        return refused
    expected = _EXPECTED.get(kind.partition("_")[0], first.get("ctx", {}).get("expected"))
    if record.format == "toml" and expected == "an object":
        expected = f"a table [{record.full_name(field)}]"
    remedy = record.remedy or (expected and f"write {expected}")
    problem, found = "wrong type" if expected else "not usable", describe_value(value)
    return record.error(problem, field, expected=expected or first["msg"], found=found, remedy=remedy)


def _field_path(path: Sequence[int | str]) -> str:
    """The path of a field as in our errors, e.g. `candidates[2].text`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
