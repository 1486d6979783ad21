"""Where in a journal's segments each reply stands, those that other processes append meanwhile included."""

from __future__ import annotations

import logging
import os
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from debate_judge.programs.lm.segments import OpenFiles, is_at_rest

_LOG = logging.getLogger(__name__)

KEY, SUM = 32, 8
"""Lengths of a call's key and of a checksum, in hexadecimal digits."""

_BETWEEN = 0.1
"""Seconds between two looks at the segments that no call waits for."""
_SHARE = 20
"""A look that takes long, as on a network's file system, is repeated only after so many times as long."""


@dataclass(slots=True)
class _Known:
    """A segment, as far as it has been read."""

    path: Path
    end: int = 0
    """Of the last whole line that was read."""


class SegmentIndex:
    """Finds the lines of a journal by key. Memory holds the position of each line (190 bytes), not the line.

    Args:
        folder: The journal's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[_Known] = []
        self._numbers: dict[str, int] = {}
        self._growing: set[int] = set()
        """Those that other processes may still append to."""
        self._where: dict[int, tuple[int, int]] = {}
        self._files = OpenFiles()
        # The proposers of DSPy's optimizers ask from other threads than the loop's.
        self._lock = threading.RLock()
        self._next_look = 0.0
        self.broken = 0
        """Lines that were skipped because they are not what was written."""
        self.look()

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: int) -> bool:
        return key in self._where

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._where))

    def look(self) -> None:
        """Find what other processes have written since the last look."""
        with self._lock:
            begun = time.monotonic()
            try:
                present = {name for name in os.listdir(self._folder) if name.endswith(".replies")}
            except FileNotFoundError:
                present = set()
            for name in sorted(present - self._numbers.keys()):
                self._growing.add(self._number(name))
            for number in sorted(self._growing):
                # What another process merges meanwhile is in a segment that the next look finds.
                with suppress(FileNotFoundError):
                    if os.stat(self._segments[number].path).st_size > self._segments[number].end:
                        self._read_on(number, present)
            now = time.monotonic()
            self._next_look = now + max(_BETWEEN, _SHARE * (now - begun))

    def look_sometimes(self) -> None:
        """`look`, unless that was done a moment ago: a miss must stay cheap."""
        if time.monotonic() >= self._next_look:
            self.look()

    def _number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._segments))
        if number == len(self._segments):
            self._segments.append(_Known(self._folder / name))
        return number

    def _read_on(self, number: int, present: set[str]) -> None:
        """Take in the whole lines that were appended; an unfinished last line is being written, or left by a kill."""
        one, broken = self._segments[number], 0
        with one.path.open("rb") as file:
            # Before the rest is read: nothing comes after it then.
            if is_at_rest(file):
                self._growing.discard(number)
            file.seek(one.end)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if is_sound(line):
                    self._take(int(line[:KEY], 16), number, one.end, present)
                else:
                    broken += 1
                one.end += len(line)
        if broken:
            self.broken += broken
            _LOG.warning("%s: %d broken lines are skipped; their replies are asked for again", one.path, broken)

    def _take(self, key: int, number: int, offset: int, present: set[str]) -> None:
        known = self._where.get(key)
        # A reply that was given out stays the same, though another process may have paid for one as well; what was
        # merged is found under its new name.
        if known is None or self._segments[known[0]].path.name not in present:
            self._where[key] = number, offset

    def add(self, path: Path, places: dict[int, int]) -> None:
        """Take in lines of a segment that this process writes.

        Args:
            path: The segment's.
            places: Key -> offset of the line.
        """
        with self._lock:
            number = self._number(path.name)
            self._growing.discard(number)
            self._where.update((key, (number, offset)) for key, offset in places.items())

    def line(self, key: int) -> bytes | None:
        """The line of a key, None if there is none.

        Raises:
            OSError: It cannot be read.
            LookupError: Its segment is gone, and what it held is in no other.
        """
        if key not in self._where:
            return None
        with self._lock:
            number, offset = self._where[key]
            try:
                return self._files.line(self._segments[number].path, offset)
            except FileNotFoundError:
                self._find_merged()
                number, offset = self._where[key]
                return self._files.line(self._segments[number].path, offset)

    def _find_merged(self) -> None:
        """Read all segments again: another process has merged some into one that may have been read before."""
        for number, one in enumerate(self._segments):
            if one.end:
                one.end = 0
                self._growing.add(number)
        self.look()

    def drop(self, key: int, why: Exception) -> None:
        """Forget a line that cannot be read."""
        self.broken += 1
        number, offset = self._where.pop(key)
        path = self._segments[number].path
        _LOG.warning("%s, byte %d: a reply cannot be read (%s) and is asked for again", path, offset, why)

    def close(self) -> None:
        self._files.close()


def checksum(key: bytes, text: bytes) -> int:
    """Of the line of a reply."""
    return zlib.crc32(text, zlib.crc32(key))


def is_sound(line: bytes) -> bool:
    """Whether a line is what was written."""
    head, start = line[: KEY + SUM + 2], KEY + SUM + 2
    if not line.endswith(b"\n") or head[KEY : KEY + 1] != b"\t" or head[-1:] != b"\t":
        return False
    try:
        int(head[:KEY], 16)
    except ValueError:
        return False
    return head[KEY + 1 : -1] == b"%08x" % checksum(head[:KEY], line[start:-1])
