"""What is refused, as rows: what is given and what the error names. All rows of all tables pass the same assertions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SECRET = "Sesame-9417"
"""Stands in the environment of every row, and in some of what is given."""


@dataclass(frozen=True)
class Refusal:
    """`given` is a command line without `debate`, or a call; it runs in a folder that also holds `files`, and to which
    `change` was done."""

    given: str | Callable[[], object]
    field: str | None
    keyword: str
    file: str | None = None
    line: int | None = None
    files: Mapping[str, str | bytes] | None = None
    change: Callable[[Path], object] | None = None
    code: int = 2
    env: Mapping[str, str | None] | None = None


def row(name: str, *given: object, **more: object) -> object:
    """A row of a table, as pytest takes it: `name`, then the parts of a `Refusal`."""
    return pytest.param(Refusal(*given, **more), id=name)  # type: ignore[arg-type]
