"""Keeps every LM reply on disk, so that no call is paid twice and a run that was stopped continues for free.

A journal is a folder of append-only segments, one per process. A process writes only its own segment, so several may
share a folder; a segment that a kill has torn loses at most its last line. Memory holds the position of each reply
(about 100 bytes), not the reply. A reply is written at the end of the turn of the event loop in which it came, before
any result that rests on it leaves the process. A process that was forked must open a journal of its own.
"""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from dataclasses import fields
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.programs.lm.batch.job_files import JobFiles
from debate_judge.programs.lm.reply import Reply

_KEY = 32
"""Length of a call's key in hexadecimal digits; a line is KEY, a tab, JSON, a newline."""

# `dataclasses.asdict` would copy every value, at 0.03 ms a reply.
_FIELDS = tuple(field.name for field in fields(Reply))


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
        self._folder = folder
        self.jobs = JobFiles(folder, self.flush)
        self._files: list[BinaryIO] = []
        self._where: dict[int, tuple[int, int]] = {}
        for path in sorted(folder.glob("*.replies")):
            self._index(path)
        self._writer: FileIO | None = None
        self._end = 0
        self._waiting: dict[str, Reply] = {}
        self._lines: list[tuple[int, bytes]] = []
        self._failure: OSError | None = None
        # The proposers of DSPy's optimizers ask from other threads than the loop's.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._where)

    def _index(self, path: Path) -> None:
        file = path.open("rb")
        number, offset = len(self._files), 0
        self._files.append(file)
        for line in file:
            if line.endswith(b"\n") and line[_KEY : _KEY + 1] == b"\t":
                self._where[int(line[:_KEY], 16)] = (number, offset)
            offset += len(line)

    def get(self, key: str) -> Reply | None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            return waiting
        place = self._where.get(int(key, 16))
        if place is None:
            return None
        number, offset = place
        file = self._files[number]
        with self._lock:
            file.seek(offset)
            line = file.readline()
        stored = json.loads(line[_KEY + 1 :])
        del stored["role"]
        return Reply(**stored)

    def put(self, key: str, role: str, reply: Reply) -> None:
        """Keep a reply. Replies that arrive in one turn of the event loop are written together, at its end.

        Raises:
            InputError: An earlier reply could not be written.
        """
        self._require_written()
        record = {"role": role, **{name: getattr(reply, name) for name in _FIELDS}}
        line = f"{key}\t{json.dumps(record)}\n".encode()
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
            InputError: It cannot be written, e.g. because the disk is full.
        """
        self._write()
        self._require_written()

    def _write(self) -> None:
        with self._lock:
            if not self._lines or self._failure is not None:
                return
            try:
                if self._writer is None:
                    path = self._folder / f"{uuid.uuid4().hex}.replies"
                    self._writer = path.open("ab", buffering=0)
                    self._files.append(path.open("rb"))
                rest = memoryview(b"".join(line for _, line in self._lines))
                while rest:
                    # A full disk or a signal can cut a write short.
                    rest = rest[self._writer.write(rest) :]
            except OSError as error:
                self._failure = error
                return
            for key, line in self._lines:
                self._where[key] = (len(self._files) - 1, self._end)
                self._end += len(line)
            self._lines = []
            self._waiting.clear()

    def _require_written(self) -> None:
        if self._failure is not None:
            raise InputError(
                "a reply could not be written",
                file=self._folder,
                field="--store",
                found=self._failure.strerror or str(self._failure),
                remedy="make room, or mend what stands in the way, and run the same command again: what was written is "
                "not paid again",
            ) from self._failure

    def close(self) -> None:
        """Write what waits and close the files.

        Raises:
            InputError: It cannot be written.
        """
        try:
            self.flush()
        finally:
            for file in [*self._files, self._writer]:
                if file is not None:
                    file.close()
