"""Reads the first sheet of a workbook in a subprocess, with limits on memory and time.

The library allocates the smallest rectangle around all cells: a single cell far down and to the right, or a file that
unpacks to gigabytes, would crash the process that reads it.

    python data/files/workbook.py ratings.xlsx 1000000000     # the sheets, then a JSON list for each row
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

MAX_SECONDS = 30
MAX_MEMORY = 1 << 30


class WorkbookError(Exception):
    """The workbook cannot be read, for the reason in the message."""


def open_workbook(path: str) -> tuple[list[str], int, Iterator[list[str]]]:
    """The names of the sheets, the number of the first sheet's first row that is not empty, and its rows as texts.

    Raises:
        WorkbookError: With what is wrong.
    """
    out: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (the rows are read from it later)
    try:
        # -P keeps this folder off sys.path, where its modules would shadow others of the same name.
        process = subprocess.run(
            [sys.executable, "-P", __file__, path, str(MAX_MEMORY)],
            stdout=out,
            stderr=subprocess.DEVNULL,
            timeout=MAX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WorkbookError(f"it takes more than {MAX_SECONDS} seconds to read") from None
    out.seek(0)
    try:
        header = json.loads(out.readline() or "{}")
    except ValueError:
        header = {}
    if process.returncode or "sheets" not in header:
        out.close()
        raise WorkbookError(header.get("error") or f"it takes more than {MAX_MEMORY >> 20} MB to read, or is damaged")
    return header["sheets"], header["first"], _rows(out)


def _rows(out: IO[str]) -> Iterator[list[str]]:
    with out:
        for line in out:
            yield json.loads(line)


def _cell_text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _print_sheet(path: str, limit: int) -> None:
    import python_calamine

    with suppress(ImportError, ValueError, OSError):  # Not every system has these limits.
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        book = python_calamine.CalamineWorkbook.from_path(path)
        sheet = book.get_sheet_by_index(0) if book.sheet_names else None
    except (python_calamine.CalamineError, OSError, IndexError) as error:
        print(json.dumps({"error": f"{type(error).__name__} {error}".splitlines()[0]}))
        return
    start = None if sheet is None else sheet.start
    print(json.dumps({"sheets": book.sheet_names, "first": 0 if start is None else start[0] + 1}))
    for row in [] if sheet is None or start is None else sheet.to_python(skip_empty_area=True):
        print(json.dumps([_cell_text(value) for value in row]))


if __name__ == "__main__":
    _print_sheet(sys.argv[1], int(sys.argv[2]))
