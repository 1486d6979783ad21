"""Stores every LM reply in one SQL database, so that finished calls are not paid for again and a stopped run resumes.

The database is a SQLite file in the store's folder, or PostgreSQL, which the machines of a team share. One thread uses
it: the operations in its queue form one transaction. A reply is committed before its caller continues. Of the processes
that need the same reply one claims the call and makes it; a claim is a row with an expiry, which its owner renews, and
which other processes of the same machine may take over at once if the owner has ended.

A row has a checksum over its key and all its fields. If it is wrong, the row is not used: the call is made again, and
the row replaced.
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
"""The database in the folder of a store; SQLite keeps `-wal` and `-shm` files next to it while it is open."""

CLAIM_EXPIRY = 20.0
"""Seconds after which a claim that was not renewed ends, e.g. because its machine has lost power."""

_RENEWAL_INTERVAL = 5.0
"""Seconds between two renewals of the claims that a process holds."""

_TIMEOUT = 60.0
"""Seconds to wait for another process's transaction on a SQLite file."""


@dataclass(slots=True, eq=False)
class _Operation:
    """An operation that a caller awaits."""

    kind: Literal["get", "claim", "put", "release"]
    key: str
    row: Row | None = None
    future: asyncio.Future[Reply | bool | None] | None = None
    result: Reply | bool | None = None
    error: Exception | None = None


