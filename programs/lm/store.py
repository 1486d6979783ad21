"""Keeps every LM reply in one SQL database, so that a finished call is not paid for again and a stopped run resumes.

The database is a SQLite file in the store's folder, or PostgreSQL, which the machines of a team share. One thread talks
to it: what waits at that moment goes into one transaction. A reply is committed before its caller goes on. Of the
processes that want the same reply one claims the call and makes it; a claim is a row with an expiry, which its owner
renews, and which others may take over at once if the owner was a process of the same machine and is gone.

A row carries a checksum over its key and all its fields. A row that does not fit its checksum is not used: the call is
made again, and the row replaced.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import platform
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from weakref import WeakSet

import psutil
import sqlalchemy as sa
from filelock import FileLock
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.lm.reply import Reply, StoreError
from debate_judge.programs.lm.sql import postgresql
from debate_judge.programs.lm.sql.legacy_import import import_folder
from debate_judge.programs.lm.sql.tables import (
    METADATA,
    REPLIES,
    SCHEMA,
    VERSION,
    Row,
    Statements,
    reply_of,
    row_of,
)

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

FILE = "replies.sqlite"
"""The database in the folder of a store; SQLite puts `-wal` and `-shm` beside it while it is open."""

EXPIRY = 20.0
"""Seconds after which a claim that was not renewed is free, e.g. because its machine has lost power."""

_RENEW = 5.0
"""Seconds between two renewals of the claims that a process holds."""

_BUSY = 60.0
"""Seconds to wait for another process's transaction on a SQLite file."""


@dataclass(slots=True, eq=False)
class _Operation:
    """What a caller waits for."""

    kind: Literal["get", "get_or_claim", "put", "release"]
    key: str
    row: Row | None = None
    future: asyncio.Future[Reply | bool | None] | None = None
    answer: Reply | bool | None = None
    error: Exception | None = None


