"""Checks and writes output files; a path that cannot be written is an `InputError` before any LM call is made."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError


@contextmanager
def write_errors(path: Path, field: str) -> Iterator[None]:
    """Convert an `OSError` of the block, which opens `path` for writing, to an `InputError` with its flag `field`."""
    try:
        yield
    except OSError as error:
        remedy = "choose another path, or remove the obstacle there"
        found = error.strerror or str(error)
        raise InputError("cannot be written", file=path, field=field, found=found, remedy=remedy) from error


def make_folder(path: Path, field: str) -> None:
    """Create a folder with its parents, and check that files can be created in it; raises `InputError` if not."""
    with write_errors(path, field):
        path.mkdir(parents=True, exist_ok=True)
        # Permission bits do not show whether a file can be created (read-only mounts, quotas); creating one does.
        with tempfile.TemporaryFile(dir=path):
            pass


def require_writable(path: str | Path | None, field: str) -> None:
    """Check that a file, if there is one, can be written, and create its folder; an existing file is not changed.

    Raises:
        InputError: It cannot be written; names the flag `field`.
    """
    if path is None:
        return
    path = Path(path)
    with write_errors(path, field):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not path.exists():
            make_folder(path.parent, field)
        elif path.is_file():
            path.open("ab").close()
        elif not os.access(path, os.W_OK):
            # A pipe or a device is not opened: that could block or change it.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_json(path: str | Path, record: Mapping[str, Any], field: str) -> None:
    """Write a record as a file of JSON; raises `InputError` if it cannot be written."""
    with write_errors(Path(path), field):
        Path(path).write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
