"""Keeps every LM reply in one SQL database, so that a finished call is not paid for again and a stopped run resumes.

The database is a SQLite file in the store's folder, or PostgreSQL, which the machines of a team share. All that waits
at a moment goes into one transaction. A reply is committed before its caller goes on. Of the
processes that want the same reply one claims the call and makes it; a claim is a row with an expiry, which its owner
renews, and which others may take over at once if the owner was a process of the same machine and is gone.

A row carries a checksum over its key and all its fields. A row that does not fit its checksum is not used: the call is
made again, and the row replaced.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import platform
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.programs.lm.reply import Reply, StoreError
from debate_judge.programs.lm.sql import postgresql
from debate_judge.programs.lm.sql.old_folders import old_rows, stored_rows
from debate_judge.programs.lm.sql.tables import METADATA, REPLIES, SCHEMA, VERSION, Row, Statements, reply_of, row_of

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

    kind: Literal["get", "take", "put", "release"]
    key: str
    row: Row | None = None
    future: asyncio.Future[Reply | bool | None] = field(init=False)
    answer: Reply | bool | None = None


class SqlStore:
    """A `programs.lm.reply.ReplyStore` in a database. Any number of event loops, threads and processes may use it.

    A process that was forked must open its own. A method whose database cannot be used raises StoreError.

    Args:
        folder: Of the SQLite file; with an address, what it holds already is read from it, once. Made if it is absent.
        address: Of a PostgreSQL database, as `programs.lm.sql.postgresql.database_address` returns it.
        named: The flag or variable that named the place, for messages.
        lm: Whose replies these are, for people who look into the table.

    Raises:
        InputError: The folder cannot be written, the database cannot be reached, or it is not a store of this version.
    """

    def __init__(self, folder: Path, address: str | None = None, *, named: str = "--store", lm: str = "") -> None:
        self._folder, self._address, self._named, self._lm = folder, address, named, lm
        make_folder(folder, "--store")
        self._engine = self._new_engine()
        self._owner = _new_owner()
        self._statements = Statements(self._owner, sqlite=address is None)
        self._unsound: set[str] = set()
        self._waiting: list[_Operation] = []
        self._working: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._process: int | None = os.getpid()
        """The process that may use it; None when it is closed."""
        # While a process forks it must have no connection.
        self._connected = threading.Lock()
        self._set_up()
        _OPEN.add(self)

    async def get(self, key: str) -> Reply | None:
        """The reply that is stored under a key."""
        return cast("Reply | None", await self._ask(_Operation("get", key)))

    async def take(self, key: str) -> Reply | bool:
        """The stored reply; else True if this process now holds the call's claim, False while another one does."""
        try:
            return cast("Reply | bool", await self._ask(_Operation("take", key)))
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
        self._require_open()
        with self._transaction() as connection:
            return work(connection)

    def close(self) -> None:
        """Finish what waits, give up all claims and close the connection."""
        if self._process == os.getpid():
            self._process = None
            if loop.is_current():
                # The garbage collector may run there.
                self._renewing = asyncio.ensure_future(self._close(self._renewing))
            else:
                loop.run(self._close(self._renewing))
        _OPEN.discard(self)

    async def _close(self, renewing: asyncio.Task[None] | None) -> None:
        if renewing is not None:
            renewing.cancel()
        if self._working is not None:
            await self._working
        with suppress(InputError), self._transaction() as connection:
            connection.execute(self._statements.end_all_claims)
        with self._connected:
            self._engine.dispose()

    def _require_open(self) -> None:
        if self._process != os.getpid():
            raise StoreError("the store is closed, or was opened by a process that this one was forked from")

    # What waits is carried out together.

    async def _ask(self, operation: _Operation) -> Reply | bool | None:
        async def asked() -> Reply | bool | None:
            self._require_open()
            operation.future = asyncio.get_running_loop().create_future()
            self._waiting.append(operation)
            if self._working is None:
                self._working = asyncio.create_task(self._work())
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew())
            return await operation.future

        self._require_open()
        return await loop.on_loop(asked())

    async def _work(self) -> None:
        while batch := self._waiting:
            self._waiting = []
            error = None
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._carry_out, batch)
            except Exception as raised:
                error = raised
            for operation in batch:
                if not operation.future.cancelled():
                    operation.future.set_exception(error) if error else operation.future.set_result(operation.answer)
        self._working = None

    async def _renew(self) -> None:
        """Renew the claims for as long as the store is open, which also keeps the connection from being idle."""
        while True:
            await asyncio.sleep(_RENEW)
            # A claim that cannot be renewed is lost at worst, and the next operation reports why.
            with suppress(InputError):
                await self.run(
                    lambda connection: connection.execute(
                        self._statements.renew_claims, {"until": self._now(connection) + EXPIRY}
                    )
                )

    def _carry_out(self, batch: Sequence[_Operation]) -> None:
        do, takes = self._statements, {operation.key for operation in batch if operation.kind == "take"}
        asked = [operation for operation in batch if operation.kind in ("get", "take")]
        with self._transaction(write=any(operation.kind != "get" for operation in batch)) as connection:
            self._put(connection, [operation.row for operation in batch if operation.row is not None])
            won = self._claim(connection, takes) if takes else set()
            # After the claims, for the last holder of one may have brought the reply meanwhile.
            found = self._select(connection, {operation.key for operation in asked}) if asked else {}
            over = {operation.key for operation in batch if operation.kind in ("put", "release")}
            if over := over | (won & found.keys()):
                # Also what was granted in this batch to a call that was cancelled.
                connection.execute(do.end_claims, do.keys(over))
        for operation in asked:
            operation.answer = found.get(operation.key, operation.key in won if operation.kind == "take" else None)

    def _put(self, connection: Connection, rows: Sequence[Row]) -> None:
        if not rows:
            return
        if replaced := self._unsound.intersection(row["key"] for row in rows):
            connection.execute(self._statements.delete_replies, self._statements.keys(replaced))
            self._unsound -= replaced
        # In the order of the keys, so that two processes that put the same rows do not block one another.
        rows = sorted(rows, key=lambda row: str(row["key"]))
        connection.execute(self._statements.add_replies, self._statements.rows(rows))

    def _select(self, connection: Connection, keys: Iterable[str]) -> dict[str, Reply]:
        """Key -> reply, of the rows that are sound."""
        found = {}
        for row in connection.execute(self._statements.replies, self._statements.keys(keys)).mappings():
            if (reply := reply_of(row)) is not None:
                found[row["key"]] = reply
                continue
            if not self._unsound:
                _LOG.warning(
                    "%s: the stored reply %s is not what was written for its call (wrong checksum); it and all "
                    "others like it are asked for again",
                    self._folder / FILE if self._address is None else clean_text(self._address),
                    row["key"],
                )
            self._unsound.add(row["key"])
        return found

    def _claim(self, connection: Connection, keys: set[str]) -> set[str]:
        """Those of the keys whose calls this process may make."""
        do, ordered, now = self._statements, sorted(keys), self._now(connection)
        rows = do.rows([{"key": key, "owner": self._owner, "expires": now + EXPIRY} for key in ordered])
        if connection.execute(do.add_claims, rows).rowcount == len(keys):
            return keys
        claims = connection.execute(do.claims, do.keys(ordered)).all()
        gone = {claim.owner for claim in claims if claim.owner != self._owner and _is_gone(claim.owner)}
        if any(claim.expires <= now or claim.owner in gone for claim in claims):
            connection.execute(do.end_lost_claims, {"now": now, "gone": sorted(gone)})
            connection.execute(do.add_claims, rows)
            claims = connection.execute(do.claims, do.keys(ordered)).all()
        return {claim.key for claim in claims if claim.owner == self._owner}

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
            file, number = self._folder / FILE, 0
            stored = stored_rows(file) if self._address is not None and file.exists() else ()
            old = (old_rows(path, self._lm) for path in sorted(self._folder.glob("*.replies")))
            rows = itertools.chain(stored, *old)
            while some := list(itertools.islice(rows, 1000)):
                self._put(connection, some)
                number += len(some)
            if number:
                _LOG.info("%s: %d replies that were there before are in the store now", self._folder, number)

    def _check_version(self, connection: Connection) -> None:
        """Refuse tables of something else or of another version."""
        known = sa.inspect(connection).has_table(VERSION.name)
        version = connection.execute(sa.select(VERSION.c.version)).scalar() if known else None
        if version != SCHEMA:
            raise StoreError(
                "the tables of replies are of something else, or of another version of this program",
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
