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
from debate_judge.programs.lm.redaction import clean_text

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)

TIMEOUT = 5
"""Seconds that a server is given to accept a connection."""

_ALIVE = {"keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
"""So that this side notices a connection whose other end is gone within 35 seconds."""

_ALIVE_THERE = {"tcp_keepalives_idle": 20, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
_ALIVE_THERE |= {"tcp_user_timeout": 30_000}
"""The same for the server, which would keep the locks of a machine without power for hours by the defaults of TCP."""

_NOTICED = 45.0
"""Seconds after which the server has ended a session whose connection was lost."""

_POLL = 1.0
"""Seconds between two tries for a lock that another process holds."""


def is_postgresql(address: str) -> bool:
    """Whether an address names a PostgreSQL database."""
    return urlsplit(address).scheme.partition("+")[0] in ("postgresql", "postgres")


def database_address(given: str | None, flag: str, variable: str) -> str | None:
    """The address that a flag or else an environment variable names, in the form that libpq reads; None for neither.

    Args:
        given: Value of the flag.
        flag: Its name, for messages.
        variable: Name of the variable.

    Raises:
        InputError: It is no address of a PostgreSQL database, or a password stands in the flag, which the list of
            processes, the shell's history and the run would show.
    """
    address = (given or os.environ.get(variable) or "").strip()
    if not address:
        return None
    named = flag if given else variable
    try:
        parts = urlsplit(address)
        secret = parts.password is not None or any(name == "password" for name, _ in parse_qsl(parts.query))
    except ValueError:
        raise _malformed(address, named) from None
    if not is_postgresql(address):
        raise _malformed(address, named)
    if given and secret:
        raise InputError(
            "a password stands in the address, where the list of processes and the run would show it",
            field=flag,
            found=clean_text(address),
            remedy=f"leave it out and set PGPASSWORD, keep it in ~/.pgpass, or give the whole address as {variable}",
        )
    return libpq_address(address)


def driven_by_psycopg(address: str) -> bool:
    """Whether `sqlalchemy_address` of an address names the driver that this module uses."""
    return urlsplit(sqlalchemy_address(address)).scheme == "postgresql+psycopg"


def libpq_address(address: str) -> str:
    """A database's address as libpq reads it, without the name of a driver."""
    return "postgresql" + address[address.index("://") :]


def _malformed(address: str, named: str) -> InputError:
    return InputError(
        "not the address of a PostgreSQL database",
        field=named,
        expected="postgresql://USER@HOST:PORT/DATABASE",
        found=clean_text(address),
    )


def sqlalchemy_address(address: str) -> str:
    """The same for MLflow and Optuna: where an address names no driver they would choose one that is not installed."""
    plain = urlsplit(address).scheme in ("postgresql", "postgres")
    return "postgresql+psycopg" + address[address.index("://") :] if plain else address


def connect(address: str, named: str) -> psycopg.Connection[Any]:
    """Open a connection on which every statement is a transaction.

    Args:
        address: As `database_address` returns it.
        named: The flag or variable that it comes from, for messages.

    Raises:
        InputError: psycopg is not installed, or the server cannot be reached or refuses the user.
    """
    try:
        import psycopg
    except ImportError as error:
        raise InputError(
            "a PostgreSQL database needs the package psycopg",
            field=named,
            found=str(error),
            remedy="pip install 'debate-judge[team]'",
        ) from error
    options: dict[str, Any] = {"connect_timeout": TIMEOUT, "application_name": "debate", **_ALIVE}
    given = {name for name, _ in parse_qsl(urlsplit(address).query)}
    try:
        opened = psycopg.connect(address, autocommit=True, **{k: v for k, v in options.items() if k not in given})
    except psycopg.Error as error:
        raise unreachable(address, named, error) from None
    # By a statement: poolers refuse such settings where a connection begins. Old servers do not have all of them.
    names, values = list(_ALIVE_THERE), [str(value) for value in _ALIVE_THERE.values()]
    statement = (
        "SELECT set_config(t.name, t.value, false) FROM unnest(%s::text[], %s::text[]) AS t (name, value) "
        "WHERE t.name IN (SELECT s.name FROM pg_settings s)"
    )
    try:
        with explained(address, named):
            opened.execute(statement, (names, values))
    except InputError:
        opened.close()
        raise
    return opened


@contextmanager
def explained(address: str, named: str) -> Iterator[None]:
    """Turn what goes wrong on an open connection into an InputError; arguments as of `connect`."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise unreachable(address, named, error) from None


def unreachable(address: str, named: str, error: Exception) -> InputError:
    """What keeps a database from being used, in words without its password."""
    why = clean_text(str(error), urlsplit(address).password).strip()
    return InputError(
        "the database cannot be used: " + (why.splitlines() or [type(error).__name__])[0],
        field=named,
        found=clean_text(address),
        remedy="start the server, correct the address, or give the password by PGPASSWORD or ~/.pgpass, and run the "
        "same command again, which goes on from there; or leave the address out, and everything is kept in --store",
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

    def acquire(self) -> bool:
        """Take the lock; False while another process has it."""
        with explained(self._address, self._named):
            row = self._connection.execute("SELECT pg_try_advisory_lock(%s)", (self._number,)).fetchone()
        return bool(row and row[0])

    def keep(self) -> bool:
        """Make sure that the lock is held: where its connection was lost, take it again.

        Returns:
            Whether it was held all the time; if not, another process may have had it meanwhile.

        Raises:
            InputError: Another process has it.
        """
        with suppress(InputError), explained(self._address, self._named):
            self._connection.execute("SELECT 1")
            return True
        self.release()
        self._connection = connect(self._address, self._named)
        until = time.monotonic() + _NOTICED
        while not self.acquire():
            # It may be this process's own session, of which the server does not know yet that it is over.
            if time.monotonic() >= until:
                raise InputError(
                    "another process went on with the same while the connection to the database was lost",
                    field=self._named,
                    found=self.holder(),
                    remedy="run the same command again: it waits for that process, and goes on from there",
                )
            time.sleep(_POLL)
        logger.warning("the connection to the database was lost; it is back, and the work goes on")
        return False

    def holder(self) -> str:
        """Who has the lock, for people."""
        with explained(self._address, self._named):
            row = self._connection.execute(
                "SELECT usename, coalesce(host(client_addr), 'the server''s own machine') FROM pg_stat_activity "
                "JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
                "AND (classid::bigint << 32) | objid::bigint = %s",
                (self._number,),
            ).fetchone()
        return f"{row[0]} on {row[1]}" if row else "another process"

    def release(self) -> None:
        with suppress(Exception):
            self._connection.close()


@contextmanager
def only_holder(address: str, named: str, name: str, doing: str) -> Iterator[DatabaseLock]:
    """Let one process of the team at a time do something; the others wait. Yields the lock, which is held.

    Args:
        address: Of the database.
        named: The flag or variable that it comes from, for messages.
        name: Of what is done.
        doing: The same, for the message of one that waits.

    Raises:
        InputError: The database cannot be used.
    """
    lock = DatabaseLock(address, named, name)
    try:
        if not lock.acquire():
            logger.info("%s %s; waiting until it has ended", lock.holder(), doing)
            while not lock.acquire():
                time.sleep(_POLL)
        yield lock
    finally:
        lock.release()
