"""Reads a sheet of a workbook in a subprocess, with limits on memory and time.

The library allocates the smallest rectangle around all cells: a single cell far down and to the right, or a file that
unpacks to gigabytes, would crash the process that reads it.

    python data/files/workbook.py ratings.xlsx 1000000000 ""     # the sheets, then a row in each line
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import IO

MAX_SECONDS = 30
MAX_MEMORY = 1 << 30


class Sheet:
    """The rows of a sheet that are not blank, in a temporary file from which they can be read several times."""

    def __init__(self, rows: IO[bytes], sheets: list[str]) -> None:
        self.sheets = sheets
        """The names of the visible sheets of the workbook, or of all if none is; the first one is this."""
        self._rows, self._start = rows, rows.tell()

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows as texts, with the numbers that Excel shows."""
        at = self._start
        while self._rows.seek(at) >= 0 and (line := self._rows.readline()):
            at = self._rows.tell()
            number, *cells = json.loads(line)
            yield number, cells


def open_workbook(path: str, sheet: str = "") -> Sheet:
    """A sheet of a workbook, by default the first visible one; a file that has not changed is not read a second time.

    Raises:
        OSError: The file cannot be opened.
        ValueError: It is no workbook, or one beyond the limits.
    """
    with open(path, "rb") as file:  # The other process could not say why a file cannot be opened.
        state = os.fstat(file.fileno())
    return _read(path, state.st_ino, state.st_mtime_ns, state.st_size, MAX_SECONDS, MAX_MEMORY, sheet)


@lru_cache(maxsize=1)
def _read(path: str, _inode: int, _changed: int, _size: int, max_seconds: float, max_memory: int, sheet: str) -> Sheet:
    out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (the rows are read from it later)
    # -P keeps this folder off sys.path, where its modules would shadow others of the same name.
    command = [sys.executable, "-P", __file__, path, str(max_memory), sheet]
    try:
        process = subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, timeout=max_seconds, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"it takes more than {max_seconds} seconds to read") from None
    out.seek(0)
    header = {}
    with suppress(ValueError):
        header = json.loads(out.readline() or "{}")
    if process.returncode or not header.get("sheets"):
        out.close()
        raise ValueError(header.get("error") or f"it takes more than {max_memory >> 20} MB to read, or is damaged")
    return Sheet(out, header["sheets"])


def _print_sheet(path: str, limit: int, wanted: str) -> None:
    import python_calamine

    with suppress(ImportError, ValueError, OSError):  # Not every system has these limits.
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        book = python_calamine.CalamineWorkbook.from_path(path)
        names = [s.name for s in book.sheets_metadata if "Hidden" not in str(s.visible)] or book.sheet_names
        sheet = book.get_sheet_by_name(wanted or names[0])
    except (python_calamine.CalamineError, OSError, IndexError) as error:
        print(json.dumps({"error": f"{type(error).__name__} {error}".splitlines()[0]}))
        return
    print(json.dumps({"sheets": names}))
    for number, row in enumerate(sheet.to_python(skip_empty_area=True), start=(sheet.start or (0,))[0] + 1):
        cells = [str(int(c)) if isinstance(c, float) and c.is_integer() else str(c) for c in row]
        if any(map(str.strip, cells)):
            print(json.dumps([number, *cells]))


if __name__ == "__main__":
    _print_sheet(sys.argv[1], int(sys.argv[2]), sys.argv[3])
