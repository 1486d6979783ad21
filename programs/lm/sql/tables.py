"""The tables of a store of replies, statements about several rows, and how a reply becomes a row and one again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, String, Table, Text

from debate_judge.programs.lm.reply import Reply

SCHEMA = 1
"""Version of the tables; another version is refused."""

METADATA = MetaData()

# fmt: off
REPLIES = Table(
    "replies", METADATA,
    Column("key", String(32), primary_key=True),
    *(Column(name, Text, nullable=False) for name in ("lm", "role", "text")),
    *(Column(name, BigInteger, nullable=False) for name in ("input_tokens", "output_tokens", "cached_tokens")),
    Column("finish", Text, nullable=False), Column("logprobs", Text), Column("checksum", String(16), nullable=False),
)
CLAIMS = Table(
    "claims", METADATA,
    Column("key", String(32), primary_key=True), Column("owner", Text, nullable=False),
    Column("expires", Float, nullable=False),
)
BATCH_JOBS = Table(
    "batch_jobs", METADATA,
    Column("token", String(64), primary_key=True), Column("made", Float, nullable=False),
    Column("record", Text, nullable=False),
)
"""What is known of jobs at a provider, as JSON (`programs.lm.batch`)."""
VERSION = Table("store_version", METADATA, Column("version", Integer, primary_key=True))
IMPORTS = Table("imported_folders", METADATA, Column("folder", Text, primary_key=True))
"""Folders whose replies are in the table already."""
# fmt: on

Row = dict[str, Any]
"""Of the table of replies, by column."""

_SIGNED = [column.name for column in REPLIES.columns if column.name != "checksum"]


def row_of(key: str, lm: str, role: str, reply: Reply) -> Row:
    """The row in which a reply is kept."""
    logprobs = None if reply.logprobs is None else json.dumps(reply.logprobs)
    tokens = (reply.input_tokens, reply.output_tokens, reply.cached_tokens)
    row = dict(zip(_SIGNED, (key, lm, role, reply.text, *tokens, reply.finish, logprobs), strict=True))
    return {**row, "checksum": _checksum(row)}


def reply_of(row: Mapping[Any, Any]) -> Reply | None:
    """The reply of a row; None if the row is not what was written under its key."""
    if row["checksum"] != _checksum(row):
        return None
    tokens = (row["input_tokens"], row["output_tokens"], row["cached_tokens"])
    places = None if row["logprobs"] is None else json.loads(row["logprobs"])
    logprobs = None if places is None else tuple(tuple((token, p) for token, p in place) for place in places)
    return Reply(row["text"], *tokens, row["finish"], logprobs)


def _checksum(row: Mapping[Any, Any]) -> str:
    """Of key and all fields: so a row that was changed, or stored under another key, is noticed."""
    # SQLite keeps whatever is put into a column, e.g. bytes.
    fields = json.dumps([row[name] for name in _SIGNED], default=repr)
    return hashlib.blake2b(fields.encode(), digest_size=8).hexdigest()


class Statements:
    """What a store does again and again, put together once: SQLAlchemy takes longer for that than SQLite to do it.

    Statements about several rows take them as JSON in one parameter, made by `keys` or `rows`: `sqlite3` lets another
    thread run at each statement, and waits for its turn again.

    Args:
        owner: Of this process's claims.
        sqlite: Whether they are for SQLite, else for PostgreSQL.
    """

    def __init__(self, owner: str, *, sqlite: bool) -> None:
        self._sqlite = sqlite
        # As an array, for which PostgreSQL always uses the index.
        array = "ANY (ARRAY(SELECT json_array_elements_text(CAST(:keys AS json))))"
        among = sa.text("key IN (SELECT value FROM json_each(:keys))" if sqlite else f"key = {array}")
        owned = CLAIMS.c.owner == owner
        self.replies, self.claims = sa.select(REPLIES).where(among), sa.select(CLAIMS).where(among)
        self.delete_replies, self.end_claims = sa.delete(REPLIES).where(among), sa.delete(CLAIMS).where(among, owned)
        self.renew_claims = sa.update(CLAIMS).where(owned).values(expires=sa.bindparam("until"))
        self.end_all_claims = sa.delete(CLAIMS).where(owned)
        lost = CLAIMS.c.owner.in_(sa.bindparam("gone", expanding=True)) | (CLAIMS.c.expires <= sa.bindparam("now"))
        self.end_lost_claims = sa.delete(CLAIMS).where(lost)
        self.add_replies, self.add_claims, self.add_import = map(self._insert, (REPLIES, CLAIMS, IMPORTS))

    def _insert(self, table: Table) -> sa.Executable:
        """Adds those of the rows whose keys are not there."""
        names = ", ".join(column.name for column in table.columns)
        if self._sqlite:
            # `true` tells SQLite's parser that ON does not begin the condition of a join.
            fields = ", ".join(f"json_extract(value, '$.{column.name}')" for column in table.columns)
            rows = f"SELECT {fields} FROM json_each(:rows) WHERE true"
        else:
            rows = f"SELECT {names} FROM json_populate_recordset(CAST(NULL AS {table.name}), CAST(:rows AS json))"
        insert = sa.text(f"INSERT INTO {table.name} ({names}) {rows} ON CONFLICT DO NOTHING")
        return insert.execution_options(preserve_rowcount=True)

    @staticmethod
    def keys(keys: Iterable[str]) -> dict[str, str]:
        return {"keys": json.dumps(list(keys))}

    @staticmethod
    def rows(rows: Sequence[Row]) -> dict[str, str]:
        return {"rows": json.dumps(rows, ensure_ascii=False)}
