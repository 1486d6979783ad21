"""Reads a unit as groups: by the reader of all commands, from a copy of what is elsewhere or was cut by bytes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from debate_judge.data.errors import InputError, Tell
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.files.formats import RecordFile, recognized
from debate_judge.data.files.reading import jsonl
from debate_judge.data.files.records import Record
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.runs.distributed.units import (
    InputFile,
    Unit,
    group_a_line,
    line_count,
    newlines,
    open_input,
    reaching,
)
from debate_judge.runs.scoring.new_texts import new_entries


class _LinesUnknownError(Exception):
    """An error is to name a line whose number is not known yet."""


@dataclass(frozen=True)
class UnitReading:
    """How the groups of a unit are read; see `runs.scoring.new_texts.new_groups`."""

    task: Task
    only: str | None = None
    columns: tuple[str, ...] = ()
    shared: bool = False
    """As for `runs.distributed.units.cut`."""


def read_unit(unit: Unit, reading: UnitReading, notes: ReadingNotes, tell: Tell) -> Iterator[tuple[RatedGroup, float]]:
    """The groups of a unit in their order, each with the share of the unit, about, that lies before it.

    Args:
        unit: What to read.
        reading: How.
        notes: As for `new_groups`.
        tell: Takes an error where something cannot be read, before the group behind it is yielded. A bad line is left
            out where each has a group; any other file ends there.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="debate-unit-") as folder:
            copy, begins = _copied(unit, Path(folder))
            first, end = (unit.start, unit.end) if unit.of_lines else (0, None)
            length = max(1, (end or line_count(copy) or 0) - first)
            source, line = None, 0
            for group, at in _groups(unit, copy, begins, reading, notes, tell):
                # Where calls are shared, all groups of a source are of the unit that its first one is of.
                before, source = source, (group.source or group.id, group.context)
                line = line if reading.shared and source == before else at
                if end is not None and line >= end:
                    return
                if line >= first:
                    yield group, min(1.0, (at - first) / length)
    except InputError as error:
        tell(error if error.line is None else _moved(error, error.file, 0, "; what follows is not read"))


def _copied(unit: Unit, folder: Path) -> tuple[InputFile, int]:
    """A file of this machine with what is read, and the byte of the input that it begins at."""
    file = unit.file
    if file.of_hub or not (file.remote or unit.of_bytes):
        return file, 0
    path, begins = folder / f"copy{Path(file.name).suffix}", 0
    with reaching(file.name), open_input(file.place) as source, path.open("wb") as target:
        if not unit.of_bytes:
            shutil.copyfileobj(source, target)
        else:
            if unit.start:
                source.seek(unit.start - 1)
                # The line that begins before belongs to the unit before.
                source.readline()
                begins = source.tell()
            while source.tell() < (unit.end or 0) and (line := source.readline()):
                target.write(line)
    return replace(file, place=str(path), size=path.stat().st_size), begins


def _groups(
    unit: Unit, copy: InputFile, begins: int, reading: UnitReading, notes: ReadingNotes, tell: Tell
) -> Iterator[tuple[RatedGroup, int]]:
    """The groups of a copy with their lines in it; errors have the lines of the input."""
    before, given = None if begins else 0, 0
    while True:
        file, tell_renamed = _as_input(unit, copy, before, reading.columns, tell)
        entries = new_entries(file, reading.task, reading.only, reading.columns, notes=notes, tell=tell_renamed)
        try:
            for number, entry in enumerate(entries):
                if number >= given:
                    given += 1
                    yield entry.group, entry.record.line - (before or 0)
            return
        except (_LinesUnknownError, InputError):
            if before is not None:
                raise
            # The same again, with the lines numbered as in the file.
            before = newlines(unit.file, begins)


def _as_input(
    unit: Unit, copy: InputFile, before: int | None, columns: Sequence[str], tell: Tell
) -> tuple[RecordFile, Tell]:
    """The records of a copy, and what takes their errors, under the name and with the lines of the input.

    Args:
        unit: What the copy is of.
        copy: It.
        before: Lines of the input before it; None if they are not known yet.
        columns: As for `group_a_line`.
        tell: Takes the errors of lines.
    """

    def in_input(error: InputError) -> InputError:
        if before is None:
            raise _LinesUnknownError from error
        return _moved(error, copy.name, before) if error.file == copy.place else error

    def tell_renamed(error: InputError) -> None:
        tell(in_input(error))

    def records() -> Iterator[Record]:
        try:
            # A range may begin with a line that looks like the beginning of something else.
            for record in jsonl(Path(copy.place), tell_renamed) if lines else recognized(copy.place).records():
                yield replace(record, file=copy.name, line=record.line + (before or 0))
        except InputError as error:
            raise in_input(error) from None

    lines = unit.of_bytes or (not unit.of_lines and group_a_line(copy, columns))
    try:
        file = RecordFile(copy.name, "JSON", True, records) if lines else recognized(copy.place)
    except InputError as error:
        raise in_input(error) from None
    return replace(file, name=copy.name, records=records), tell_renamed


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