class SqlStore:
    """A `programs.lm.reply.ReplyStore` in a database. Any number of event loops, threads and processes may use it.

    A forked process must open its own.

    Args:
        folder: Of the SQLite file. Created if it is absent.
        address: Of a PostgreSQL database, as `programs.lm.sql.postgresql.database_address` returns it.
        field: The flag or variable that the folder or address comes from, for messages.
        lm: The LM of the replies, a column of the table.

    Raises:
        InputError: The folder cannot be written, the database cannot be reached, or it is not a store of this version.
            A method whose database cannot be used raises StoreError.
    """

    def __init__(self, folder: Path, address: str | None = None, *, field: str = "--store", lm: str = "") -> None:
        self._folder, self._address, self._field, self._lm = folder, address, field, lm
        make_folder(folder, "--store")
        self._engine = self._new_engine()
        self._owner = _owner_id()
        self._statements = Statements(self._owner, sqlite=address is None)
        self._corrupt: set[str] = set()
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._closed = False
        self._closing_lock = threading.Lock()
        # Held while a connection is open: a process must not fork then.
        self._connection_lock = threading.Lock()
        self._set_up()
        _OPEN_STORES.add(self)
        self._thread = threading.Thread(target=self._run, name="replies", daemon=True)
        self._thread.start()

    async def get(self, key: str) -> Reply | None:
        """The reply that is stored under a key."""
        return cast("Reply | None", await self._submit(_Operation("get", key)))

    async def get_or_claim(self, key: str) -> Reply | bool:
        """The stored reply; else True if this process now holds the call's claim, False while another one does."""
        try:
            return cast("Reply | bool", await self._submit(_Operation("claim", key)))
        except asyncio.CancelledError:
            # The claim may have been granted just now.
            await self.release(key)
            raise

    async def put(self, key: str, role: str, reply: Reply) -> None:
        """Store a reply, and end the claim of its call. The first reply that is stored under a key stays."""
        await self._submit(_Operation("put", key, row_of(key, self._lm, role, reply)))

    async def release(self, key: str) -> None:
        """End the claim of a call that has failed."""
        await self._submit(_Operation("release", key))

    async def run(self, function: Callable[[Connection], T]) -> T:
        """The result of `function`, executed in a transaction of its own in another thread."""
        return await asyncio.to_thread(self.run_sync, function)

    def run_sync(self, function: Callable[[Connection], T]) -> T:
        """`run` for callers without an event loop; blocks."""
        self._require_open()
        with self._transaction() as connection:
            return function(connection)

    async def _submit(self, operation: _Operation) -> Reply | bool | None:
        async def enqueue() -> Reply | bool | None:
            operation.future = asyncio.get_running_loop().create_future()
            with self._closing_lock:
                # The thread would not execute what comes after the end.
                self._require_open()
                self._queue.put(operation)
            return await operation.future

        # In a forked process the lock may be held forever.
        self._require_open()
        return await loop.on_loop(enqueue())

    def _require_open(self) -> None:
        if self._closed or not self._thread.is_alive():
            raise StoreError("the store is closed, or was opened by a process that this one was forked from")

    def close(self) -> None:
        """Finish the queue, end all claims and close the connection."""
        if self._thread.is_alive():
            with self._closing_lock:
                self._closed = True
                self._queue.put(None)
            self._thread.join()
        _OPEN_STORES.discard(self)

    # --- the thread ---

    def _run(self) -> None:
        last_renewal = time.monotonic()
        closing = False
        while not closing:
            operations = self._next_operations()
            batch = [operation for operation in operations if operation is not None]
            closing = len(batch) < len(operations)
            if batch:
                self._execute(batch)
                loop.event_loop().call_soon_threadsafe(self._deliver, batch)
            if time.monotonic() - last_renewal >= _RENEWAL_INTERVAL:
                # If this fails, the next operation reports why; at worst the claims expire. It also keeps servers and
                # routers from closing an idle connection.
                with suppress(InputError), self._transaction() as connection:
                    connection.execute(self._statements.renew_claims, {"until": self._now(connection) + CLAIM_EXPIRY})
                last_renewal = time.monotonic()
        with suppress(InputError), self._transaction() as connection:
            connection.execute(self._statements.end_all_claims)
        with self._connection_lock:
            self._engine.dispose()

    def _next_operations(self) -> list[_Operation | None]:
        """The operations in the queue, or the next one to come; None means that the store is being closed."""
        operations: list[_Operation | None] = []
        with suppress(queue.Empty):
            operations.append(self._queue.get(timeout=_RENEWAL_INTERVAL))
            while True:
                operations.append(self._queue.get_nowait())
        return operations

    def _execute(self, batch: Sequence[_Operation]) -> None:
        try:
            if lookups := [operation for operation in batch if operation.kind in ("get", "claim")]:
                self._read(lookups)
            if puts := [operation for operation in batch if operation.kind == "put"]:
                self._write(puts)
            if claims := [operation for operation in batch if operation.kind == "claim" and operation.result is None]:
                self._claim(claims)
            # After the claims, because a cancelled caller releases one that may be granted in this batch.
            if releases := [operation for operation in batch if operation.kind == "release"]:
                self._write(releases)
        except Exception as error:
            for operation in batch:
                operation.error = error

    def _read(self, operations: Sequence[_Operation]) -> None:
        with self._transaction(write=False) as connection:
            replies = self._select(connection, {operation.key for operation in operations})
        for operation in operations:
            operation.result = replies.get(operation.key)

    def _select(self, connection: Connection, keys: Iterable[str]) -> dict[str, Reply]:
        """Key -> reply, of the rows with a right checksum."""
        by_key = {}
        for row in connection.execute(self._statements.replies, self._statements.keys(keys)).mappings():
            reply = reply_of(row)
            if reply is not None:
                by_key[row["key"]] = reply
                continue
            if not self._corrupt:
                _LOG.warning(
                    "%s: the stored reply %s has a wrong checksum; it and all others like it are requested again",
                    self._folder / FILE if self._address is None else redact_text(self._address),
                    row["key"],
                )
            self._corrupt.add(row["key"])
        return by_key

    def _write(self, operations: Sequence[_Operation]) -> None:
        with self._transaction() as connection:
            self._put(connection, [operation.row for operation in operations if operation.row is not None])
            keys = self._statements.keys({operation.key for operation in operations})
            connection.execute(self._statements.end_claims, keys)

    def _put(self, connection: Connection, rows: Sequence[Row]) -> None:
        if replaced := self._corrupt.intersection(row["key"] for row in rows):
            connection.execute(self._statements.delete_replies, self._statements.keys(replaced))
            self._corrupt -= replaced
        # Sorted, so that two processes that insert the same rows do not deadlock.
        rows = sorted(rows, key=lambda row: str(row["key"]))
        connection.execute(self._statements.add_replies, self._statements.rows(rows))

    def _claim(self, operations: Sequence[_Operation]) -> None:
        """Claim the free calls, and look up their replies again: the last holder of a claim may have stored one."""
        keys = sorted({operation.key for operation in operations})
        with self._transaction() as connection:
            now = self._now(connection)
            claim = {"owner": self._owner, "expires": now + CLAIM_EXPIRY}
            rows = self._statements.rows([{"key": key, **claim} for key in keys])
            claimed = set(keys)
            if connection.execute(self._statements.add_claims, rows).rowcount != len(keys):
                self._end_lost_claims(connection, keys, now)
                connection.execute(self._statements.add_claims, rows)
                claims = connection.execute(self._statements.claims, self._statements.keys(keys))
                claimed = {claim.key for claim in claims if claim.owner == self._owner}
            replies = self._select(connection, claimed)
            if replies:
                connection.execute(self._statements.end_claims, self._statements.keys(replies))
        for operation in operations:
            operation.result = replies.get(operation.key, operation.key in claimed)

    def _end_lost_claims(self, connection: Connection, keys: Iterable[str], now: float) -> None:
        """End the claims of processes that have ended, and claims that have expired."""
        claims = connection.execute(self._statements.claims, self._statements.keys(keys)).all()
        ended = {claim.owner for claim in claims if claim.owner != self._owner and _has_ended(claim.owner)}
        if any(claim.expires <= now or claim.owner in ended for claim in claims):
            connection.execute(self._statements.end_lost_claims, {"now": now, "ended_owners": sorted(ended)})

    def _deliver(self, batch: Sequence[_Operation]) -> None:
        """Set the results of the callers' futures."""
        for operation in batch:
            if operation.future is None or operation.future.cancelled():
                continue
            if operation.error is not None:
                operation.future.set_exception(operation.error)
            else:
                operation.future.set_result(operation.result)

    # --- the database ---

    def _new_engine(self) -> sa.Engine:
        # The parameters of statements are replies, which do not belong in messages.
        settings: dict[str, Any] = {"hide_parameters": True, "poolclass": sa.QueuePool, "pool_size": 1}
        if self._address is not None:
            connect = functools.partial(postgresql.connect, self._address, self._field, autocommit=False)
            return sa.create_engine("postgresql+psycopg://", creator=connect, **settings)

        def connect_sqlite() -> sqlite3.Connection:
            # isolation_level=None: `_transaction` sends BEGIN itself.
            connection = sqlite3.connect(self._folder / FILE, _TIMEOUT, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA synchronous=NORMAL")
            return connection

        return sa.create_engine("sqlite://", creator=connect_sqlite, **settings)

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[Connection]:
        with self._connection_lock, self._store_errors(), self._engine.begin() as connection:
            if self._address is None and write:
                # A transaction that begins by reading could not write once another process has written.
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
                    lock = sa.func.pg_advisory_xact_lock(postgresql.advisory_lock_key("debate_judge store"))
                    connection.execute(sa.select(lock))
                if not {VERSION.name, REPLIES.name}.intersection(sa.inspect(connection).get_table_names()):
                    METADATA.create_all(connection)
                    connection.execute(sa.insert(VERSION).values(version=SCHEMA))
                self._check_version(connection)

    def _check_version(self, connection: Connection) -> None:
        """Refuse tables of another program or version."""
        has_version = sa.inspect(connection).has_table(VERSION.name)
        version = connection.execute(sa.select(VERSION.c.version)).scalar() if has_version else None
        if version != SCHEMA:
            raise StoreError(
                "the tables of replies belong to another program, or to another version of this one",
                file=None if self._address else self._folder / FILE,
                field=self._field,
                expected=f"a store of version {SCHEMA}",
                found="no version" if version is None else f"version {version}",
                remedy="give another folder or database, or use the version of this program that made it",
            )

    def _now(self, connection: Connection) -> float:
        """Seconds since 1970, by the clock of the server if there is one."""
        if self._address is None:
            return time.time()
        return float(connection.execute(sa.select(sa.func.extract("epoch", sa.func.now()))).scalar_one())

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Convert errors of the database into a StoreError without a password."""
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            if self._address is not None:
                raise postgresql.unusable_database_error(self._address, self._field, cause) from error
            raise StoreError(
                f"the stored replies cannot be used: {cause}",
                file=self._folder / FILE,
                field=self._field,
                remedy="fix the problem (room on the disk, permissions, a damaged file) and run the command again; it "
                "resumes, and finished calls are not paid for again",
            ) from error


# --- owners of claims ---


@functools.cache
def _machine_id() -> str:
    """Identifies the machine, its boot, and the container's namespace of process ids."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return f"{platform.node()} {uuid.getnode():x}"


def _owner_id() -> str:
    """A unique owner of claims, which contains this process's id."""
    return f"{_machine_id()}/{os.getpid()}/{psutil.Process().create_time():.0f}/{uuid.uuid4().hex[:8]}"


def _has_ended(owner: str) -> bool:
    """Whether an owner's process has ended; False if it is on another machine."""
    machine, pid, started, _ = owner.rsplit("/", 3)
    if machine != _machine_id():
        return False
    try:
        process = psutil.Process(int(pid))
        # The start time of a process shifts when the clock is set.
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - float(started)) > 10.0
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


# --- forks ---

_OPEN_STORES: WeakSet[SqlStore] = WeakSet()
"""The open stores of this process."""


def _before_fork() -> None:
    # A child must not use its parent's SQLite connections, whose file locks it does not hold.
    for store in list(_OPEN_STORES):
        store._connection_lock.acquire()
        store._engine.dispose()


def _after_fork() -> None:
    for store in list(_OPEN_STORES):
        with suppress(RuntimeError):
            store._connection_lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_OPEN_STORES.clear)
