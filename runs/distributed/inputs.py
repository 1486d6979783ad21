"""What is scored: files by path, glob or URL, and the slices that single tasks read.

A file is one slice, read by the reader of all commands, so that formats, `--columns` and errors are the same. JSON
lines with a group each are cut into ranges of bytes, whose tasks begin behind the first line end and go on to the end
of the last line that begins inside (as Hadoop does). Where the judge lets candidates of one source share calls, ranges
end where no call is shared. Tables are not cut: rows of a group could fall apart, and texts
without ids are named after their place in the file.
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import Columns
from debate_judge.data.files.hub import HUB, HubName, first_line
from debate_judge.runs.runner.display import StepProgress

SLICE = 64 * 1024 * 1024
"""Bytes of a file that one task reads, where it can be cut."""
_LINES = (".jsonl", ".ndjson", ".json")
_BLOCK = 1024 * 1024
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
"""Fields in which stores name a version of a file, the surest first."""
_ENDS = 64 * 1024
"""Bytes at either end of a file that its fingerprint is of, where its store names no version."""
_BACK = 16 * 1024
"""Bytes that are read first to find the lines before a place."""
_LOOK = 20
"""Lines from the first that may tell what each line is."""


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


@dataclass(frozen=True)
class InputSlice:
    """A range of bytes of a file; the whole file where it was not cut."""

    file: InputFile
    name: str
    """Place of the file among the files, and of the slice in it; the names of its parts begin with it."""
    start: int = 0
    end: int | None = None

    @property
    def size(self) -> int:
        return (self.file.size if self.end is None else self.end) - self.start


def find_inputs(pattern: str) -> list[InputFile]:
    """The files that a path, glob or URL names, in the order of their names, without the fingerprints that take long.

    Raises:
        InputError: There is none, or its store cannot be asked.
    """
    if pattern.startswith(HUB) and not pattern.startswith(HUB + "//"):
        return [InputFile(pattern, pattern, 0)]
    with reaching(pattern):
        files = _remote(pattern) if "://" in pattern else _local(pattern)
    if not files:
        raise InputError("no such file", file=pattern, field="--in", expected="a file, a glob or a URL")
    return files


@contextmanager
def reaching(name: str) -> Iterator[None]:
    """Turn whatever the block raises, which asks for a file, into an error that names the file.

    Raises:
        InputError: The block raised something.
    """
    try:
        yield
    except InputError:
        raise
    # Libraries of object stores have bases of their own: botocore's error about a missing key is no OSError.
    except Exception as error:
        raise InputError(
            "the input cannot be reached",
            file=name,
            field="--in",
            found=f"{type(error).__name__}: {first_line(error)}",
            remedy="check the address and its key; s3:// needs the package s3fs, gs:// gcsfs, hf:// huggingface_hub",
        ) from error


def _local(pattern: str) -> list[InputFile]:
    # A file may well be called like a glob.
    names = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
    found = [(name, Path(name).absolute()) for name in names if Path(name).is_file()]
    return [InputFile(name, str(path), path.stat().st_size) for name, path in found]


def _remote(pattern: str) -> list[InputFile]:
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    system, path = fsspec.core.url_to_fs(pattern)
    if isinstance(system, LocalFileSystem):
        return _local(path)
    paths = sorted(system.glob(path)) if glob.has_magic(path) else [path]
    found = [(system.unstrip_protocol(one), system.info(one)) for one in paths]
    return [_told(url, info) for url, info in found if info.get("type", "file") == "file"]


def _told(url: str, info: Mapping[str, Any]) -> InputFile:
    """A file as its store tells of it."""
    if info.get("size") is None:
        raise InputError("the server does not say how long the file is", file=url, remedy="copy it to this machine")
    version = next((f"{name} {info[name]}" for name in _VERSIONS if info.get(name)), "")
    return InputFile(url, url, int(info["size"]), version)


def fingerprinted(files: Sequence[InputFile]) -> list[InputFile]:
    """The files with what their content is known by, so that one that has changed is noticed.

    Files of this machine are read whole. Of others it is what the store says (an ETag, a checksum, the time of the last
    change), or else their beginning and end. Of a set of the hub it is what `datasets` says.

    Raises:
        InputError: One cannot be read.
    """
    blocks = sum(-(-file.size // _BLOCK) for file in files if "://" not in file.place)
    with StepProgress("MB of the input looked through", blocks) as progress:
        return [file if file.fingerprint else replace(file, fingerprint=_content(file, progress)) for file in files]


def _content(file: InputFile, progress: StepProgress) -> str:
    if file.place.startswith(HUB) and "://" not in file.place:
        return HubName.of(file.place).fingerprint()
    digest = hashlib.blake2b(digest_size=16)
    with reaching(file.name), open_input(file.place) as opened:
        if "://" not in file.place:
            while block := opened.read(_BLOCK):
                digest.update(block)
                progress.advance()
        else:
            digest.update(opened.read(_ENDS))
            opened.seek(max(0, file.size - _ENDS))
            digest.update(opened.read(_ENDS))
    return digest.hexdigest()


def open_input(place: str) -> Any:
    if "://" not in place:
        return open(place, "rb")
    import fsspec

    return fsspec.open(place, "rb").open()


def slices(
    files: Sequence[InputFile], columns: Sequence[str], size: int = SLICE, gathered: int = 1
) -> list[InputSlice]:
    """Cut the files into what single tasks read.

    Args:
        files: The input.
        columns: As for `runs.scoring.new_texts.new_groups`.
        size: Bytes from which a slice is full.
        gathered: As in `runs.distributed.parts.PartShape`. Above 1, a slice ends only where a table of the judge ends,
            too, for which the groups around its end are read.
    """
    found = []
    for number, file in enumerate(files):
        starts: Sequence[int] = [0]
        if file.size > size and group_a_line(file, columns):
            alone = range(0, file.size, size)
            starts = alone if gathered == 1 else _between_tables(file, Columns.of(columns), alone, gathered)
        for ordinal, (start, end) in enumerate(pairwise([*starts, file.size])):
            whole = len(starts) == 1
            found.append(InputSlice(file, f"{number:05d}-{ordinal:05d}", start, None if whole else end))
    return found


def group_a_line(file: InputFile, columns: Sequence[str]) -> bool:
    """Whether each line is a JSON object with candidates; judged by the first one that is an object.

    A file that begins as one array or object over several lines is read whole, as by `data.files.reading.json_records`.
    """
    if Path(file.name).suffix.lower() not in _LINES:
        return False
    with reaching(file.name), open_input(file.place) as opened:
        lines = (line.removeprefix(codecs.BOM_UTF8).strip() for line in opened)
        for number, line in enumerate(islice((line for line in lines if line), _LOOK)):
            if line.startswith(b"[") or (number == 0 and line.endswith((b"{", b"[", b","))):
                return False
            first = _json_object(line)
            if first is not None:
                return "candidates" in Columns.of(columns).find(tuple(first), ("candidates",))[0]
    return False


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _between_tables(file: InputFile, columns: Columns, wanted: Sequence[int], gathered: int) -> list[int]:
    """For each wanted place the first one from it on where a line begins whose group shares no call with those before.

    The driver looks for them, not the tasks: from the end of one slice to that of the next every line is read once at
    most, while each task would have to go back to the first group about the source.
    """
    starts = [0]
    with reaching(file.name), open_input(file.place) as opened:
        for place in wanted[1:]:
            if place > starts[-1]:
                found = _table_end(opened, columns, place, starts[-1], gathered)
                starts += [found] if found < file.size else []
    return starts


def _table_end(file: Any, columns: Columns, place: int, before: int, gathered: int) -> int:
    """As `_between_tables` for one place; a table begins at the place `before`.

    Where a table ends, of groups about one source, follows from the number of their candidates from the first one on.
    """
    file.seek(place - 1)
    file.readline()
    at = file.tell()
    last: object = None
    alike = 0
    for line in _lines_backwards(file, at, before):
        if (found := _source_and_count(line, columns)) is not None:
            if last not in (None, found[0]):
                break
            last = found[0]
            alike += found[1]
    file.seek(at)
    while line := file.readline():
        if (found := _source_and_count(line, columns)) is not None:
            if found[0] != last or alike % gathered == 0:
                return at
            alike += found[1]
        at += len(line)
    return at


def _source_and_count(line: bytes, columns: Columns) -> tuple[tuple[object, ...], int] | None:
    """What groups that may share calls have in common, and the number of candidates; None where a line is no group."""
    values = _json_object(line)
    if values is None:
        return None
    names = columns.find(tuple(values), ("group", "task", "source", "context", "candidates"))[0]
    group, task, source, context, candidates = (
        values.get(names.get(name, "")) for name in ("group", "task", "source", "context", "candidates")
    )
    return (task, source or group, context), len(candidates) if isinstance(candidates, list) else 0


def _lines_backwards(file: Any, end: int, start: int) -> Iterator[bytes]:
    """The lines between two places where lines begin, the last one first."""
    rest, length = b"", _BACK
    while end > start:
        begin = max(start, end - length)
        file.seek(begin)
        # Longer each time, so that neither a long line nor a store that answers in large blocks is read many times.
        rest, *lines = (file.read(end - begin) + rest).split(b"\n")
        end, length = begin, 2 * length
        yield from reversed(lines)
    yield rest
