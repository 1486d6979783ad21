"""One record of a file with the place it stands at, so that every complaint about it can name that place.

Knows the types a field can have, not what fields mean; that is for the loaders.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn

from debate_judge.data.errors import InputError


@dataclass(frozen=True, slots=True)
class Record:
    """Named values from one place of a file; `path` is the way down to them, e.g. `candidates[2]`."""

    values: Mapping[str, object]
    file: str
    line: int
    path: str = ""

    def place(self, name: str) -> str:
        """The full name of a field of this record, e.g. `candidates[2].text`."""
        return f"{self.path}.{name}" if self.path else name

    def error(
        self,
        problem: str,
        field: str | None = None,
        *,
        expected: str | None = None,
        found: object = None,
        remedy: str | None = None,
    ) -> InputError:
        """An error about this record; `field` is given in full (see `place`)."""
        return InputError(
            problem,
            file=self.file,
            line=self.line,
            field=field or self.path or None,
            expected=expected,
            found=found,
            remedy=remedy,
        )

    def text(self, name: str) -> str:
        """A required text with at least one visible character, unchanged."""
        value = self._required(name)
        if not isinstance(value, str):
            self._wrong(name, "a text", value)
        self._check_characters(name, value)
        if not value.strip():
            raise self.error(f"{name} is empty", self.place(name), expected="a text", found=repr(value))
        return value

    def optional_text(self, name: str) -> str:
        """A text, or the empty text where the field is missing, null or blank."""
        value = self.values.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return ""
        return self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; missing and null are the empty list."""
        if self.values.get(name) is None:
            return ()
        values = self.items(name)
        inner = Record({f"{name}[{i}]": value for i, value in enumerate(values)}, self.file, self.line, self.path)
        return tuple(inner.text(key) for key in inner.values)

    def identifier(self, name: str) -> str:
        """A required id: a text, or a whole number as many files have it."""
        value = self._required(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            self._wrong(name, "a text or a whole number", value)
        return self.text(name)

    def items(self, name: str) -> list[object]:
        """A required list."""
        value = self._required(name)
        if not isinstance(value, list):
            self._wrong(name, "a list", value)
        return value

    def child(self, name: str) -> Record:
        """A required object as a record of its own."""
        value = self._required(name)
        if not isinstance(value, dict):
            self._wrong(name, "an object", value)
        return Record(value, self.file, self.line, self.place(name))

    def children(self, name: str) -> list[Record]:
        """A required list of objects, each as a record of its own; refuses the empty list."""
        values = self.items(name)
        if not values:
            raise self.error(f"{name} is empty", self.place(name), expected="at least one object")
        for i, value in enumerate(values):
            if not isinstance(value, dict):
                self._wrong(f"{name}[{i}]", "an object", value)
        return [
            Record(value, self.file, self.line, self.place(f"{name}[{i}]"))
            for i, value in enumerate(values)
            if isinstance(value, dict)
        ]

    def require(self, *names: str) -> None:
        """Raise unless all these fields are present."""
        for name in names:
            self._required(name)

    def _required(self, name: str) -> object:
        if name not in self.values:
            raise self.error(
                f"the field {name!r} is missing",
                self.place(name),
                found="fields " + ", ".join(self.values) if self.values else "no fields",
                remedy=did_you_mean(name, [n for n in self.values if isinstance(n, str)], "is it called {}?"),
            )
        return self.values[name]

    def _wrong(self, name: str, expected: str, value: object) -> NoReturn:
        raise self.error("wrong type", self.place(name), expected=expected, found=shown(value))

    def _check_characters(self, name: str, value: str) -> None:
        # JSON can spell half of a surrogate pair, which no UTF-8 file, hash or request can carry later.
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.error(
                f"half a character (a lone surrogate) at position {error.start + 1}",
                self.place(name),
                found=value[error.start : error.end].encode("unicode_escape").decode(),
                remedy="write the text again from its original; the escape stands for the half of an emoji or symbol",
            ) from None


def kind(value: object) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    names = {bool: "true/false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def shown(value: object) -> str:
    """A JSON value as it may stand in a message: what it is, and how it is written."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return f"{kind(value)}: {value!r}"


def did_you_mean(name: str, known: Collection[str], wording: str = "did you mean {}?") -> str | None:
    """A question naming the known name nearest to `name`, or None where none is near."""
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    return wording.format(repr(lower[near[0]])) if near else None
