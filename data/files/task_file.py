"""A user's own task as a TOML file: labels for the texts, and each aspect with its rubric and scale.

    name = "support"
    source_label = "customer message"
    candidate_label = "reply"
    context_label = "policy"            # only where groups carry a context

    [aspects.tone]
    definition = "How the reply treats the customer. 1 is rude, 3 is correct but cold, 5 is warm and patient."
    low = 1
    high = 5
    step = 1                            # 1 if left out

The definition is what a judge goes by: say what to look at and what the ends of the scale mean.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import did_you_mean, shown
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.tasks import TASKS

RESERVED = frozenset({"group", "source", "candidate", "text", "context", "reference", "task"})
"""Columns of the CSV format that are no ratings, and so no names for aspects."""

_TASK_KEYS = ("name", "source_label", "candidate_label", "context_label", "aspects")
_ASPECT_KEYS = ("definition", "low", "high", "step")


def find_task(name: str, folder: Path | None = None) -> Task:
    """The task called `name`: a built-in one, or the file where `name` ends in .toml (relative to `folder`).

    Raises:
        InputError: no such task, or its file cannot be used.
    """
    if name in TASKS:
        return TASKS[name]
    if name.endswith(".toml"):
        return read_task((folder or Path()) / name)
    raise InputError(
        f"unknown task {name!r}",
        expected=", ".join(TASKS) + " or the path of a task file (.toml)",
        found=name,
        remedy=did_you_mean(name, TASKS),
    )


def read_task(path: str | Path) -> Task:
    """Read a task file.

    Raises:
        InputError: with the field, or with the line where the file is not TOML at all.
    """
    path = Path(path)
    table = _Table(path, _parse(path))
    table.refuse_others(_TASK_KEYS)
    aspects = table.table("aspects")
    if not aspects.values:
        raise InputError("a task needs at least one aspect", file=path, field="aspects", expected="[aspects.NAME]")
    return Task(
        name=table.text("name"),
        source_label=table.text("source_label"),
        candidate_label=table.text("candidate_label"),
        aspects=tuple(_aspect(aspects, name) for name in aspects.values),
        **({"context_label": table.text("context_label")} if "context_label" in table.values else {}),
    )


class _Table:
    """One table of the file, with its place in it."""

    def __init__(self, file: Path, values: Mapping[str, object], path: str = "") -> None:
        self.file = file
        self.values = values
        self.path = path

    def text(self, key: str) -> str:
        value = self._required(key)
        if not isinstance(value, str):
            self._wrong(key, "a text in quotes", value)
        if not value.strip():
            self._wrong(key, "a text that is not empty", value)
        return value.strip()

    def number(self, key: str) -> float:
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, "a number without quotes", value)
        return float(value)

    def table(self, key: str) -> _Table:
        value = self._required(key)
        if not isinstance(value, dict):
            self._wrong(key, f"a table [{self._place(key)}]", value)
        return _Table(self.file, value, self._place(key))

    def refuse_others(self, known: tuple[str, ...]) -> None:
        for key in self.values:
            if key not in known:
                raise InputError(
                    f"unknown key {key!r}",
                    file=self.file,
                    field=self._place(key),
                    expected="one of " + ", ".join(known),
                    remedy=did_you_mean(key, known),
                )

    def _required(self, key: str) -> object:
        if key not in self.values:
            raise InputError(
                f"the key {key!r} is missing",
                file=self.file,
                field=self._place(key),
                found="keys " + ", ".join(self.values) if self.values else "no keys",
                remedy=f"add {key} to [{self.path}]" if self.path else f"add {key} at the top of the file",
            )
        return self.values[key]

    def _wrong(self, key: str, expected: str, value: object) -> NoReturn:
        raise InputError("wrong value", file=self.file, field=self._place(key), expected=expected, found=shown(value))

    def _place(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _aspect(aspects: _Table, name: str) -> Aspect:
    # Names become columns of tables and parts of metric names, so they are kept to what both can carry.
    if name in RESERVED or not re.fullmatch(r"\w[\w .-]*", name):
        raise InputError(
            f"{name!r} cannot be the name of an aspect",
            file=aspects.file,
            field="aspects",
            expected="letters, digits, _, -, . and blanks, and none of " + ", ".join(sorted(RESERVED)),
        )
    table = aspects.table(name)
    table.refuse_others(_ASPECT_KEYS)
    definition = table.text("definition")
    step = table.number("step") if "step" in table.values else 1.0
    low, high = table.number("low"), table.number("high")
    try:
        return Aspect(name, definition, Scale(low, high, step))
    except InputError as error:
        raise InputError(
            error.problem, file=aspects.file, field=table.path, expected=error.expected, found=error.found
        ) from None


def _parse(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\s*\(at line (\d+), column \d+\)", str(error))
        raise InputError(f"not valid TOML: {error}", file=path, line=int(place.group(1)) if place else None) from None
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: byte {error.start + 1} of the file", file=path) from None
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise InputError("no such task file", file=path, remedy=did_you_mean(path.name, near)) from None
    except OSError as error:
        raise InputError(f"the task file cannot be read: {error.strerror}", file=path) from None
