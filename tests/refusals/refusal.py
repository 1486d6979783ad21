"""What is refused, as rows: what is given and what the error names. All rows of all tables pass the same assertions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

SECRET = "Sesame-9417"
"""Stands in the environment of every row, and in some of what is given."""


@dataclass(frozen=True)
class Refusal:
    """`given` is a command line without `debate`, or a call; it runs in a folder that also holds `files`, and to which
    `change` was done, with `patch` in force: what stands for a library that is missing, or makes a limit small."""

    given: str | Callable[[], object]
    field: str | None
    keyword: str
    file: str | None = None
    line: int | None = None
    files: Mapping[str, str | bytes] | None = None
    change: Callable[[Path], object] | None = None
    code: int = 2
    env: Mapping[str, str | None] | None = None
    patch: Callable[[pytest.MonkeyPatch], object] | None = None
    plain: bool = False
    """Whether the problem says by itself what to do."""
    begun: tuple[str, ...] = ()
    """Names of files that a command has begun by then, or changed."""


def row(name: str, *given: object, integration: bool = False, **more: object) -> object:
    """A row of a table, as pytest takes it: `name`, then the parts of a `Refusal`."""
    marks = [pytest.mark.integration] if integration else []
    return pytest.param(Refusal(*given, **more), id=name, marks=marks)  # type: ignore[arg-type]


def rows(given: str | Callable[..., object], *entries: tuple[Any, str | None, str], **more: object) -> list[object]:
    """Rows of one command or call: what is added to it (of a call an argument, or several by name), field, keyword."""
    table = []
    for value, field, keyword in entries:
        if isinstance(given, str):
            command = f"{given} {value}"
            table.append(row(command, command, field, keyword, **more))
        else:
            call = partial(given, **value) if isinstance(value, dict) else partial(given, value)
            table.append(row(f"{given.__name__} {value!r}", call, field, keyword, **more))
    return table


def alike(
    given: Callable[..., object], field: str | None, keyword: str, *values: object, **more: object
) -> list[object]:
    """Rows of a call that refuses all values with the same field and keyword."""
    return rows(given, *((value, field, keyword) for value in values), **more)
