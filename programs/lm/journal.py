"""Keeps every LM reply on disk, so that no call is paid twice and a run that was stopped continues for free.

A journal is a folder of append-only segments, one per process, which are merged when they are many. A process writes
only its own segment, so several may share a folder; a segment that a kill has torn loses at most its last line. Memory
holds the position of each reply (about 100 bytes), not the reply. A reply is written at the end of the turn of the
event loop in which it came, before any result that rests on it leaves the process, and forced to the disk within a
second. A process that was forked must open a journal of its own.

A line is KEY, a tab, the checksum of the rest in hexadecimal digits, a tab, JSON, a newline. A line whose checksum is
wrong is skipped, counted and named: the reply is asked for again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.programs.lm.batch.job_files import JobFiles
from debate_judge.programs.lm.reply import Reply, sound_reply
from debate_judge.programs.lm.segments import OpenFiles, Segment, merge

_LOG = logging.getLogger(__name__)

_KEY, _SUM = 32, 8
"""Lengths of a call's key and of a checksum, in hexadecimal digits."""

# `dataclasses.asdict` would copy every value, at 0.03 ms a reply.
_FIELDS = tuple(field.name for field in fields(Reply))


class StoreError(InputError):
    """A reply that was paid for cannot be kept, so that the run must not go on."""


class Journal:
    """A `programs.lm.reply.ReplyStore` on disk.

    Args:
        folder: Made if it is absent.
        read_only: Whether nothing will be put; the folder must exist then, and may be one that cannot be written.

    Raises:
        InputError: The folder cannot be written.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        if not read_only:
            make_folder(folder, "--store")
            merge(folder)
        self._folder = folder
        self.jobs = JobFiles(folder, self.flush)
        self._paths: list[Path] = []
        self._files = OpenFiles()
        self._where: dict[int, tuple[int, int]] = {}
        self.broken = 0
        """Lines that were skipped because they are not what was written."""
        self._index_new()
        self._segment: Segment | None = None
        self._waiting: dict[str, Reply] = {}
        self._lines: list[tuple[int, bytes]] = []
        self._failure: OSError | None = None
        # The proposers of DSPy's optimizers ask from other threads than the loop's.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._where)

    def _index_new(self) -> None:
        """Find what is in the segments that are not known yet."""
        known = set(self._paths)
        while new := sorted(set(self._folder.glob("*.replies")) - known):
            known.update(new)
            for path in new:
                # What another process merges meanwhile is in a segment that the next look finds.
                with suppress(FileNotFoundError):
                    self._index(path)

    def _index(self, path: Path) -> None:
        number, broken = len(self._paths), 0
        self._paths.append(path)
        for offset, line, last in _lines_of(path):
            if _is_sound(line):
                self._where[int(line[:_KEY], 16)] = (number, offset)
            elif not last or line.endswith(b"\n"):
                # An unfinished last line is what a kill leaves.
                broken += 1
        if broken:
            self.broken += broken
            _LOG.warning("%s: %d broken lines are skipped; their replies are asked for again", path, broken)

    def get(self, key: str) -> Reply | None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            return waiting
        place = self._where.get(int(key, 16))
        if place is None:
            return None
        number, offset = place
        path = self._paths[number]
        try:
            with self._lock:
                try:
                    line = self._files.line(path, offset)
                except FileNotFoundError:
                    # Another process has merged it.
                    self._index_new()
                    number, offset = self._where[int(key, 16)]
                    path = self._paths[number]
                    line = self._files.line(path, offset)
            if not _is_sound(line):
                raise ValueError("its checksum is wrong")
            return _reply_of(line)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            self.broken += 1
            del self._where[int(key, 16)]
            _LOG.warning("%s, byte %d: a reply cannot be read (%s) and is asked for again", path, offset, error)
            return None

    def put(self, key: str, role: str, reply: Reply) -> None:
        """Keep a reply. Replies that arrive in one turn of the event loop are written together, at its end.

        Raises:
            StoreError: An earlier reply could not be written.
        """
        self._require_written()
        line = _line_of(key, role, reply)
        with self._lock:
            self._waiting[key] = reply
            self._lines.append((int(key, 16), line))
            first = len(self._lines) == 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if first:
            # What it raised there would reach no caller; the next `put` or `flush` raises it.
            loop.call_soon(self._write)

    def flush(self) -> None:
        """Write what waits, in one system call, so that it has left the process.

        Raises:
            StoreError: It cannot be written, e.g. because the disk is full.
        """
        # Perhaps there is room again.
        self._failure = None
        self._write()
        self._require_written()

    def _write(self) -> None:
        with self._lock:
            if not self._lines or self._failure is not None:
                return
            try:
                if self._segment is None:
                    self._segment = Segment(self._folder)
                    self._paths.append(self._segment.path)
                start = self._segment.append(b"".join(line for _, line in self._lines))
            except OSError as error:
                self._failure = error
                if self._segment is not None:
                    self._segment.close()
                    self._segment = None
                return
            for key, line in self._lines:
                self._where[key] = (len(self._paths) - 1, start)
                start += len(line)
            self._lines = []
            self._waiting.clear()

    def _require_written(self) -> None:
        failure = self._failure or (self._segment.failure if self._segment is not None else None)
        if failure is not None:
            raise StoreError(
                "a reply could not be written",
                file=self._folder,
                field="--store",
                found=failure.strerror or str(failure),
                remedy="make room, or mend what stands in the way, and run the same command again: what was written is "
                "not paid again",
            ) from failure

    def close(self) -> None:
        """Write what waits, force it to the disk and close the files.

        Raises:
            StoreError: It cannot be written.
        """
        try:
            self.flush()
        finally:
            self._files.close()
            if self._segment is not None:
                self._segment.close()


def _line_of(key: str, role: str, reply: Reply) -> bytes:
    record = {"role": role, **{name: getattr(reply, name) for name in _FIELDS}}
    text = json.dumps(record).encode()
    return b"%b\t%08x\t%b\n" % (key.encode(), _checksum(key.encode(), text), text)


def _checksum(key: bytes, text: bytes) -> int:
    return zlib.crc32(text, zlib.crc32(key))


def _is_sound(line: bytes) -> bool:
    head, start = line[: _KEY + _SUM + 2], _KEY + _SUM + 2
    if not line.endswith(b"\n") or head[_KEY : _KEY + 1] != b"\t" or head[-1:] != b"\t":
        return False
    try:
        int(head[:_KEY], 16)
    except ValueError:
        return False
    return head[_KEY + 1 : -1] == b"%08x" % _checksum(head[:_KEY], line[start:-1])


def _reply_of(line: bytes) -> Reply:
    stored = json.loads(line[_KEY + _SUM + 2 :])
    tokens = (stored["input_tokens"], stored["output_tokens"], stored["cached_tokens"])
    return sound_reply(stored["text"], tokens, stored["finish"], stored["logprobs"])


def _lines_of(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Offset and content of each line, and whether it is the last."""
    offset, before = 0, None
    with path.open("rb") as file:
        for line in file:
            if before is not None:
                yield offset, before, False
                offset += len(before)
            before = line
    if before is not None:
        yield offset, before, True
