"""Imports the replies of an existing folder into the table of a store, once.

That is, for the store of a team, the SQLite store of the folder, and for any store what older versions have written:
files `*.replies`; a line is KEY, a tab, the CRC-32 of key and rest in hexadecimal digits, a tab, JSON, a newline. A
line that a kill has torn or whose checksum is wrong is skipped: the reply is asked for again. All files stay.
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

_KEY, _HEAD = 32, 42
"""Length of a key in hexadecimal digits, and of all that is before the JSON."""

_AT_ONCE = 1000
"""Rows that are put together."""


def import_folder(folder: Path, file: Path | None, lm: str, put: Callable[[list[Row]], None]) -> None:
    """Put all that a folder holds.

    Args:
        folder: In which an older version may have written.
        file: A SQLite store that may be there.
        lm: Whose replies they are.
        put: Adds rows to the replies, but for keys that are there.
    """
    number = 0
    stored = _stored_rows(file) if file is not None and file.exists() else ()
    rows = itertools.chain(stored, *(_rows(path, lm) for path in sorted(folder.glob("*.replies"))))
    while some := list(itertools.islice(rows, _AT_ONCE)):
        put(some)
        number += len(some)
    if number:
        _LOG.info("%s: %d replies that were there before are in the store now", folder, number)


def _stored_rows(file: Path) -> Iterator[Row]:
    """The rows of a SQLite store that are as they were written."""
    with closing(sqlite3.connect(file)) as database:
        database.row_factory = sqlite3.Row
        names = ", ".join(column.name for column in REPLIES.columns)
        yield from filter(reply_of, map(dict, database.execute(f"SELECT {names} FROM replies")))


def _rows(path: Path, lm: str) -> Iterator[Row]:
    broken = 0
    with path.open("rb") as file:
        for line in file:
            # What a kill has left at the end of a file is no damage.
            if line.endswith(b"\n"):
                try:
                    yield _row(line[:-1], lm)
                except (ValueError, LookupError, TypeError):
                    broken += 1
    if broken:
        _LOG.warning("%s: %d broken lines are skipped; their replies are asked for again", path, broken)


def _row(line: bytes, lm: str) -> Row:
    key, record = line[:_KEY], line[_HEAD:]
    if line[_KEY:_HEAD] != b"\t%08x\t" % zlib.crc32(record, zlib.crc32(key)):
        raise ValueError("its checksum is wrong")
    stored = json.loads(record)
    tokens = (stored["input_tokens"], stored["output_tokens"], stored["cached_tokens"])
    reply = validated_reply(stored["text"], tokens, stored["finish"], stored["logprobs"])
    return row_of(key.decode(), lm, str(stored["role"]), reply)
