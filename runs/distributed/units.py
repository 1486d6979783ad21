"""What is scored: files by path, glob or URL, cut into units, each of which one actor reads, scores and writes.

JSON lines with a group each are cut into ranges of bytes, which begin behind the first line end and go on to the end of
the last line that begins inside (as Hadoop does). Where the judge lets candidates of one source share calls, ranges end
where the source changes. Rows of tables belong together in ways that only a reader from the beginning knows (groups,
names by place, decimal commas), so a table is cut into a few ranges of lines, for each of which it is read from the
beginning. What cannot be cut is one unit.

A unit is read by the reader of all commands, from a copy of what is elsewhere or was cut by bytes.
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

from debate_judge.data.errors import ErrorHandler, InputError
from debate_judge.data.files.columns import ColumnNames, ReadingNotes
from debate_judge.data.files.formats import HUB, TEXT_TABLES, HubName, RecordFile, detect_format, first_line_of
from debate_judge.data.files.reading import jsonl
from debate_judge.data.files.records import Record
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.scoring.scorer import new_entries
from debate_judge.runs.scoring.settings import ScoreFlags

LARGEST, SMALLEST, UNITS = 8 << 20, 256 << 10, 64
"""Bytes of a unit: the input in so many units, within these limits, so that all actors have work to the end."""
TABLE_UNITS = 32
"""Into which a table is cut at most: each is read from the beginning of the file."""
_HUB_ROW = 500
"""Bytes that a row of a set of the hub is taken for."""
_LINES = (".jsonl", ".ndjson", ".json")
_BLOCK = 1 << 20
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
"""Fields in which stores name a version of a file, the surest first."""
_ENDS = 64 << 10
"""Bytes at either end of a file that its fingerprint is of, where its store names no version."""
_FIRST = 20
"""Lines from the first that may show what each line is."""


@dataclass(frozen=True)
class InputFile:
    """One file of the input."""

    name: str
    """As messages name it."""
    place: str
    """Absolute path or URL."""
    size: int
    fingerprint: str = ""
    """What its content is known by; empty where that is not found out yet."""

    @property
    def remote(self) -> bool:
        return "://" in self.place

    @property
    def of_hub(self) -> bool:
        return self.place.startswith(HUB) and not self.remote


@dataclass(frozen=True)
class Unit:
    """A whole file, or a range of it: of lines (or rows), or of bytes where each line is a group."""

    file: InputFile
    name: str
    """Place of the file among the files, and of the unit in it."""
    size: int
    """In bytes, about."""
    start: int = 0
    end: int | None = None
    """None for the whole file."""
    of_lines: bool = False

    @property
    def of_bytes(self) -> bool:
        return self.end is not None and not self.of_lines

    def __str__(self) -> str:
        if self.end is None:
            return self.file.name
        return f"{self.file.name}, {'lines' if self.of_lines else 'bytes'} {self.start:,} to {self.end - 1:,}"


def find_inputs(pattern: str) -> list[InputFile]:
    """The files that a path, a glob or a URL names, in the order of their names.

    Raises:
        InputError: There is none, or its store cannot be reached.
    """
    if pattern.startswith(HUB) and not pattern.startswith(HUB + "//"):
        return [InputFile(pattern, pattern, 0)]
    with storage_errors(pattern):
        files = _remote(pattern) if "://" in pattern else _local(pattern)
    if not files:
        raise InputError("no such file", file=pattern, field="--in", expected="a file, a glob or a URL")
    return files


@contextmanager
def storage_errors(name: str, field: str = "--in") -> Iterator[None]:
    """Turn whatever the block raises, which asks a store, into an error that names the file or folder, and its flag."""
    try:
        yield
    except InputError:
        raise
    # Libraries of object stores have bases of their own: botocore's error about a missing key is no OSError.
    except Exception as error:
        raise InputError(
            "cannot be reached",
            file=name,
            field=field,
            found=f"{type(error).__name__}: {first_line_of(error)}",
            remedy="check the address and its key (s3:// needs the package s3fs, gs:// gcsfs, hf:// huggingface_hub), "
            "and run the command again: it resumes",
        ) from error


def _local(pattern: str) -> list[InputFile]:
    # A file may well be called like a glob.
    names = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
    paths = [(name, Path(name).absolute()) for name in names if Path(name).is_file()]
    return [InputFile(name, str(path), path.stat().st_size) for name, path in paths]


def _remote(pattern: str) -> list[InputFile]:
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    system, path = fsspec.core.url_to_fs(pattern)
    if isinstance(system, LocalFileSystem):
        return _local(path)
    files = system.glob(path, detail=True) if glob.has_magic(path) else {path: system.info(path)}
    return [_described(system.unstrip_protocol(url), info) for url, info in sorted(files.items()) if _is_file(info)]


def _is_file(info: Mapping[str, Any]) -> bool:
    return info.get("type", "file") == "file"


def _described(url: str, info: Mapping[str, Any]) -> InputFile:
    """A file as its store describes it."""
    if info.get("size") is None:
        raise InputError("the server does not say how long the file is", file=url, remedy="copy it to this machine")
    version = next((f"{name} {info[name]}" for name in _VERSIONS if info.get(name)), "")
    return InputFile(url, url, int(info["size"]), version)


def fingerprinted(files: Sequence[InputFile]) -> list[InputFile]:
    """The files with what their content is known by, so that one that has changed is noticed.

    Files of this machine are read whole. Of others it is what the store says (an ETag, a checksum, the time of the last
    change), or else their beginning and end. Of a set of the hub it is what `datasets` says.
    """
    blocks = sum(-(-file.size // _BLOCK) for file in files if not file.remote)
    with StepProgress("MB of the input looked through", blocks) as progress:
        return [file if file.fingerprint else replace(file, fingerprint=_content(file, progress)) for file in files]


def _content(file: InputFile, progress: StepProgress) -> str:
    if file.of_hub:
        return HubName.parse(file.place).fingerprint()
    digest = hashlib.blake2b(digest_size=16)
    with storage_errors(file.name), open_input(file.place) as opened:
        if file.remote:
            digest.update(opened.read(_ENDS))
            opened.seek(max(0, file.size - _ENDS))
            digest.update(opened.read(_ENDS))
        else:
            while block := opened.read(_BLOCK):
                digest.update(block)
                progress.advance()
    return digest.hexdigest()


def open_input(place: str) -> BinaryIO:
    """Open a file to read bytes."""
    if "://" not in place:
        return open(place, "rb")
    import fsspec

    return io.BufferedReader(fsspec.open(place, "rb").open(), _BLOCK)


def cut(files: Sequence[InputFile], columns: Sequence[str], shared: bool = False) -> list[Unit]:
    """Cut the files into units.

    Args:
        files: The input.
        columns: As for `runs.scoring.scorer.new_groups`.
        shared: Whether candidates or aspects share calls, so that groups of one source that follow one another must
            not be divided.
    """
    size = min(LARGEST, max(SMALLEST, sum(file.size for file in files) // UNITS))
    return [unit for number, file in enumerate(files) for unit in _units(file, f"{number:05d}", columns, size, shared)]


def _units(file: InputFile, name: str, columns: Sequence[str], size: int, shared: bool) -> Iterator[Unit]:
    of_lines, starts = False, [0, file.size]
    if file.size > size or file.of_hub:
        if group_a_line(file, columns):
            starts = [*range(0, file.size, size), file.size]
            starts = _where_sources_change(file, ColumnNames.parse(columns), starts) if shared else starts
        elif lines := line_count(file, read=True):
            total = file.size or lines * _HUB_ROW
            count = min(TABLE_UNITS, -(-total // size))
            of_lines, starts = True, [1 + lines * n // count for n in range(count + 1)]
    if len(starts) == 2:
        yield Unit(file, f"{name}-00000", file.size)
        return
    for place, (start, end) in enumerate(pairwise(starts)):
        length = file.size // (len(starts) - 1) if of_lines else end - start
        yield Unit(file, f"{name}-{place:05d}", length, start, end, of_lines)


def line_count(file: InputFile, read: bool = False) -> int | None:
    """The number of the last line or row of a file.

    Args:
        file: It.
        read: Whether to read a sheet or set of the hub for it.

    Returns:
        None where it would have to be read or fetched, or cannot be read, which an actor reports.
    """
    suffix = "" if file.of_hub else Path(file.name).suffix.lower()
    with storage_errors(file.name):
        if suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            with suppress(pa.ArrowException), open_input(file.place) as opened:
                return int(pq.ParquetFile(opened).metadata.num_rows)
        elif suffix in (*TEXT_TABLES, *_LINES):
            return newlines(file) + 1
        elif read and not file.remote:
            with suppress(InputError):
                return max((record.line for record in detect_format(file.place).records()), default=None)
    return None


def newlines(file: InputFile, end: int | None = None) -> int:
    """Line ends in a file, or in its first bytes."""
    count, left = 0, file.size if end is None else end
    with storage_errors(file.name), open_input(file.place) as opened:
        while left and (block := opened.read(min(left, _BLOCK))):
            count += block.count(b"\n")
            left -= len(block)
    return count


def group_a_line(file: InputFile, columns: Sequence[str]) -> bool:
    """Whether each line is a JSON object with candidates; judged by the first one that is an object.

    A file that begins as one array or object over several lines is read whole, as by `data.files.reading.json_records`.
    """
    if file.of_hub or Path(file.name).suffix.lower() not in _LINES:
        return False
    with storage_errors(file.name), open_input(file.place) as opened:
        lines = (line.removeprefix(codecs.BOM_UTF8).strip() for line in opened)
        for number, line in enumerate(islice((line for line in lines if line), _FIRST)):
            if line.startswith(b"[") or (number == 0 and line.endswith((b"{", b"[", b","))):
                return False
            first = _json_object(line)
            if first is not None:
                return "candidates" in ColumnNames.parse(columns).match(tuple(first), ("candidates",))[0]
    return False


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _where_sources_change(file: InputFile, columns: ColumnNames, wanted: Sequence[int]) -> list[int]:
    """For each wanted place the first one behind it at which a line begins whose source is not that of the line before.

    The driver looks for them, and each line is read once at most.
    """
    starts = [0]
    with storage_errors(file.name), open_input(file.place) as opened:
        for place in wanted[1:-1]:
            if place <= starts[-1]:
                continue
            opened.seek(place - 1)
            opened.readline()
            at, last = opened.tell(), None
            while line := opened.readline():
                source = _source(line, columns)
                if None not in (source, last) and source != last:
                    break
                at, last = at + len(line), source or last
            if at >= file.size:
                break
            starts.append(at)
    return [*starts, file.size]


def _source(line: bytes, columns: ColumnNames) -> tuple[object, ...] | None:
    """What groups that may share calls have in common, see `programs.grouping.source_key`; None if it is no group."""
    values = _json_object(line)
    if values is None:
        return None
    names = columns.match(tuple(values), ("group", "task", "source", "context"))[0]
    group, task, source, context = (values.get(names.get(n, "")) for n in ("group", "task", "source", "context"))
    return task, source or group, context


# --- reading a unit ---


@dataclass(frozen=True)
class UnitReading:
    """How the groups of a unit are read; see `runs.scoring.scorer.new_groups`."""

    task: Task
    only: str | None = None
    columns: tuple[str, ...] = ()
    shared: bool = False
    """As for `cut`."""
    keep: bool = False


def read_unit(unit: Unit, reading: UnitReading, notes: ReadingNotes, on_error: ErrorHandler) -> Iterator[RatedGroup]:
    """The groups of a unit in their order.

    Args:
        unit: What to read.
        reading: How.
        notes: As for `new_groups`.
        on_error: Takes an error where something cannot be read, before the group behind it is yielded. A bad line is
            left out where each has a group; any other file ends there.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="debate-unit-") as folder:
            copy, begins = _copied(unit, Path(folder))
            first, end = (unit.start, unit.end) if unit.of_lines else (0, None)
            source, line = None, 0
            for group, at in _groups(unit, copy, begins, reading, notes, on_error):
                # Where calls are shared, all groups of a source are of the unit that its first one is of.
                before, source = source, (group.source or group.id, group.context)
                line = line if reading.shared and source == before else at
                if end is not None and line >= end:
                    return
                if line >= first:
                    yield group
    except InputError as error:
        on_error(error if error.line is None else error.replaced(problem=f"{error.problem}; what follows is not read"))


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
    with storage_errors(file.name), open_input(file.place) as source, path.open("wb") as target:
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
    unit: Unit, copy: InputFile, begins: int, reading: UnitReading, notes: ReadingNotes, on_error: ErrorHandler
) -> Iterator[tuple[RatedGroup, int]]:
    """The groups of a copy with their lines in it; errors have the file and the lines of the input."""

    @cache
    def before() -> int:
        # Counted only where an error names a line: it takes reading all that lies before the unit.
        return newlines(unit.file, begins) if begins else 0

    def in_input(error: InputError) -> InputError:
        if error.file not in (copy.place, copy.name):
            return error
        return error.replaced(file=copy.name, line=None if error.line is None else error.line + before())

    def told(error: InputError) -> None:
        on_error(in_input(error))

    lines = unit.of_bytes or (not unit.of_lines and group_a_line(copy, reading.columns))

    def records() -> Iterator[Record]:
        # A range may begin with a line that looks like the beginning of something else.
        found = jsonl(Path(copy.place), told) if lines else detect_format(copy.place).records()
        return (replace(record, file=copy.name) for record in found)

    try:
        file = RecordFile(copy.name, "JSON", True, records) if lines else detect_format(copy.place)
        file = replace(file, name=copy.name, records=records)
        entries = new_entries(
            file, reading.task, reading.only, reading.columns, keep=reading.keep, notes=notes, on_error=told
        )
        yield from ((entry.group, entry.record.line) for entry in entries)
    except InputError as error:
        raise in_input(error) from None
