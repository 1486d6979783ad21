"""Keeps every LM reply on disk, so that no call is paid twice and a run that was stopped continues for free.

A journal is a folder of append-only segments, one per process, which are merged when they are many. A process writes
only its own segment, so several may share a folder; a segment that a kill has torn loses at most its last line. What
the others append is found while they run (`sharing.segment_index`), and a call that several want at once is made by one
of them (`sharing.claims`). A reply is written at the end of the turn of the event loop in which it came, before any
result that rests on it leaves the process, and forced to the disk within a second. A process that was forked must open
a journal of its own.

A line is KEY, a tab, the checksum of the rest in hexadecimal digits, a tab, JSON, a newline. A line whose checksum is
wrong is skipped, counted and named: the reply is asked for again.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.programs.lm.batch.job_files import JobFiles
from debate_judge.programs.lm.reply import Reply, sound_reply
from debate_judge.programs.lm.segments import Segment, merge
from debate_judge.programs.lm.sharing.claims import FileClaims
from debate_judge.programs.lm.sharing.segment_index import KEY, SUM, SegmentIndex, checksum, is_sound

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
        self._index = SegmentIndex(folder)
        self._claims = FileClaims(folder)
        self._segment: Segment | None = None
        self._waiting: dict[str, Reply] = {}
        self._lines: list[tuple[int, bytes]] = []
        self._released: list[str] = []
        self._failure: OSError | None = None
        # The proposers of DSPy's optimizers ask from other threads than the loop's.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def broken(self) -> int:
        """Lines that were skipped because they are not what was written."""
        return self._index.broken

    def get(self, key: str) -> Reply | None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            return waiting
        number = int(key, 16)
        if number not in self._index:
            self._index.look_sometimes()
        try:
            line = self._index.line(number)
            if line is None:
                return None
            if not is_sound(line):
                raise ValueError("its checksum is wrong")
            return reply_of(line[KEY + SUM + 2 :])
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            self._index.drop(number, error)
            return None

    def keys(self) -> Iterator[int]:
        """The keys of all replies that are written, as the numbers that the index holds anyway."""
        return iter(self._index)

    def record(self, key: str) -> str | None:
        """What `record_of` made of a reply; None if there is none or it cannot be read."""
        number = int(key, 16)
        with self._lock:
            waiting = next((line for one, line in self._lines if one == number), None)
        try:
            line = self._index.line(number) if waiting is None else waiting
        except (OSError, LookupError):
            return None
        return line[KEY + SUM + 2 : -1].decode() if line is not None and is_sound(line) else None

    async def fetch(self, key: str) -> Reply | None:
        return self.get(key)

    async def claim(self, key: str) -> bool:
        if not self._claims.take(key):
            return False
        self._index.look()
        return True

    def release(self, key: str) -> None:
        with self._lock:
            if key in self._waiting:
                # Another process that was granted it now would not find the reply.
                self._released.append(key)
                return
        self._claims.give_up(key)

    def put(self, key: str, role: str, reply: Reply) -> None:
        """Keep a reply. Replies that arrive in one turn of the event loop are written together, at its end.

        Raises:
            StoreError: An earlier reply could not be written.
        """
        self.keep(key, reply, record_of(role, reply))

    def keep(self, key: str, reply: Reply, record: str) -> None:
        """`put`, with what `record_of` makes of the reply.

        Raises:
            StoreError: An earlier reply could not be written.
        """
        self._require_written()
        line = _line_of(key.encode(), record.encode())
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
                start = self._segment.append(b"".join(line for _, line in self._lines))
            except OSError as error:
                self._failure = error
                if self._segment is not None:
                    self._segment.close()
                    self._segment = None
                return
            places = {}
            for key, line in self._lines:
                places[key] = start
                start += len(line)
            self._index.add(self._segment.path, places)
            self._lines = []
            self._waiting.clear()
            released, self._released = self._released, []
        for name in released:
            self._claims.give_up(name)

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
            self._index.close()
            self._claims.close()
            if self._segment is not None:
                self._segment.close()


def record_of(role: str, reply: Reply) -> str:
    """What is kept of a reply, as JSON without a line break or a zero character."""
    return json.dumps({"role": role, **{name: getattr(reply, name) for name in _FIELDS}})


def _line_of(key: bytes, record: bytes) -> bytes:
    return b"%b\t%08x\t%b\n" % (key, checksum(key, record), record)


def reply_of(record: str | bytes) -> Reply:
    """The reply of a record.

    Raises:
        ValueError: It is none. So do LookupError and TypeError say.
    """
    stored = json.loads(record)
    tokens = (stored["input_tokens"], stored["output_tokens"], stored["cached_tokens"])
    return sound_reply(stored["text"], tokens, stored["finish"], stored["logprobs"])
