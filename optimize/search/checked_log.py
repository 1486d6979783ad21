"""The file of Optuna's studies, with a checksum for each record.

A line is the checksum of the rest in hexadecimal digits, a blank, Optuna's record as JSON, a newline. Records refer to
earlier ones by their order, so what stands behind a broken one cannot be trusted: the file is cut off there. Nothing
that was paid for is lost, for the points that are missing are evaluated again from the kept replies.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from debate_judge.data.errors import InputError

_LOG = logging.getLogger(__name__)


class CheckedLog(BaseJournalBackend):
    """Records in a file that one process at a time has.

    Args:
        file: Made if it is absent.

    Raises:
        InputError: It cannot be read or written.
    """

    def __init__(self, file: Path) -> None:
        self._path = file
        try:
            lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        except OSError as error:
            raise self._unusable(error) from error
        sound = next((number for number, line in enumerate(lines) if not _is_sound(line)), len(lines))
        self._records = [line[9:] for line in lines[:sound]]
        self._end = sum(map(len, lines[:sound]))
        if sound < len(lines):
            _LOG.warning(
                "%s, line %d: a record is broken; it and %d after it are left out and made again from the kept replies",
                file,
                sound + 1,
                len(lines) - sound - 1,
            )
            self._cut()

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The records from this number on."""
        return map(json.loads, self._records[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add records, all or none, and force them to the disk.

        Raises:
            InputError: They cannot be written, e.g. because the disk is full.
        """
        records = [json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs]
        data = b"".join(b"%08x %b" % (zlib.crc32(record), record) for record in records)
        try:
            with self._path.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._cut()
            raise self._unusable(error) from error
        self._records += records
        self._end += len(data)

    def _cut(self) -> None:
        # What cannot even be cut off is found broken when it is read.
        with suppress(OSError):
            os.truncate(self._path, self._end)

    def _unusable(self, error: OSError) -> InputError:
        return InputError(
            "the study's file cannot be used",
            file=self._path,
            field="--store",
            found=error.strerror or str(error),
            remedy="make room, or mend what stands in the way, and run the same command again",
        )


def _is_sound(line: bytes) -> bool:
    return line.endswith(b"\n") and line[:9] == b"%08x " % zlib.crc32(line[9:])
