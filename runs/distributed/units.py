"""The input: files by path, glob or URL, cut into units, each of which one actor reads, scores and writes.

JSON lines with a group each are cut into ranges of bytes, which begin behind the first line end and go on to the end of
the last line that begins inside (as Hadoop does). Where the judge lets candidates of one source share calls, ranges end
where the source changes. Rows of a table can only be understood from its beginning (groups, numbered candidates,
decimal commas), so a table is cut into a few ranges of lines, for each of which it is read from the beginning. What
cannot be cut is one unit.

A unit is read by the same reader as in all commands; a remote file or a range of bytes is copied to this machine first.
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
from debate_judge.data.files.formats import HUB, TEXT_TABLES, HubName, RecordFile, detect_format
from debate_judge.data.files.reading import first_line_of, jsonl
from debate_judge.data.files.records import Record
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.scoring.scorer import new_records
from debate_judge.runs.scoring.settings import ScoreFlags

MAX_UNIT_BYTES, MIN_UNIT_BYTES, TARGET_UNITS = 8 << 20, 256 << 10, 64
"""Bytes of a unit at most and at least; between them, their number, so that all actors have work to the end."""
MAX_TABLE_UNITS = 32
"""Most units of a table: for each of them the file is read from its beginning."""
_HUB_ROW_BYTES = 500
"""Assumed bytes of a row of a Hugging Face data set."""
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_BLOCK_BYTES = 1 << 20
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
"""Fields in which stores name a version of a file, the surest first."""
_SAMPLE_BYTES = 64 << 10
"""Bytes at either end of a remote file whose hash is its fingerprint, where its store names no version."""
_INSPECTED_LINES = 20
"""Lines that are inspected to tell whether each line is a group."""


@dataclass(frozen=True)
class InputFile:
    """One file of the input."""

    name: str
    """As messages name it."""
    place: str
    """Absolute path or URL. The fields are in the manifest of the output folder (`_manifest.json`)."""
    size: int
    fingerprint: str = ""
    """Identifies its content; empty until `with_fingerprints` computes it."""

    @property
    def remote(self) -> bool:
        return "://" in self.place

    @property
    def from_hub(self) -> bool:
        return self.place.startswith(HUB) and not self.remote


@dataclass(frozen=True)
class Unit:
    """A whole file, or a range of it: of lines (or rows), or of bytes where each line is a group."""

    file: InputFile
    name: str
    """FILE-UNIT: the number of the file among the files, and of the unit in it."""
    size: int
    """Bytes, approximately."""
    start: int = 0
    end: int | None = None
    """None for the whole file."""
    by_lines: bool = False

    @property
    def by_bytes(self) -> bool:
        return self.end is not None and not self.by_lines

    def __str__(self) -> str:
        if self.end is None:
            return self.file.name
        return f"{self.file.name}, {'lines' if self.by_lines else 'bytes'} {self.start:,} to {self.end - 1:,}"


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
    """Turn whatever a block that reaches a store raises into an error that names the file or folder, and its flag."""
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
    # The name of a file may have characters of a glob.
    names = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
    paths = [(name, Path(name).absolute()) for name in names if Path(name).is_file()]
    return [InputFile(name, str(path), path.stat().st_size) for name, path in paths]


def _remote(pattern: str) -> list[InputFile]:
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    filesystem, path = fsspec.core.url_to_fs(pattern)
    if isinstance(filesystem, LocalFileSystem):
        return _local(path)
    files = filesystem.glob(path, detail=True) if glob.has_magic(path) else {path: filesystem.info(path)}
    return [
        _input_file(filesystem.unstrip_protocol(url), info) for url, info in sorted(files.items()) if _is_file(info)
    ]


def _is_file(info: Mapping[str, Any]) -> bool:
    return info.get("type", "file") == "file"


def _input_file(url: str, info: Mapping[str, Any]) -> InputFile:
    """A file as its store describes it."""
    if info.get("size") is None:
        raise InputError("the server does not say how long the file is", file=url, remedy="copy it to this machine")
    version = next((f"{name} {info[name]}" for name in _VERSIONS if info.get(name)), "")
    return InputFile(url, url, int(info["size"]), version)


def with_fingerprints(files: Sequence[InputFile]) -> list[InputFile]:
    """The files with fingerprints of their content, so that a changed one is noticed.

    Local files are hashed. For others it is what the store says (an ETag, a checksum, the time of the last change), or
    else a hash of beginning and end; for a Hugging Face data set, what `datasets` says.
    """
    blocks = sum(-(-file.size // _BLOCK_BYTES) for file in files if not file.remote)
    with StepProgress("MB of the input hashed", blocks) as progress:
        return [file if file.fingerprint else replace(file, fingerprint=_fingerprint(file, progress)) for file in files]


def _fingerprint(file: InputFile, progress: StepProgress) -> str:
    if file.from_hub:
        return HubName.parse(file.place).fingerprint()
    digest = hashlib.blake2b(digest_size=16)
    with storage_errors(file.name), open_input(file.place) as stream:
        if file.remote:
            digest.update(stream.read(_SAMPLE_BYTES))
            stream.seek(max(0, file.size - _SAMPLE_BYTES))
            digest.update(stream.read(_SAMPLE_BYTES))
        else:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
                progress.advance()
    return digest.hexdigest()


def open_input(address: str) -> BinaryIO:
    """Open a file to read bytes."""
    if "://" not in address:
        return open(address, "rb")
    import fsspec

    return io.BufferedReader(fsspec.open(address, "rb").open(), _BLOCK_BYTES)


def cut_into_units(files: Sequence[InputFile], columns: Sequence[str], shares_calls: bool = False) -> list[Unit]:
    """Cut the files into units.

    Args:
        files: The input.
        columns: As for `runs.scoring.scorer.new_groups`.
        shares_calls: Whether candidates or aspects share calls, so that consecutive groups of one source must stay in
            one unit.
    """
    size = min(MAX_UNIT_BYTES, max(MIN_UNIT_BYTES, sum(file.size for file in files) // TARGET_UNITS))
    return [unit for n, file in enumerate(files) for unit in _units(file, f"{n:05d}", columns, size, shares_calls)]


def _units(file: InputFile, name: str, columns: Sequence[str], size: int, shares_calls: bool) -> Iterator[Unit]:
    by_lines, starts = False, [0, file.size]
    if file.size > size or file.from_hub:
        if has_group_per_line(file, columns):
            starts = [*range(0, file.size, size), file.size]
            starts = _source_boundaries(file, ColumnNames.parse(columns), starts) if shares_calls else starts
        elif lines := count_lines(file, full_read=True):
            total = file.size or lines * _HUB_ROW_BYTES
            count = min(MAX_TABLE_UNITS, -(-total // size))
            by_lines, starts = True, [1 + lines * n // count for n in range(count + 1)]
    if len(starts) == 2:
        yield Unit(file, f"{name}-00000", file.size)
        return
    for number, (start, end) in enumerate(pairwise(starts)):
        length = file.size // (len(starts) - 1) if by_lines else end - start
        yield Unit(file, f"{name}-{number:05d}", length, start, end, by_lines)


def count_lines(file: InputFile, full_read: bool = False) -> int | None:
    """The number of the last line or row of a file.

    Args:
        file: Which file.
        full_read: Whether to read a whole sheet or Hugging Face data set to count its rows.

    Returns:
        None if counting would take reading or fetching the file, or if it cannot be read, which an actor reports.
    """
    suffix = "" if file.from_hub else Path(file.name).suffix.lower()
    with storage_errors(file.name):
        if suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            with suppress(pa.ArrowException), open_input(file.place) as stream:
                return int(pq.ParquetFile(stream).metadata.num_rows)
        elif suffix in (*TEXT_TABLES, *_JSON_SUFFIXES):
            # The records of a JSON array on one line are numbered as rows, which are not counted here.
            return None if suffix in _JSON_SUFFIXES and _has_one_line(file) else count_newlines(file) + 1
        elif full_read and not file.remote:
            with suppress(InputError):
                return max((record.line for record in detect_format(file.place).records()), default=None)
    return None


def count_newlines(file: InputFile, end: int | None = None) -> int:
    """Line ends in a file, or in its first bytes."""
    count, remaining = 0, file.size if end is None else end
    with storage_errors(file.name), open_input(file.place) as stream:
        while remaining and (block := stream.read(min(remaining, _BLOCK_BYTES))):
            count += block.count(b"\n")
            remaining -= len(block)
    return count


def _has_one_line(file: InputFile) -> bool:
    """Whether a file has at most one line that is not blank."""
    with open_input(file.place) as stream:
        nonblank = (line for line in stream if line.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n\0"))
        return len(list(islice(nonblank, 2))) < 2


def has_group_per_line(file: InputFile, columns: Sequence[str]) -> bool:
    """Whether each line is a JSON object with candidates; judged by the first one that is an object.

    A file that begins as one array or object over several lines is read whole, as by `data.files.reading.json_records`.
    """
    if file.from_hub or Path(file.name).suffix.lower() not in _JSON_SUFFIXES:
        return False
    with storage_errors(file.name), open_input(file.place) as stream:
        lines = (line.removeprefix(codecs.BOM_UTF8).strip() for line in stream)
        for number, line in enumerate(islice((line for line in lines if line), _INSPECTED_LINES)):
            if line.startswith(b"[") or (number == 0 and line.endswith((b"{", b"[", b","))):
                return False
            first = _json_object(line)
            if first is not None:
                return "candidates" in first
    return False


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _source_boundaries(file: InputFile, columns: ColumnNames, offsets: Sequence[int]) -> list[int]:
    """For each offset the next one at which a line begins whose source differs from that of the line before.

    The driver finds them; each line is read at most once.
    """
    starts = [0]
    with storage_errors(file.name), open_input(file.place) as stream:
        for offset in offsets[1:-1]:
            if offset <= starts[-1]:
                continue
            stream.seek(offset - 1)
            stream.readline()
            position, previous = stream.tell(), None
            while line := stream.readline():
                source = _source(line, columns)
                if None not in (source, previous) and source != previous:
                    break
                position, previous = position + len(line), source or previous
            if position >= file.size:
                break
            starts.append(position)
    return [*starts, file.size]


def _source(line: bytes, columns: ColumnNames) -> tuple[object, ...] | None:
    """The key that groups which may share calls have in common, by `programs.grouping.source_key`; None if no group."""
    values = _json_object(line)
    if values is None:
        return None
    group, task, source, context = (
        values.get(columns.roles.get(role, role)) for role in ("group", "task", "source", "context")
    )
    return task, source or group, context


# --- reading a unit ---


@dataclass(frozen=True)
class ReadingOptions:
    """How the groups of a unit are read; see `runs.scoring.scorer.new_groups`."""

    task: Task
    only_task: str | None = None
    columns: tuple[str, ...] = ()
    shares_calls: bool = False
    """As for `cut_into_units`."""
    keep_columns: bool = False


def read_unit(unit: Unit, options: ReadingOptions, notes: ReadingNotes, on_error: ErrorHandler) -> Iterator[RatedGroup]:
    """The groups of a unit in their order.

    Args:
        unit: What to read.
        options: How to read it.
        notes: As for `new_groups`.
        on_error: Takes an error where something cannot be read, before the group behind it is yielded. A bad line is
            left out where each has a group; any other file ends there.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="debate-unit-") as folder:
            copy, offset = _local_copy(unit, Path(folder))
            first_line, end_line = (unit.start, unit.end) if unit.by_lines else (0, None)
            source, line = None, 0
            for group, group_line in _groups(unit, copy, offset, options, notes, on_error):
                # Where calls are shared, all groups of a source belong to the unit of its first group.
                previous, source = source, (group.source or group.id, group.context)
                line = line if options.shares_calls and source == previous else group_line
                if end_line is not None and line >= end_line:
                    return
                if line >= first_line:
                    yield group
    except InputError as error:
        on_error(error if error.line is None else error.replaced(problem=f"{error.problem}; what follows is not read"))


