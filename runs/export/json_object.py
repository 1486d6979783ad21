"""JSON objects of an export with their place in it, so that every complaint can name file and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import kind


class JsonObject:
    """A JSON object; `path` is the way down to it from the top of the file."""

    def __init__(self, file: Path, values: dict[str, Any], path: str = "") -> None:
        self.file = file
        self.values = values
        self.path = path

    def error(
        self,
        problem: str,
        field: str = "",
        *,
        expected: str | None = None,
        found: object = None,
        remedy: str | None = "compile the judge again, or restore the folder from a copy",
    ) -> InputError:
        """An error about this object or a field of it."""
        place = ".".join(part for part in (self.path, field) if part)
        return InputError(problem, file=self.file, field=place or None, expected=expected, found=found, remedy=remedy)

    def text(self, name: str, *, blank: bool = False) -> str:
        """A required text; one without any visible character only where `blank` allows it."""
        value = self._required(name)
        if not isinstance(value, str) or not (blank or value.strip()):
            self._wrong(name, "a text", value)
        return value

    def number(self, name: str) -> float:
        """A required number."""
        value = self._required(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(name, "a number", value)
        return float(value)

    def child(self, name: str) -> JsonObject:
        """A required object."""
        value = self._required(name)
        if not isinstance(value, dict):
            self._wrong(name, "an object", value)
        return JsonObject(self.file, value, f"{self.path}.{name}" if self.path else name)

    def children(self, name: str) -> list[JsonObject]:
        """A required list of objects."""
        value = self._required(name)
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            self._wrong(name, "a list of objects", value)
        path = f"{self.path}.{name}" if self.path else name
        return [JsonObject(self.file, v, f"{path}[{i}]") for i, v in enumerate(value)]

    def _required(self, name: str) -> Any:
        if name not in self.values:
            found = "fields " + ", ".join(map(str, self.values)) if self.values else "no fields"
            raise self.error(f"the field {name!r} is missing", name, found=found)
        return self.values[name]

    def _wrong(self, name: str, expected: str, value: object) -> NoReturn:
        raise self.error("wrong value", name, expected=expected, found=f"{kind(value)}: {value!r}")


def read_object(file: Path) -> JsonObject:
    """Read a file that holds one JSON object.

    Raises:
        InputError: it is missing, is not JSON or holds something else.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        problem = "the file is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise InputError(problem, file=file, expected="a JSON object", remedy="restore the folder") from None
    if not isinstance(values, dict):
        raise InputError("not part of an export", file=file, expected="a JSON object", found=kind(values))
    return JsonObject(file, values)
