"""The table `debate_replies` of a team's database: what is asked of it, in statements of many rows each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.sharing.database import connect, explained, lock_number

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

AT_ONCE = 1000
"""Rows of one statement."""

_TABLE = """
CREATE TABLE debate_replies (
    key uuid PRIMARY KEY,
    lm text NOT NULL,
    made timestamptz NOT NULL DEFAULT now(),
    record text NOT NULL
)
"""
"""The record is JSON and no `jsonb`, which has no place for the zero characters that a reply may hold."""

_HEX = "replace({}::text, '-', '')"
"""A uuid in the form of the keys: to build objects of uuids costs more than a query."""


def open_table(address: str, named: str) -> psycopg.Connection[Any]:
    """A connection to the database, in which the table is made if it is absent.

    Args:
        address: Of the database.
        named: The flag or variable that it comes from, for messages.

    Raises:
        InputError: The database cannot be reached, or the table not be made.
    """
    connection = connect(address, named)
    try:
        with explained(address, named), connection.transaction():
            # Two that make it at the same moment would break each other.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number("debate_replies"),))
            row = connection.execute("SELECT to_regclass('debate_replies')").fetchone()
            if row is None or row[0] is None:
                connection.execute(_TABLE)
    except InputError:
        connection.close()
        raise
    return connection


def insert(connection: psycopg.Connection[Any], lm: str, rows: Sequence[tuple[str, str]]) -> None:
    """Add keys and records, but for keys that are there already."""
    for part in _parts(rows):
        connection.execute(
            "INSERT INTO debate_replies (key, lm, record) SELECT key, %s, record "
            "FROM unnest(%s::uuid[], %s::text[]) AS t (key, record) ON CONFLICT DO NOTHING",
            (lm, [key for key, _ in part], [record for _, record in part]),
        )


def select(connection: psycopg.Connection[Any], keys: Sequence[str]) -> dict[str, str]:
    """Key -> record, of those that are there."""
    found: dict[str, str] = {}
    for part in _parts(keys):
        statement = f"SELECT {_HEX.format('key')}, record FROM debate_replies WHERE key = ANY(%s::uuid[])"
        found.update(connection.execute(statement.encode(), (part,)).fetchall())
    return found


def missing(connection: psycopg.Connection[Any], keys: Sequence[str]) -> list[str]:
    """The keys that are not there."""
    statement = (
        f"SELECT {_HEX.format('key')} FROM unnest(%s::uuid[]) AS t (key) "
        "WHERE NOT EXISTS (SELECT FROM debate_replies r WHERE r.key = t.key)"
    )
    return [key for part in _parts(keys) for (key,) in connection.execute(statement.encode(), (part,)).fetchall()]


def _parts(rows: Sequence[T]) -> Iterator[list[T]]:
    return (list(rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE))
