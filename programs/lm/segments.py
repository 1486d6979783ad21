"""The files of a journal: one that this process appends to, and the many that it may read.

A process locks its segment for as long as it may append, so that another can tell which ones are at rest. Those are
merged when they have become many, for every run leaves one.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import OrderedDict
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

_OPEN = 64
"""Files kept open for reading. A store that a thousand runs have used has a thousand segments."""
_MANY = 64
"""Small segments that are left as they are; more are merged into one when a journal is opened."""
_SMALL = 64 * 1024 * 1024
"""Bytes from which a segment is no longer merged, so that none is copied again and again."""
_SYNC = 1.0
"""Seconds after which what was written is forced to the disk: the most that a power cut loses."""


class OpenFiles:
    """Reads lines of many files, of which it keeps a few open."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, BinaryIO] = OrderedDict()

    def line(self, path: Path, offset: int) -> bytes:
        """The line of a file that begins at `offset`."""
        file = self._open.pop(path, None) or path.open("rb")
        self._open[path] = file
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)[1].close()
        file.seek(offset)
        return file.readline()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _lock(file: BinaryIO | FileIO, *, wait: bool = False) -> bool:
    """Lock a file until it is closed; False where another process has it, or the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def is_at_rest(file: BinaryIO) -> bool:
    """Whether no process appends to a segment any more; its file must be closed soon, for it is locked until then.

    An empty one must not be asked about: its process may be about to lock it.
    """
    return _lock(file)


def merge(folder: Path) -> None:
    """Merge the small segments that no process appends to, if there are many, and delete them.

    Readers that know the old ones find the replies again under the new name (`programs.lm.journal`). A stop at any
    moment leaves every reply in one file at least.
    """
    with ExitStack() as files, suppress(OSError):
        for left in folder.glob("*.merging"):
            file = files.enter_context(left.open("rb"))
            if _lock(file):
                left.unlink(missing_ok=True)
        small = [path for path in folder.glob("*.replies") if 0 < path.stat().st_size < _SMALL]
        if len(small) <= _MANY:
            return
        merged = folder / f"{uuid.uuid4().hex}.merging"
        into = files.enter_context(merged.open("xb"))
        _lock(into)
        done = [path for path in sorted(small) if _copied(path, into)]
        into.flush()
        os.fsync(into.fileno())
        merged.rename(merged.with_suffix(".replies"))
        for path in done:
            path.unlink(missing_ok=True)


def _copied(path: Path, into: BinaryIO) -> bool:
    """Copy the whole lines of a segment that no process appends to, if it is one."""
    try:
        with path.open("rb") as file:
            if not _lock(file):
                return False
            for line in file:
                if line.endswith(b"\n"):
                    into.write(line)
    except FileNotFoundError:
        # Another process has merged it just now.
        return False
    return True


class Segment:
    """A new file of a journal, which one process appends to.

    Args:
        folder: The journal's.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{uuid.uuid4().hex}.replies"
        self._file: FileIO = self.path.open("ab", buffering=0)
        # Before the first byte, for an empty segment is merged by no one.
        _lock(self._file, wait=True)
        self._end = 0
        self.failure: OSError | None = None
        """What kept the system from forcing it to the disk."""
        self._unsynced, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._sync, name="journal-sync", daemon=True)
        self._thread.start()

    def append(self, data: bytes) -> int:
        """Write `data` whole or not at all; returns where it begins.

        Raises:
            OSError: It cannot be written, e.g. because the disk is full. The segment is to be closed then.
        """
        rest = memoryview(data)
        try:
            while rest:
                # A full disk or a signal can cut a write short.
                rest = rest[self._file.write(rest) :]
        except OSError:
            # Where not even that is possible, the line has no end, which a reader takes for the work of a kill.
            with suppress(OSError):
                self._file.truncate(self._end)
            raise
        start, self._end = self._end, self._end + len(data)
        self._unsynced.set()
        return start

    def _sync(self) -> None:
        """In a thread of its own, for a disk may take long: a loop that waited for it would hold all calls up."""
        while not self._closed.is_set():
            self._unsynced.wait()
            self._closed.wait(_SYNC)
            self._unsynced.clear()
            self.sync()

    def sync(self) -> None:
        """Force what was written to the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self.failure = error

    def close(self) -> None:
        """Force what was written to the disk and close the file."""
        self._closed.set()
        self._unsynced.set()
        self._thread.join()
        self._file.close()
