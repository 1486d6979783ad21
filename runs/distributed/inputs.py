"""What is scored: files by path, glob or URL, and the slices that single tasks read.

A file is one slice, read by the reader of all commands, so that formats, `--columns` and errors are the same. JSON
lines with a group each are cut into ranges of bytes, whose tasks begin behind the first line end and go on to the end
of the last line that begins inside (as Hadoop does). Tables are not cut: rows of a group could fall apart, and texts
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
from itertools import islice
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
    told = next((f"{name} {info[name]}" for name in _VERSIONS if info.get(name)), "")
    return InputFile(url, url, int(info["size"]), told)


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


def slices(files: Sequence[InputFile], columns: Sequence[str], size: int = SLICE) -> list[InputSlice]:
    """Cut the files into what single tasks read."""
    found = []
    for number, file in enumerate(files):
        starts = range(0, file.size, size) if file.size > size and group_a_line(file, columns) else [0]
        for ordinal, start in enumerate(starts):
            whole = len(starts) == 1
            found.append(InputSlice(file, f"{number:05d}-{ordinal:05d}", start, None if whole else start + size))
    return [replace(one, end=min(one.end, one.file.size)) if one.end is not None else one for one in found]


def group_a_line(file: InputFile, columns: Sequence[str]) -> bool:
    """Whether each line is a JSON object with candidates; judged by the first one that is an object.

    A file that begins as one array or object over several lines is read whole, as by `data.files.reading.json_records`.
    """
    if Path(file.name).suffix.lower() not in _LINES:
        return False
    with reaching(file.name), open_input(file.place) as opened:
        told = (line.removeprefix(codecs.BOM_UTF8).strip() for line in opened)
        for number, line in enumerate(islice((line for line in told if line), _LOOK)):
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
