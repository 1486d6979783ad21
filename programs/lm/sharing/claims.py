"""Claims on calls: of the processes that want one reply at the same time one asks the LM, and the others wait for it.

A claim is held while its call is in flight, retries included. Of the processes of one machine it is a POSIX record
lock on one byte of the file `claims` in the journal's folder, at an offset that is made from the call's key. The kernel
gives it up when its process ends in whatever way, so that no claim is ever left behind. Where the system or the file
system has no such locks, every process makes its own calls.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from debate_judge.programs.lm.reply import Reply, SharedStore

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
"""Seconds between two looks at a claim that another process holds; a call to an LM takes seconds."""
_PATIENCE = 1800.0
"""Seconds after which another process is waited for no longer: twice as long as a call may usually take."""


class CallClaim:
    """The claim of one call, over all its attempts.

    Args:
        store: Of the replies; None where no other process can want the call, which is claimed then.
        key: Of the call.
    """

    def __init__(self, store: SharedStore | None, key: str) -> None:
        self._store, self._key = store, key
        self.held = store is None
        self.found: Reply | None = None
        """The reply, where another process has brought it before this one could make the call."""

    async def fetch(self) -> Reply | None:
        """Look for the reply once more, where that takes waiting, before the call is claimed."""
        if self._store is not None:
            self.found = await self._store.fetch(self._key)
        return self.found

    async def take(self) -> bool:
        """Whether the call is this process's to make; False while another one is making it."""
        if self._store is not None and not self.held and await self._store.claim(self._key):
            self.held = True
            # Its last holder may have brought the reply since this process has looked.
            self.found = self._store.get(self._key)
        return self.held

    async def wait(self) -> None:
        """Wait until the process that holds the claim has its reply, has failed or has died; the claim is ours then."""
        pause, begun = _FIRST_WAIT, time.monotonic()
        while not await self.take():
            if time.monotonic() - begun >= _PATIENCE:
                # It may have been suspended. The call is made without a claim: at worst it is paid twice.
                self._store, self.held = None, True
                return
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_WAIT)

    def release(self) -> None:
        """Let others have the claim; does nothing where it is not held."""
        if self._store is not None and self.held:
            self.held = False
            self._store.release(self._key)


class FileClaims:
    """The claims of one journal.

    Args:
        folder: The journal's.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "claims"
        self._file: _LockFile | None = None
        self._mine: Counter[int] = Counter()

    def take(self, key: str) -> bool:
        """Claim a call; False where another process, or another journal of this one, has it.

        This journal is granted it again: its client joins equal calls, and a thread that held up the event loop while
        it waited for a call on it would wait for ever.
        """
        if self._file is None:
            self._file = _LockFile.of(self._path)
        byte = _byte(key)
        if not self._mine[byte] and not self._file.lock(byte):
            del self._mine[byte]
            return False
        self._mine[byte] += 1
        return True

    def give_up(self, key: str) -> None:
        byte = _byte(key)
        if self._file is not None and byte in self._mine:
            self._mine[byte] -= 1
            if not self._mine[byte]:
                del self._mine[byte]
                self._file.unlock(byte)

    def close(self) -> None:
        """Give up all claims."""
        if self._file is not None:
            for byte in self._mine:
                self._file.unlock(byte)
            self._mine.clear()
            self._file.leave()
            self._file = None


def _byte(key: str) -> int:
    """Offset of a key's byte: 60 bits, so that two keys hardly ever share one; if they do, one call waits in vain."""
    return int(key[:15], 16)


_OPEN: dict[tuple[int, Path], _LockFile] = {}
"""Process and path -> the file. Record locks belong to the process, and closing any descriptor of a file gives all of
them up: so a process has one descriptor, for all its journals in one folder."""
_OPENING = threading.Lock()


class _LockFile:
    """The file of claims of one folder, as far as this process locks bytes of it."""

    def __init__(self, place: tuple[int, Path]) -> None:
        self._place = place
        self._users = 0
        self._locked: set[int] = set()
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = os.open(place[1], os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)

    @classmethod
    def of(cls, path: Path) -> _LockFile:
        """The file at `path`, opened if no other journal of this process has it open; to be left with `leave`."""
        # A process that was forked has none of the locks of its parent.
        place = os.getpid(), path.resolve()
        with _OPENING:
            file = _OPEN.get(place) or _OPEN.setdefault(place, cls(place))
            file._users += 1
            return file

    def leave(self) -> None:
        with _OPENING:
            self._users -= 1
            if not self._users:
                del _OPEN[self._place]
                if self._descriptor is not None:
                    os.close(self._descriptor)

    def lock(self, byte: int) -> bool:
        with self._lock:
            # To the process that holds it the kernel would grant it again.
            if byte in self._locked or not self._granted(byte):
                return False
            self._locked.add(byte)
            return True

    def _granted(self, byte: int) -> bool:
        if self._descriptor is None:
            return True
        try:
            import fcntl

            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except ImportError:
            return True
        except OSError as error:
            # Any other error means that the file system has no locks.
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def unlock(self, byte: int) -> None:
        with self._lock:
            self._locked.discard(byte)
            if self._descriptor is None:
                return
            with suppress(ImportError, OSError):
                import fcntl

                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)
