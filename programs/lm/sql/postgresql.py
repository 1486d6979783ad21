"""A PostgreSQL database that a team shares: its address, connections, and locks."""

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

_LOG = logging.getLogger(__name__)

_CONNECT_OPTIONS: dict[str, Any] = {"connect_timeout": 5, "application_name": "debate"}
_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""TCP keepalive: the client notices within 35 seconds that the server is gone."""

_SERVER_KEEPALIVE = (
    "SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 30000"
)
"""The same for the server, which by TCP's defaults would keep the locks of a machine without power for hours."""

_LOCK_POLL = 1.0
"""Seconds between two attempts to acquire a lock that another process holds."""


def database_address(flag_value: str | None, flag: str, variable: str) -> str | None:
    """The address from a flag, else from an environment variable, without a driver; None for neither.

    Raises:
        InputError: It is not the address of a PostgreSQL database, or the flag contains a password, which the list of
            processes, the shell's history and the run would show.
    """
    address = (flag_value or os.environ.get(variable) or "").strip()
    if not address:
        return None
    try:
        parts = urlsplit(address)
        has_password = parts.password is not None or "password" in dict(parse_qsl(parts.query))
        valid = parts.scheme.partition("+")[0] in ("postgresql", "postgres")
    except ValueError:
        valid = has_password = False
    if not valid:
        raise InputError(
            "not the address of a PostgreSQL database",
            field=flag if flag_value else variable,
            expected="postgresql://USER@HOST:PORT/DATABASE",
            found=redact_text(address),
        )
    if flag_value and has_password:
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
    """Whether `connect` can open an address in SQLAlchemy's form."""
    return urlsplit(address).scheme in ("postgresql", "postgres", "postgresql+psycopg")


def sqlalchemy_address(address: str) -> str:
    """The address for MLflow and Optuna: with the driver, else SQLAlchemy chooses one that is not installed."""
    return _with_scheme("postgresql+psycopg", address) if uses_psycopg(address) else address


def connect(address: str, field: str, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    """Open a connection.

    Args:
        address: Of the database, with or without a driver.
        field: The flag or variable that it comes from, for messages.
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
            field=field,
            found=str(error),
            remedy="pip install 'debate-judge[team]'",
        ) from error
    with storage_errors(address, field):
        # Parameters in the address take precedence.
        settings = _CONNECT_OPTIONS | _KEEPALIVE | conninfo_to_dict(_with_scheme("postgresql", address))
        connection = psycopg.connect(autocommit=True, **settings)
        # By a statement, because connection poolers refuse such settings as connection options.
        connection.execute(_SERVER_KEEPALIVE)
    connection.autocommit = autocommit
    return connection


@contextmanager
def storage_errors(address: str, field: str) -> Iterator[None]:
    """Convert psycopg's errors into a StoreError; arguments as of `connect`."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise unusable_database_error(address, field, error) from None


def unusable_database_error(address: str, field: str, error: BaseException) -> StoreError:
    """The error for a database that cannot be used, without its password."""
    reason = redact_text(str(error), urlsplit(address).password).strip()
    return StoreError(
        "the database cannot be used: " + (reason.splitlines() or [type(error).__name__])[0],
        field=field,
        found=redact_text(address),
        remedy="start the server, correct the address, or give the password by PGPASSWORD or ~/.pgpass, and run the "
        "same command again; it resumes. Or leave the address out to keep everything in --store",
    )


def advisory_lock_key(name: str) -> int:
    """The 64-bit key of an advisory lock."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


class DatabaseLock:
    """An advisory lock, which the server releases when the connection that holds it ends, for whatever reason.

    Args:
        address: Of the database; the lock opens its own connection.
        field: The flag or variable that it comes from, for messages.
        name: Processes with the same name exclude each other, on all machines.

    Raises:
        InputError: The database cannot be used; all methods but `release` raise it, too.
    """

    def __init__(self, address: str, field: str, name: str) -> None:
        self._address, self._field, self._key = address, field, advisory_lock_key(name)
        self._connection = connect(address, field)

    def _execute(self, statement: str, *parameters: object) -> tuple[Any, ...] | None:
        """The first row of the result."""
        with storage_errors(self._address, self._field):
            return self._connection.execute(statement, parameters).fetchone()

    def acquire(self) -> bool:
        """Try to acquire the lock; False while another process holds it."""
        return self._execute("SELECT pg_try_advisory_lock(%s)", self._key) == (True,)

    def holder(self) -> str:
        """A description of the lock's holder."""
        row = self._execute(
            "SELECT usename, coalesce(host(client_addr), 'the server''s own machine') FROM pg_stat_activity "
            "JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
            "AND (classid::bigint << 32) | objid::bigint = %s",
            self._key,
        )
        return f"{row[0]} on {row[1]}" if row else "another process"

    def release(self) -> None:
        with suppress(Exception):
            self._connection.close()


@contextmanager
def exclusive_lock(address: str, field: str, name: str, activity: str) -> Iterator[DatabaseLock]:
    """Hold a `DatabaseLock`; other processes wait for it. `activity` completes "USER on HOST …" in their message."""
    lock = DatabaseLock(address, field, name)
    try:
        if not lock.acquire():
            _LOG.info("%s %s; waiting until it has ended", lock.holder(), activity)
            while not lock.acquire():
                time.sleep(_LOCK_POLL)
        yield lock
    finally:
        lock.release()
