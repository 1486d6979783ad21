"""Reads a slice as groups: by the reader of all commands, from a copy where the file is elsewhere or was cut."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError, Tell
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.files.formats import RecordFile, recognized
from debate_judge.data.files.hub import HUB
from debate_judge.data.files.reading import jsonl
from debate_judge.data.files.records import Record
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.runs.distributed.inputs import InputSlice, group_a_line, open_input, reaching
from debate_judge.runs.scoring.new_texts import new_groups

_BLOCK = 1024 * 1024


class _LinesUnknownError(Exception):
    """Something is to be told of a line whose number is not known yet."""


@dataclass(frozen=True)
class SliceReading:
    """How the groups of a slice are read; see `runs.scoring.new_texts.new_groups`."""

    task: Task
    only: str | None = None
    columns: tuple[str, ...] = ()


def read_slice(piece: InputSlice, reading: SliceReading, notes: ReadingNotes, tell: Tell) -> Iterator[RatedGroup]:
    """The groups of a slice in their order.

    Args:
        piece: What to read.
        reading: How.
        notes: As for `new_groups`.
        tell: Takes an error where something cannot be read, before the group behind it is yielded. A bad line is left
            out where each has a group; any other file ends there.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="debate-slice-") as folder:
            yield from _groups(_Copy(piece, reading.columns, Path(folder), tell), reading, notes)
    except InputError as error:
        tell(error if error.line is None else _moved(error, error.file, 0, "; what follows is not read"))


def _groups(copy: _Copy, reading: SliceReading, notes: ReadingNotes) -> Iterator[RatedGroup]:
    given = 0
    while True:
        found = new_groups(copy.records(), reading.task, reading.only, reading.columns, notes=notes, tell=copy.tell)
        try:
            for number, group in enumerate(found):
                if number == given:
                    given += 1
                    yield group
            return
        except _LinesUnknownError:
            # The same again, with the lines numbered as in the file.
            copy.count_lines_before()


class _Copy:
    """A slice as a file on this machine."""

    def __init__(self, piece: InputSlice, columns: Sequence[str], folder: Path, tell: Tell) -> None:
        self._piece, self._columns, self._tell = piece, columns, tell
        self._path = folder / f"slice{Path(piece.file.name).suffix}"
        self._begins = 0
        """Byte of the file that the copy begins at."""
        self._before: int | None = 0
        """Lines of the file before it; None is not known yet."""
        self._fetch()

    def _fetch(self) -> None:
        piece, place = self._piece, self._piece.file.place
        if piece.end is None and ("://" not in place):
            self._path = Path(place)
            return
        with reaching(piece.file.name), open_input(place) as source, self._path.open("wb") as target:
            if piece.end is None:
                shutil.copyfileobj(source, target, _BLOCK)
                return
            if piece.start:
                source.seek(piece.start - 1)
                # The line that begins before belongs to the slice before.
                source.readline()
                self._begins, self._before = source.tell(), None
            while (left := piece.end - source.tell()) > 0:
                target.write(source.read(min(left, _BLOCK)))
            if source.tell() > self._begins and not _ends_a_line(source):
                target.write(source.readline())

    def records(self) -> RecordFile | str:
        """To be read; under the name, and with the lines, of the file that it is from."""
        name = self._piece.file.name
        hub = self._piece.file.place.startswith(HUB) and "://" not in self._piece.file.place
        if hub:
            return name
        # A part of JSON lines may begin with a line that looks like the beginning of something else.
        if self._piece.end is not None or group_a_line(replace(self._piece.file, place=str(self._path)), self._columns):
            file = RecordFile(name, "JSON", True, lambda: jsonl(self._path, self.tell))
        else:
            with self._renamed():
                file = recognized(self._path)
        return replace(file, name=name, records=lambda: self._renumbered(file))

    def _renumbered(self, file: RecordFile) -> Iterator[Record]:
        with self._renamed():
            for record in file.records():
                yield replace(record, file=self._piece.file.name, line=record.line + (self._before or 0))

    def tell(self, error: InputError) -> None:
        """Tell an error of a record under the name of the file."""
        self._tell(self._as_in_file(error))

    @contextmanager
    def _renamed(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise self._as_in_file(error) from None

    def _as_in_file(self, error: InputError) -> InputError:
        if self._before is None:
            raise _LinesUnknownError from error
        if error.file != str(self._path):
            return error
        return _moved(error, self._piece.file.name, self._before)

    def count_lines_before(self) -> None:
        """Find out how many lines the file has before the copy."""
        self._before, left = 0, self._begins
        with reaching(self._piece.file.name), open_input(self._piece.file.place) as source:
            while left and (block := source.read(min(left, _BLOCK))):
                self._before += block.count(b"\n")
                left -= len(block)


def _ends_a_line(file: Any) -> bool:
    file.seek(file.tell() - 1)
    return bool(file.read(1) == b"\n")


def _moved(error: InputError, file: str | None, lines: int, more: str = "") -> InputError:
    """The error as one about a file that its file is a part of."""
    return InputError(
        error.problem + more,
        file=file,
        line=None if error.line is None else error.line + lines,
        unit=error.unit,
        field=error.field,
        expected=error.expected,
        found=error.found,
        remedy=error.remedy,
    )