class SqlStore:
    """A `programs.lm.reply.ReplyStore` in a database. Any number of event loops, threads and processes may use it.

    A process that was forked must open its own.

    Args:
        folder: Of the SQLite file; with an address, what it holds already is read from it, once. Made if it is absent.
        address: Of a PostgreSQL database, as `programs.lm.sql.postgresql.database_address` returns it.
        named: The flag or variable that named the place, for messages.
        lm: Whose replies these are, for people who look into the table.

    Raises:
        InputError: The folder cannot be written, the database cannot be reached, or it is not a store of this version.
            A method whose database cannot be used raises StoreError.
    """

    def __init__(self, folder: Path, address: str | None = None, *, named: str = "--store", lm: str = "") -> None:
        self._folder, self._address, self._named, self._lm = folder, address, named, lm
        make_folder(folder, "--store")
        self._engine = self._new_engine()
        self._owner = _new_owner()
        self._statements = Statements(self._owner, sqlite=address is None)
        self._unsound: set[str] = set()
        self._waiting: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        # While a process forks it must have no connection.
        self._connected = threading.Lock()
        self._set_up()
        _OPEN.add(self)
        self._thread = threading.Thread(target=self._run, name="replies", daemon=True)
        self._thread.start()

    async def get(self, key: str) -> Reply | None:
        """The reply that is stored under a key."""
        return cast("Reply | None", await self._ask(_Operation("get", key)))

    async def get_or_claim(self, key: str) -> Reply | bool:
        """The stored reply; else True if this process now holds the call's claim, False while another one does."""
        try:
            return cast("Reply | bool", await self._ask(_Operation("get_or_claim", key)))
        except asyncio.CancelledError:
            # It may have been granted in this very moment, and nobody would know.
            await self.release(key)
            raise

    async def put(self, key: str, role: str, reply: Reply) -> None:
        """Keep a reply, and end the claim of its call. The first reply that is stored under a key stays."""
        await self._ask(_Operation("put", key, row_of(key, self._lm, role, reply)))

    async def release(self, key: str) -> None:
        """Give up the claim of a call that has brought no reply."""
        await self._ask(_Operation("release", key))

    async def run(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, carried out in a transaction of its own on another thread."""
        return await asyncio.to_thread(self.run_now, work)

    def run_now(self, work: Callable[[Connection], T]) -> T:
        """`run` for callers without an event loop; blocks."""
        self._require_thread()
        with self._transaction() as connection:
            return work(connection)

    async def _ask(self, operation: _Operation) -> Reply | bool | None:
        async def asked() -> Reply | bool | None:
            operation.future = asyncio.get_running_loop().create_future()
            with self._closing:
                # Nobody would carry out what comes after the end.
                self._require_thread()
                self._waiting.put(operation)
            return await operation.future

        # In a forked process the lock may be held forever.
        self._require_thread()
        return await loop.on_loop(asked())

    def _require_thread(self) -> None:
        if self._closed or not self._thread.is_alive():
            raise StoreError("the store is closed, or was opened by a process that this one was forked from")

    def close(self) -> None:
        """Finish what waits, give up all claims and close the connection."""
        if self._thread.is_alive():
            with self._closing:
                self._closed = True
                self._waiting.put(None)
            self._thread.join()
        _OPEN.discard(self)

    # The thread.

    def _run(self) -> None:
        renewed = time.monotonic()
        ended = False
        while not ended:
            operations = self._next_operations()
            batch = [operation for operation in operations if operation is not None]
            ended = len(batch) < len(operations)
            if batch:
                self._carry_out(batch)
                loop.event_loop().call_soon_threadsafe(self._deliver, batch)
            if time.monotonic() - renewed >= _RENEW:
                # A claim that cannot be renewed is lost at worst, and the next operation reports why. No server or
                # router closes the connection for having been idle.
                with suppress(InputError), self._transaction() as connection:
                    connection.execute(self._statements.renew_claims, {"until": self._now(connection) + EXPIRY})
                renewed = time.monotonic()
        with suppress(InputError), self._transaction() as connection:
            connection.execute(self._statements.end_all_claims)
        with self._connected:
            self._engine.dispose()

    def _next_operations(self) -> list[_Operation | None]:
        """What waits, or what comes first; None among it says that the store is being closed."""
        operations: list[_Operation | None] = []
        with suppress(queue.Empty):
            operations.append(self._waiting.get(timeout=_RENEW))
            while True:
                operations.append(self._waiting.get_nowait())
        return operations

    def _carry_out(self, batch: Sequence[_Operation]) -> None:
        try:
            if lookups := [operation for operation in batch if operation.kind in ("get", "get_or_claim")]:
                self._read(lookups)
            if puts := [operation for operation in batch if operation.kind == "put"]:
                self._write(puts)
            if takes := [
                operation for operation in batch if operation.kind == "get_or_claim" and operation.answer is None
            ]:
                self._claim(takes)
            # After the claims: who was cancelled gives back what it may have been granted in this batch.
            if releases := [operation for operation in batch if operation.kind == "release"]:
                self._write(releases)
        except Exception as error:
            for operation in batch:
                operation.error = error

    def _read(self, operations: Sequence[_Operation]) -> None:
        with self._transaction(write=False) as connection:
            stored = self._select(connection, {operation.key for operation in operations})
        for operation in operations:
            operation.answer = stored.get(operation.key)

    def _select(self, connection: Connection, keys: Iterable[str]) -> dict[str, Reply]:
        """Key -> reply, of the rows that are sound."""
        by_key = {}
        for row in connection.execute(self._statements.replies, self._statements.keys(keys)).mappings():
            reply = reply_of(row)
            if reply is not None:
                by_key[row["key"]] = reply
                continue
            if not self._unsound:
                _LOG.warning(
                    "%s: the stored reply %s is not what was written for its call (wrong checksum); it and all "
                    "others like it are asked for again",
                    self._folder / FILE if self._address is None else redact_text(self._address),
                    row["key"],
                )
            self._unsound.add(row["key"])
        return by_key

    def _write(self, operations: Sequence[_Operation]) -> None:
        with self._transaction() as connection:
            self._put(connection, [operation.row for operation in operations if operation.row is not None])
            ended = self._statements.keys({operation.key for operation in operations})
            connection.execute(self._statements.end_claims, ended)

    def _put(self, connection: Connection, rows: Sequence[Row]) -> None:
        if replaced := self._unsound.intersection(row["key"] for row in rows):
            connection.execute(self._statements.delete_replies, self._statements.keys(replaced))
            self._unsound -= replaced
        # In the order of the keys, so that two processes that put the same rows do not block one another.
        rows = sorted(rows, key=lambda row: str(row["key"]))
        connection.execute(self._statements.add_replies, self._statements.rows(rows))

    def _claim(self, takes: Sequence[_Operation]) -> None:
        """Claim what is free, and look once more for what the last holder of a claim may have brought meanwhile."""
        keys = sorted({operation.key for operation in takes})
        with self._transaction() as connection:
            now = self._now(connection)
            rows = self._statements.rows([{"key": key, "owner": self._owner, "expires": now + EXPIRY} for key in keys])
            won = set(keys)
            if connection.execute(self._statements.add_claims, rows).rowcount != len(keys):
                self._end_lost_claims(connection, keys, now)
                connection.execute(self._statements.add_claims, rows)
                claims = connection.execute(self._statements.claims, self._statements.keys(keys))
                won = {claim.key for claim in claims if claim.owner == self._owner}
            stored = self._select(connection, won)
            if stored:
                connection.execute(self._statements.end_claims, self._statements.keys(stored))
        for operation in takes:
            operation.answer = stored.get(operation.key, operation.key in won)

    def _end_lost_claims(self, connection: Connection, keys: Iterable[str], now: float) -> None:
        """End the claims of processes that are gone, or have not renewed theirs."""
        claims = connection.execute(self._statements.claims, self._statements.keys(keys)).all()
        gone = {claim.owner for claim in claims if claim.owner != self._owner and _is_gone(claim.owner)}
        if any(claim.expires <= now or claim.owner in gone for claim in claims):
            connection.execute(self._statements.end_lost_claims, {"now": now, "gone": sorted(gone)})

    def _deliver(self, batch: Sequence[_Operation]) -> None:
        """Hand the results to those who wait."""
        for operation in batch:
            if operation.future is None or operation.future.cancelled():
                continue
            if operation.error is not None:
                operation.future.set_exception(operation.error)
            else:
                operation.future.set_result(operation.answer)

    # The database.

    def _new_engine(self) -> sa.Engine:
        # The parameters of statements are replies, which do not belong into messages.
        settings: dict[str, Any] = {"hide_parameters": True, "poolclass": sa.QueuePool, "pool_size": 1}
        if self._address is not None:
            connect = functools.partial(postgresql.connect, self._address, self._named, autocommit=False)
            return sa.create_engine("postgresql+psycopg://", creator=connect, **settings)

        def opened() -> sqlite3.Connection:
            # Its transactions begin by statements.
            connection = sqlite3.connect(self._folder / FILE, _BUSY, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA synchronous=NORMAL")
            return connection

        return sa.create_engine("sqlite://", creator=opened, **settings)

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[Connection]:
        with self._connected, self._explained(), self._engine.begin() as connection:
            if self._address is None and write:
                # A transaction that began by reading could not go on to write after another process has.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    def _set_up(self) -> None:
        # SQLite does not wait for another process that changes the mode of the file at the same moment.
        with FileLock(self._folder / ".opening"):
            if self._address is None:
                with self._transaction(write=False) as connection:
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            with self._transaction() as connection:
                if self._address is not None:
                    lock = sa.func.pg_advisory_xact_lock(postgresql.lock_number("debate_judge store"))
                    connection.execute(sa.select(lock))
                if not {VERSION.name, REPLIES.name}.intersection(sa.inspect(connection).get_table_names()):
                    METADATA.create_all(connection)
                    connection.execute(sa.insert(VERSION).values(version=SCHEMA))
                self._check_version(connection)
                self._import(connection)

    def _import(self, connection: Connection) -> None:
        """Add what the folder held before, once."""
        place = "" if self._address is None else f"{_machine()}{self._folder.absolute()}"
        if connection.execute(self._statements.add_import, self._statements.rows([{"folder": place}])).rowcount:
            file = None if self._address is None else self._folder / FILE
            import_folder(self._folder, file, self._lm, functools.partial(self._put, connection))

    def _check_version(self, connection: Connection) -> None:
        """Refuse tables of something else or of another version."""
        known = sa.inspect(connection).has_table(VERSION.name)
        version = connection.execute(sa.select(VERSION.c.version)).scalar() if known else None
        if version != SCHEMA:
            raise StoreError(
                "the tables of replies belong to another program, or to another version of this one",
                file=None if self._address else self._folder / FILE,
                field=self._named,
                expected=f"a store of version {SCHEMA}",
                found="no version" if version is None else f"version {version}",
                remedy="name another place, or use the version of this program that made it",
            )

    def _now(self, connection: Connection) -> float:
        """Seconds since 1970; by the server's clock where several machines share one."""
        if self._address is None:
            return time.time()
        return float(connection.execute(sa.select(sa.func.extract("epoch", sa.func.now()))).scalar_one())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the database into a StoreError without a password."""
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            if self._address is not None:
                raise postgresql.unreachable(self._address, self._named, cause) from error
            raise StoreError(
                f"the stored replies cannot be used: {cause}",
                file=self._folder / FILE,
                field=self._named,
                remedy="fix the problem (room on the disk, permissions, a damaged file) and run the command again; it "
                "resumes, and finished calls are not paid for again",
            ) from error


# Owners of claims.


@functools.cache
def _machine() -> str:
    """Tells machines apart, their boots, and containers that number their processes by themselves."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return f"{platform.node()} {uuid.getnode():x}"


def _new_owner() -> str:
    """A new owner of this process: no two calls return the same."""
    return f"{_machine()}/{os.getpid()}/{psutil.Process().create_time():.0f}/{uuid.uuid4().hex[:8]}"


def _is_gone(owner: str) -> bool:
    """Whether an owner's process has ended; False where that cannot be seen from this machine."""
    machine, number, started, _ = owner.rsplit("/", 3)
    if machine != _machine():
        return False
    try:
        process = psutil.Process(int(number))
        # The start of a process seems to move when the clock is set.
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - float(started)) > 10.0
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


# Forks.

_OPEN: WeakSet[SqlStore] = WeakSet()
"""Those of this process."""


def _before_fork() -> None:
    # SQLite would take the locks of the parent for the child's own.
    for store in list(_OPEN):
        store._connected.acquire()
        store._engine.dispose()


def _after_fork() -> None:
    for store in list(_OPEN):
        with suppress(RuntimeError):
            store._connected.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_OPEN.clear)
