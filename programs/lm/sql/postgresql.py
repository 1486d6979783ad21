"""A PostgreSQL database that a team shares: its address, connections to it, and locks in it."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.lm.reply import StoreError

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)

_SETTINGS: dict[str, Any] = {"connect_timeout": 5, "application_name": "debate"}
_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""So that this side notices a connection whose other end is gone within 35 seconds."""

_KEEPALIVE_THERE = (
    "SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 30000"
)
"""The same for the server, which would keep the locks of a machine without power for hours by the defaults of TCP."""

_POLL = 1.0
"""Seconds between two tries for a lock that another process holds."""


def database_address(given: str | None, flag: str, variable: str) -> str | None:
    """The address `given` with a flag, or else in an environment variable, without a driver; None for neither.

    Raises:
        InputError: It is no address of a PostgreSQL database, or a password stands in the flag, which the list of
            processes, the shell's history and the run would show.
    """
    address = (given or os.environ.get(variable) or "").strip()
    if not address:
        return None
    try:
        parts = urlsplit(address)
        secret = parts.password is not None or "password" in dict(parse_qsl(parts.query))
        known = parts.scheme.partition("+")[0] in ("postgresql", "postgres")
    except ValueError:
        known = secret = False
    if not known:
        raise InputError(
            "not the address of a PostgreSQL database",
            field=flag if given else variable,
            expected="postgresql://USER@HOST:PORT/DATABASE",
            found=redact_text(address),
        )
    if given and secret:
        raise InputError(
            "the address contains a password, which the list of processes and the run would show",
            field=flag,
            found=redact_text(address),
            remedy=f"leave it out and set PGPASSWORD, keep it in ~/.pgpass, or give the whole address as {variable}",
        )
    return _with_scheme("postgresql", address)


def _with_scheme(scheme: str, address: str) -> str:
    return scheme + address[address.index("://") :]


def uses_psycopg(address: str) -> bool:
    """Whether an address of SQLAlchemy's form names a database that `connect` can open."""
    return urlsplit(address).scheme in ("postgresql", "postgres", "postgresql+psycopg")


def sqlalchemy_address(address: str) -> str:
    """An address for MLflow and Optuna, which would choose a driver that is not installed if it names none."""
    return _with_scheme("postgresql+psycopg", address) if uses_psycopg(address) else address


def connect(address: str, named: str, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    """Open a connection.

    Args:
        address: Of the database, with or without a driver.
        named: The flag or variable that it comes from, for messages.
        autocommit: Whether every statement is a transaction.

    Raises:
        InputError: psycopg is not installed, or the server cannot be reached or refuses the user.
    """
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise InputError(
            "a PostgreSQL database needs the package psycopg",
            field=named,
            found=str(error),
            remedy="pip install 'debate-judge[team]'",
        ) from error
    with storage_errors(address, named):
        # What stands in the address comes first.
        settings = _SETTINGS | _KEEPALIVE | conninfo_to_dict(_with_scheme("postgresql", address))
        opened = psycopg.connect(autocommit=True, **settings)
        # By a statement: poolers refuse such settings where a connection begins.
        opened.execute(_KEEPALIVE_THERE)
    opened.autocommit = autocommit
    return opened


@contextmanager
def storage_errors(address: str, named: str) -> Iterator[None]:
    """Turn what goes wrong on an open connection into a StoreError; arguments as of `connect`."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise unreachable(address, named, error) from None


def unreachable(address: str, named: str, error: BaseException) -> StoreError:
    """What keeps a database from being used, in words without its password."""
    why = redact_text(str(error), urlsplit(address).password).strip()
    return StoreError(
        "the database cannot be used: " + (why.splitlines() or [type(error).__name__])[0],
        field=named,
        found=redact_text(address),
        remedy="start the server, correct the address, or give the password by PGPASSWORD or ~/.pgpass, and run the "
        "same command again; it resumes. Or leave the address out to keep everything in --store",
    )


def lock_number(name: str) -> int:
    """The number of an advisory lock: PostgreSQL knows them by 64 bits."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


class DatabaseLock:
    """A lock in the database, which the server releases when the connection that holds it ends, however that ends.

    Args:
        address: Of the database; the lock has a connection of its own.
        named: The flag or variable that it comes from, for messages.
        name: Processes that give the same name exclude each other, on whatever machine they run.

    Raises:
        InputError: The database cannot be used; so do all methods but `release`.
    """

    def __init__(self, address: str, named: str, name: str) -> None:
        self._address, self._named, self._number = address, named, lock_number(name)
        self._connection = connect(address, named)

    def _execute(self, statement: str, *parameters: object) -> tuple[Any, ...] | None:
        """The first row of the answer."""
        with storage_errors(self._address, self._named):
            return self._connection.execute(statement, parameters).fetchone()

    def acquire(self) -> bool:
        """Take the lock; False while another process has it."""
        return self._execute("SELECT pg_try_advisory_lock(%s)", self._number) == (True,)

    def holder(self) -> str:
        """A description of the lock's holder."""
        row = self._execute(
            "SELECT usename, coalesce(host(client_addr), 'the server''s own machine') FROM pg_stat_activity "
            "JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
            "AND (classid::bigint << 32) | objid::bigint = %s",
            self._number,
        )
        return f"{row[0]} on {row[1]}" if row else "another process"

    def release(self) -> None:
        with suppress(Exception):
            self._connection.close()


@contextmanager
def exclusive_lock(address: str, named: str, name: str, doing: str) -> Iterator[DatabaseLock]:
    """`DatabaseLock`, held: the others of the team wait. `doing` completes "USER on HOST …" in their message."""
    lock = DatabaseLock(address, named, name)
    try:
        if not lock.acquire():
            logger.info("%s %s; waiting until it has ended", lock.holder(), doing)
            while not lock.acquire():
                time.sleep(_POLL)
        yield lock
    finally:
        lock.release()
