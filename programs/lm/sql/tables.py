"""The tables of a store of replies, its SQL statements, and the conversion of replies to and from rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, String, Table, Text

from debate_judge.programs.lm.reply import Reply

SCHEMA = 1
"""Version of the tables; any other version is refused."""

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
"""Records of batch jobs at a provider, as JSON (`programs.lm.batch`)."""
VERSION = Table("store_version", METADATA, Column("version", Integer, primary_key=True))
# fmt: on

Row = dict[str, Any]
"""A row of the table of replies: column -> value."""

_CHECKSUMMED = [column.name for column in REPLIES.columns if column.name != "checksum"]


def row_of(key: str, lm: str, role: str, reply: Reply) -> Row:
    """The row that stores a reply."""
    logprobs = None if reply.logprobs is None else json.dumps(reply.logprobs)
    tokens = (reply.input_tokens, reply.output_tokens, reply.cached_tokens)
    row = dict(zip(_CHECKSUMMED, (key, lm, role, reply.text, *tokens, reply.finish, logprobs), strict=True))
    return {**row, "checksum": _checksum(row)}


def reply_of(row: Mapping[Any, Any]) -> Reply | None:
    """The reply of a row; None if its checksum is wrong."""
    if row["checksum"] != _checksum(row):
        return None
    tokens = (row["input_tokens"], row["output_tokens"], row["cached_tokens"])
    stored = None if row["logprobs"] is None else json.loads(row["logprobs"])
    logprobs = None if stored is None else tuple(tuple(map(tuple, alternatives)) for alternatives in stored)
    return Reply(row["text"], *tokens, row["finish"], logprobs)


def _checksum(row: Mapping[Any, Any]) -> str:
    """Over the key and all fields, so that a changed row, or one under another key, is noticed."""
    # SQLite accepts any type in a column, e.g. bytes.
    fields = json.dumps([row[name] for name in _CHECKSUMMED], default=repr)
    return hashlib.blake2b(fields.encode(), digest_size=8).hexdigest()


class Statements:
    """The statements of a store, built once: SQLAlchemy takes longer to build one than SQLite to execute it.

    Statements about several rows take them as JSON in one parameter, made by `keys` or `rows`: `sqlite3` releases the
    GIL at each statement and has to wait for it again.

    Args:
        owner: Owner of this process's claims.
        sqlite: Whether the database is SQLite; else it is PostgreSQL.
    """

    def __init__(self, owner: str, *, sqlite: bool) -> None:
        self._sqlite = sqlite
        # As an array, for which PostgreSQL always uses the index.
        array = "ANY (ARRAY(SELECT json_array_elements_text(CAST(:keys AS json))))"
        has_key = sa.text("key IN (SELECT value FROM json_each(:keys))" if sqlite else f"key = {array}")
        is_ours = CLAIMS.c.owner == owner
        self.replies, self.claims = sa.select(REPLIES).where(has_key), sa.select(CLAIMS).where(has_key)
        self.delete_replies = sa.delete(REPLIES).where(has_key)
        self.end_claims = sa.delete(CLAIMS).where(has_key, is_ours)
        self.renew_claims = sa.update(CLAIMS).where(is_ours).values(expires=sa.bindparam("until"))
        self.end_all_claims = sa.delete(CLAIMS).where(is_ours)
        has_ended = CLAIMS.c.owner.in_(sa.bindparam("ended_owners", expanding=True))
        has_expired = CLAIMS.c.expires <= sa.bindparam("now")
        self.end_lost_claims = sa.delete(CLAIMS).where(has_ended | has_expired)
        self.add_replies, self.add_claims = map(self._insert, (REPLIES, CLAIMS))

    def _insert(self, table: Table) -> sa.Executable:
        """Inserts the rows whose keys are new."""
        names = ", ".join(column.name for column in table.columns)
        if self._sqlite:
            # Without WHERE, SQLite's parser would take ON for the condition of a join.
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
