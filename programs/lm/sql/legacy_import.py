"""Imports the replies of an existing folder into the table of a store, once.

For the store of a team these are the folder's SQLite store, and for any store the files `*.replies` of older versions:
a line is KEY, a tab, the CRC-32 of key and JSON in hexadecimal digits, a tab, JSON, a newline. An incomplete line, or
one with a wrong checksum, is skipped: its reply is requested again. All files stay.
"""

from __future__ import annotations

import itertools
import json
import logging
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from debate_judge.programs.lm.reply import validated_reply
from debate_judge.programs.lm.sql.tables import REPLIES, Row, reply_of, row_of

_LOG = logging.getLogger(__name__)

_KEY_LENGTH, _PREFIX_LENGTH = 32, 42
"""Length of a key in hexadecimal digits, and of all before the JSON."""

_CHUNK_SIZE = 1000
"""Rows per insert."""


def import_folder(folder: Path, file: Path | None, lm: str, put: Callable[[list[Row]], None]) -> None:
    """Import all replies of a folder.

    Args:
        folder: May contain files of older versions.
        file: A SQLite store, if it exists.
        lm: The LM of the replies.
        put: Inserts the rows whose keys are new.
    """
    count = 0
    stored = _stored_rows(file) if file is not None and file.exists() else ()
    rows = itertools.chain(stored, *(_legacy_rows(path, lm) for path in sorted(folder.glob("*.replies"))))
    while chunk := list(itertools.islice(rows, _CHUNK_SIZE)):
        put(chunk)
        count += len(chunk)
    if count:
        _LOG.info("%s: %d replies of earlier runs were imported into the store", folder, count)


def _stored_rows(file: Path) -> Iterator[Row]:
    """The rows of a SQLite store whose checksums are right."""
    with closing(sqlite3.connect(file)) as database:
        database.row_factory = sqlite3.Row
        names = ", ".join(column.name for column in REPLIES.columns)
        yield from filter(reply_of, map(dict, database.execute(f"SELECT {names} FROM replies")))


def _legacy_rows(path: Path, lm: str) -> Iterator[Row]:
    corrupt = 0
    with path.open("rb") as file:
        for line in file:
            # A killed process may leave an incomplete last line; that is no corruption.
            if line.endswith(b"\n"):
                try:
                    yield _row(line[:-1], lm)
                except (ValueError, LookupError, TypeError):
                    corrupt += 1
    if corrupt:
        _LOG.warning("%s: %d corrupt lines are skipped; their replies are requested again", path, corrupt)


def _row(line: bytes, lm: str) -> Row:
    key, record = line[:_KEY_LENGTH], line[_PREFIX_LENGTH:]
    if line[_KEY_LENGTH:_PREFIX_LENGTH] != b"\t%08x\t" % zlib.crc32(record, zlib.crc32(key)):
        raise ValueError("its checksum is wrong")
    stored = json.loads(record)
    tokens = (stored["input_tokens"], stored["output_tokens"], stored["cached_tokens"])
    reply = validated_reply(stored["text"], tokens, stored["finish"], stored["logprobs"])
    return row_of(key.decode(), lm, str(stored["role"]), reply)