def all_groups(flags: ScoreFlags, task: Task) -> Iterator[RatedGroup]:
    """The groups of all files, one after the other; what cannot be read is left out."""
    options = ReadingOptions(task, flags.task, flags.columns)
    for unit in cut_into_units(find_inputs(flags.input), flags.columns):
        # A table is read from its beginning for each of its units: once is enough here.
        if not unit.by_lines or unit.start == 1:
            file_unit = replace(unit, end=None, by_lines=False) if unit.by_lines else unit
            yield from read_unit(file_unit, options, ReadingNotes(""), lambda _: None)


def _local_copy(unit: Unit, folder: Path) -> tuple[InputFile, int]:
    """A local file with the content of the unit, and the byte of the input at which it begins."""
    file = unit.file
    if file.from_hub or not (file.remote or unit.by_bytes):
        return file, 0
    path, offset = folder / f"copy{Path(file.name).suffix}", 0
    with storage_errors(file.name), open_input(file.place) as source, path.open("wb") as target:
        if not unit.by_bytes:
            shutil.copyfileobj(source, target)
        else:
            if unit.start:
                source.seek(unit.start - 1)
                # The line that begins before belongs to the unit before.
                source.readline()
                offset = source.tell()
            while source.tell() < (unit.end or 0) and (line := source.readline()):
                target.write(line)
    return replace(file, place=str(path), size=path.stat().st_size), offset


