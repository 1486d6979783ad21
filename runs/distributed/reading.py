"""Reads a unit as groups: by the reader of all commands, from a copy of what is elsewhere or was cut by bytes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
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
    cut,
    find_inputs,
    group_a_line,
    newlines,
    open_input,
    reaching,
)
from debate_judge.runs.scoring.new_texts import new_entries
from debate_judge.runs.scoring.settings import ScoreFlags


@dataclass(frozen=True)
class UnitReading:
    """How the groups of a unit are read; see `runs.scoring.new_texts.new_groups`."""

    task: Task
    only: str | None = None
    columns: tuple[str, ...] = ()
    shared: bool = False
    """As for `runs.distributed.units.cut`."""
    keep: bool = False


def read_unit(unit: Unit, reading: UnitReading, notes: ReadingNotes, tell: Tell) -> Iterator[RatedGroup]:
    """The groups of a unit in their order.

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
            source, line = None, 0
            for group, at in _groups(unit, copy, begins, reading, notes, tell):
                # Where calls are shared, all groups of a source are of the unit that its first one is of.
                before, source = source, (group.source or group.id, group.context)
                line = line if reading.shared and source == before else at
                if end is not None and line >= end:
                    return
                if line >= first:
                    yield group
    except InputError as error:
        tell(error if error.line is None else error.changed(problem=f"{error.problem}; what follows is not read"))


def all_groups(flags: ScoreFlags, task: Task) -> Iterator[RatedGroup]:
    """The groups of all files, one after the other; what cannot be read is left out."""
    reading = UnitReading(task, flags.task, flags.columns)
    for unit in cut(find_inputs(flags.source), flags.columns):
        # A table is read from its beginning for each of its units: once is enough here.
        if not unit.of_lines or unit.start == 1:
            whole = replace(unit, end=None, of_lines=False) if unit.of_lines else unit
            yield from read_unit(whole, reading, ReadingNotes(""), lambda _: None)


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
    """The groups of a copy with their lines in it; errors have the file and the lines of the input."""

    @cache
    def before() -> int:
        # Counted only where an error names a line: it takes reading all that lies before the unit.
        return newlines(unit.file, begins) if begins else 0

    def in_input(error: InputError) -> InputError:
        if error.file not in (copy.place, copy.name):
            return error
        return error.changed(file=copy.name, line=None if error.line is None else error.line + before())

    def told(error: InputError) -> None:
        tell(in_input(error))

    lines = unit.of_bytes or (not unit.of_lines and group_a_line(copy, reading.columns))

    def records() -> Iterator[Record]:
        # A range may begin with a line that looks like the beginning of something else.
        found = jsonl(Path(copy.place), told) if lines else recognized(copy.place).records()
        return (replace(record, file=copy.name) for record in found)

    try:
        file = RecordFile(copy.name, "JSON", True, records) if lines else recognized(copy.place)
        file = replace(file, name=copy.name, records=records)
        entries = new_entries(
            file, reading.task, reading.only, reading.columns, keep=reading.keep, notes=notes, tell=told
        )
        yield from ((entry.group, entry.record.line) for entry in entries)
    except InputError as error:
        raise in_input(error) from None
