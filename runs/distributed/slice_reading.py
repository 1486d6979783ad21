"""Reads a slice as groups: by the reader of all commands, from a copy where the file is elsewhere or was cut."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.files.formats import RecordFile, recognized
from debate_judge.data.files.hub import HUB
from debate_judge.data.files.records import Record
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.runs.distributed.inputs import InputSlice, group_a_line, open_input
from debate_judge.runs.scoring.new_texts import new_groups

_BLOCK = 1024 * 1024
_MOST_ERRORS = 20
"""Bad lines of one slice that are told; each costs another look at the lines before it."""


@dataclass(frozen=True)
class SliceReading:
    """How the groups of a slice are read; see `runs.scoring.new_texts.new_groups`."""

    task: Task
    only: str | None = None
    columns: tuple[str, ...] = ()


def read_slice(piece: InputSlice, reading: SliceReading, notes: ReadingNotes) -> Iterator[RatedGroup | InputError]:
    """The groups of a slice in their order, and where something cannot be read the error in its place.

    A bad line of JSON lines with a group each is left out, and the lines behind it are read; any other file ends where
    it cannot be read.
    """
    errors, given = 0, 0
    with _copied(piece, reading.columns) as copy:
        while True:
            found = new_groups(copy.records(), reading.task, reading.only, reading.columns, notes=notes)
            taken = 0
            try:
                for group in found:
                    taken += 1
                    if taken > given:
                        yield group
                return
            except InputError as error:
                given = max(given, taken)
                if copy.renumber():
                    # The same again, with the lines numbered as in the file.
                    continue
                yield error
                errors += 1
                if error.line is None or error.unit != "line" or not copy.blank(error.line):
                    return
            if errors == _MOST_ERRORS:
                yield InputError("further lines that cannot be read are not looked for", file=piece.file.name)
                return


class _Copy:
    """A slice as a file on this machine."""

    def __init__(self, piece: InputSlice, folder: Path, columns: Sequence[str]) -> None:
        self._piece, self._folder, self._columns = piece, folder, columns
        self._path = folder / f"slice{Path(piece.file.name).suffix}"
        self._begins = 0
        """Byte of the file that the copy begins at."""
        self._before: int | None = 0
        """Lines of the file before it; None is not known yet."""
        self._own = True
        """Whether it is a copy, which may be changed."""
        self._fetch()

    def _fetch(self) -> None:
        piece, place = self._piece, self._piece.file.place
        if piece.end is None and ("://" not in place):
            self._path, self._own = Path(place), False
            return
        with open_input(place) as source, self._path.open("wb") as target:
            if piece.start:
                source.seek(piece.start - 1)
                # The line that begins before belongs to the slice before.
                source.readline()
                self._begins, self._before = source.tell(), None
            if piece.end is None:
                shutil.copyfileobj(source, target, _BLOCK)
                return
            while (left := piece.end - source.tell()) > 0:
                target.write(source.read(min(left, _BLOCK)))
            if source.tell() > self._begins and not _ends_a_line(source):
                target.write(source.readline())

    def records(self) -> RecordFile | str:
        """To be read; under the name, and with the lines, of the file that it is from."""
        name = self._piece.file.name
        if not self._own and str(self._path) == name:
            return name
        if self._piece.file.place.startswith(HUB) and "://" not in self._piece.file.place:
            return name
        with _renamed(str(self._path), name, 0):
            file = recognized(self._path)
        return replace(file, name=name, records=lambda: self._renumbered(file))

    def _renumbered(self, file: RecordFile) -> Iterator[Record]:
        name, more = self._piece.file.name, self._before or 0
        with _renamed(str(self._path), name, more):
            for record in file.records():
                yield replace(record, file=name, line=record.line + more)

    def renumber(self) -> bool:
        """Find out how many lines come before, if that is not known."""
        if self._before is not None:
            return False
        self._before, left = 0, self._begins
        with open_input(self._piece.file.place) as source:
            while left and (block := source.read(min(left, _BLOCK))):
                self._before += block.count(b"\n")
                left -= len(block)
        return True

    def blank(self, line: int) -> bool:
        """Take out a line, so that those behind it are read; False where lines are no records of their own."""
        if not group_a_line(replace(self._piece.file, place=str(self._path)), self._columns):
            return False
        if not self._own:
            copy = self._folder / f"slice{self._path.suffix}"
            shutil.copyfile(self._path, copy)
            self._path, self._own = copy, True
        start, number = 0, line - (self._before or 0)
        with self._path.open("r+b") as file:
            for _ in range(number - 1):
                file.readline()
            start = file.tell()
            length = len(file.readline().rstrip(b"\r\n"))
            file.seek(start)
            file.write(b" " * length)
        return length > 0


def _ends_a_line(file: Any) -> bool:
    file.seek(file.tell() - 1)
    return bool(file.read(1) == b"\n")


@contextmanager
def _copied(piece: InputSlice, columns: Sequence[str]) -> Iterator[_Copy]:
    with tempfile.TemporaryDirectory(prefix="debate-slice-") as folder:
        yield _Copy(piece, Path(folder), columns)


@contextmanager
def _renamed(copy: str, name: str, more: int) -> Iterator[None]:
    """Have the errors of the block speak about the file that `copy` is a part of."""
    try:
        yield
    except InputError as error:
        if error.file != copy:
            raise
        raise InputError(
            error.problem,
            file=name,
            line=None if error.line is None else error.line + more,
            unit=error.unit,
            field=error.field,
            expected=error.expected,
            found=error.found,
            remedy=error.remedy,
        ) from None