def _groups(
    unit: Unit, copy: InputFile, offset: int, options: ReadingOptions, notes: ReadingNotes, on_error: ErrorHandler
) -> Iterator[tuple[RatedGroup, int]]:
    """The groups of a copy with their lines in it; errors have the file and the lines of the input."""

    @cache
    def lines_before() -> int:
        # Counted only where an error names a line: it takes reading the file up to the unit.
        return count_newlines(unit.file, offset) if offset else 0

    def located_in_input(error: InputError) -> InputError:
        if error.file not in (copy.place, copy.name):
            return error
        return error.replaced(file=copy.name, line=None if error.line is None else error.line + lines_before())

    def report(error: InputError) -> None:
        on_error(located_in_input(error))

    group_per_line = unit.by_bytes or (not unit.by_lines and has_group_per_line(copy, options.columns))

    def records() -> Iterator[Record]:
        # Not recognized anew: a range may begin with a line that looks like another format.
        copy_records = jsonl(Path(copy.place), report) if group_per_line else detect_format(copy.place).records()
        return (replace(record, file=copy.name) for record in copy_records)

    try:
        file = RecordFile(copy.name, "JSON", True, records) if group_per_line else detect_format(copy.place)
        file = replace(file, name=copy.name, records=records)
        group_records = new_records(
            file,
            options.task,
            options.only_task,
            options.columns,
            keep=options.keep_columns,
            notes=notes,
            on_error=report,
        )
        yield from ((entry.group, entry.record.line) for entry in group_records)
    except InputError as error:
        raise located_in_input(error) from None
