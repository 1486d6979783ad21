"""Places that a command writes to: one that cannot be written is an error of input, told before anything is spent."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from debate_judge.data.errors import InputError


@contextmanager
def opening(path: Path, field: str) -> Iterator[None]:
    """Turn an `OSError` of the block, which opens `path` for writing, into an error that names the flag.

    Args:
        path: The file or folder.
        field: The flag or argument that named it, e.g. `--out`.

    Raises:
        InputError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            "cannot be written",
            file=path,
            field=field,
            found=error.strerror or str(error),
            remedy="choose another place, or change what stands in the way there",
        ) from error


def make_folder(path: Path, field: str) -> None:
    """Make a folder with its parents, and see that files can be made in it.

    Raises:
        InputError: They cannot.
    """
    with opening(path, field):
        path.mkdir(parents=True, exist_ok=True)
        # A folder that is there says nothing about whether it may be written to; only a file in it does.
        with tempfile.TemporaryFile(dir=path):
            pass
