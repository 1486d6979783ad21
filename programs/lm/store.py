"""Stores every LM reply in a SQLite file, so that finished calls are not paid for again and a stopped run resumes.

One thread of each process uses the file: the operations in its queue form one transaction. A reply is committed before
its caller continues. Of the processes that need the same reply one claims the call and makes it; a claim expires unless
its owner renews it, and ends at once where the owner's process has ended.

A row has a checksum over its key and all its fields. A row whose checksum is wrong is deleted, and its call made again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import platform
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import psutil
from filelock import FileLock

from debate_judge.data.files.writing import make_folder
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.reply import Reply, StoreError

_LOG = logging.getLogger(__name__)

FILE = "replies.sqlite"
"""The database in the folder of a store; SQLite keeps `-wal` and `-shm` files next to it while it is open."""

SCHEMA = 2
"""Version of the tables, in `PRAGMA user_version`; any other is refused."""

CLAIM_EXPIRY = 20.0
"""Seconds after which a claim that was not renewed ends, e.g. because its process hangs."""

_RENEWAL_INTERVAL = 5.0
"""Seconds between two renewals of the claims that a process holds."""

_TIMEOUT = 60.0
"""Seconds to wait for another process's transaction."""

_TABLES = """
CREATE TABLE replies (
    key TEXT PRIMARY KEY, role TEXT NOT NULL, text TEXT NOT NULL, input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, finish TEXT NOT NULL, logprobs TEXT,
    checksum TEXT NOT NULL, usable INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, expires REAL NOT NULL);
"""
_COLUMNS = ("key", "role", "text", "input_tokens", "output_tokens", "cached_tokens", "finish", "logprobs", "checksum")

# Statements about several rows take them as JSON in one parameter: `sqlite3` releases the GIL at each statement and
# has to wait for it again.
_HAS_KEY = "key IN (SELECT value FROM json_each(?))"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM replies WHERE {_HAS_KEY}"
_FIELDS = ", ".join(f"json_extract(value, '$[{number}]')" for number in range(len(_COLUMNS)))
_INSERT = f"INSERT OR IGNORE INTO replies ({', '.join(_COLUMNS)}) SELECT {_FIELDS} FROM json_each(?)"

_Row = tuple[Any, ...]
"""The values of `_COLUMNS`."""


@dataclass(slots=True, eq=False)
class _Operation:
    """An operation that a caller awaits."""

    kind: Literal["get", "claim", "put", "release", "discard"]
    key: str
    row: _Row | None
    future: asyncio.Future[Reply | bool | None]
    result: Reply | bool | None = None
    error: Exception | None = None


class SqlStore:
    """A `programs.lm.reply.ReplyStore` in a SQLite file. Any number of event loops, threads and processes may use it.

    Args:
        folder: Of the file, on a disk of this machine; created if it is absent.

    Raises:
        InputError: The folder cannot be written, or the file is not a store of this version.
            A method raises StoreError where the file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder, "--store")
        self._file = folder / FILE
        self._owner = f"{platform.node()}/{os.getpid()}/{psutil.Process().create_time():.0f}/{uuid.uuid4().hex[:8]}"
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._closed = False
        self._closing_lock = threading.Lock()
        # SQLite does not wait for another process that changes the mode of the file at the same moment.
        with FileLock(folder / ".opening"), self._store_errors():
            # isolation_level=None: `_transaction` sends BEGIN itself.
            self._db = sqlite3.connect(self._file, _TIMEOUT, isolation_level=None, check_same_thread=False)
            self._set_up()
        self._thread = threading.Thread(target=self._run, name="replies", daemon=True)
        self._thread.start()

    def _set_up(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA:
            # What an earlier run could not use is asked for again.
            self._db.execute("DELETE FROM replies WHERE NOT usable")
        elif version or self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._db.close()
            raise StoreError(
                "the file belongs to another program, or to another version of this one",
                file=self._file,
                field="--store",
                expected=f"a store of version {SCHEMA}",
                found=f"version {version}" if version else "no version",
                remedy="give another folder",
            )
        else:
            self._db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={SCHEMA}; COMMIT;")

    async def get(self, key: str) -> Reply | None:
        """The reply that is stored under a key."""
        return cast("Reply | None", await self._submit("get", key))

    async def get_or_claim(self, key: str) -> Reply | bool:
        """The stored reply; else True if this store now holds the call's claim, False while another one does."""
        try:
            return cast("Reply | bool", await self._submit("claim", key))
        except asyncio.CancelledError:
            # The claim may have been granted just now.
            await self.release(key)
            raise

    async def put(self, key: str, role: str, reply: Reply) -> None:
        """Store a reply, and end the claim of its call. The first reply that is stored under a key stays."""
        await self._submit("put", key, _row_of(key, role, reply))

    async def release(self, key: str) -> None:
        """End the claim of a call that has failed."""
        await self._submit("release", key)

    async def discard(self, key: str) -> None:
        """Keep a reply that could not be used only until the store is opened again, so that the next run asks anew."""
        await self._submit("discard", key)

    async def _submit(self, kind: Any, key: str, row: _Row | None = None) -> Reply | bool | None:
        async def enqueue() -> Reply | bool | None:
            operation = _Operation(kind, key, row, asyncio.get_running_loop().create_future())
            with self._closing_lock:
                # The thread would not execute what comes after the end.
                if self._closed or not self._thread.is_alive():
                    raise StoreError("the store is closed", file=self._file)
                self._queue.put(operation)
            return await operation.future

        return await loop.on_loop(enqueue())

    def close(self) -> None:
        """Finish the queue, end all claims and close the file."""
        with self._closing_lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    # --- the thread ---

    def _run(self) -> None:
        last_renewal, closing = time.monotonic(), False
        while not closing:
            operations = self._next_operations()
            batch = [operation for operation in operations if operation is not None]
            closing = len(batch) < len(operations)
            if batch:
                self._execute(batch)
                loop.event_loop().call_soon_threadsafe(_deliver, batch)
            if time.monotonic() - last_renewal >= _RENEWAL_INTERVAL:
                # If this fails, the next operation reports why; at worst the claims expire.
                with suppress(StoreError), self._transaction():
                    until = time.time() + CLAIM_EXPIRY
                    self._db.execute("UPDATE claims SET expires = ? WHERE owner = ?", (until, self._owner))
                last_renewal = time.monotonic()
        with suppress(StoreError), self._transaction():
            self._db.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))
        self._db.close()

    def _next_operations(self) -> list[_Operation | None]:
        """The operations in the queue, or the next one to come; None means that the store is being closed."""
        operations: list[_Operation | None] = []
        with suppress(queue.Empty):
            operations.append(self._queue.get(timeout=_RENEWAL_INTERVAL))
            while True:
                operations.append(self._queue.get_nowait())
        return operations

    def _execute(self, batch: Sequence[_Operation]) -> None:
        """Execute the operations; what writes forms one transaction, in which puts come before claims, and claims
        before the releases of callers that were cancelled."""
        try:
            lookups = [operation for operation in batch if operation.kind in ("get", "claim")]
            with self._store_errors():
                replies = self._replies({operation.key for operation in lookups})
            for operation in lookups:
                operation.result = replies.get(operation.key)
            claims = {operation.key for operation in lookups if operation.kind == "claim" and operation.result is None}
            if not claims and len(lookups) == len(batch):
                return
            with self._transaction():
                rows = [operation.row for operation in batch if operation.row is not None]
                self._db.execute(_INSERT, (json.dumps(rows, ensure_ascii=False),))
                granted = self._claim(claims) if claims else {}
                ended = [operation.key for operation in batch if operation.kind in ("put", "release")]
                self._end_claims(ended)
                discarded = [operation.key for operation in batch if operation.kind == "discard"]
                self._db.execute(f"UPDATE replies SET usable = 0 WHERE {_HAS_KEY}", (json.dumps(discarded),))
            for operation in lookups:
                if operation.kind == "claim" and operation.result is None:
                    operation.result = granted[operation.key]
        except Exception as error:
            for operation in batch:
                operation.error = error

    def _replies(self, keys: Iterable[str]) -> dict[str, Reply]:
        """Key -> reply, of the rows with a right checksum; the others are deleted."""
        found, damaged = {}, []
        for row in self._db.execute(_SELECT, (json.dumps(list(keys)),)).fetchall():
            if row[-1] == _checksum(row[:-1]):
                found[row[0]] = _reply_of(row)
            else:
                damaged.append((row[0], row[-1]))
        if damaged:
            _LOG.warning(
                "%s: stored replies with a wrong checksum, which are requested again: %s",
                self._file,
                ", ".join(str(key) for key, _ in damaged),
            )
            # Not what another process has stored in their place meanwhile.
            self._db.executemany("DELETE FROM replies WHERE key = ? AND checksum = ?", damaged)
        return found

    def _claim(self, keys: Iterable[str]) -> dict[str, Reply | bool]:
        """Key -> its reply, which the last holder of the claim may have stored, or whether this store now holds it."""
        wanted, now = json.dumps(sorted(keys)), time.time()
        others = f"SELECT DISTINCT owner FROM claims WHERE owner != ? AND {_HAS_KEY}"
        rows = self._db.execute(others, (self._owner, wanted))
        dead = json.dumps([owner for (owner,) in rows.fetchall() if _has_ended(owner)])
        self._db.execute(
            "DELETE FROM claims WHERE expires <= ? OR owner IN (SELECT value FROM json_each(?))", (now, dead)
        )
        added = (self._owner, now + CLAIM_EXPIRY, wanted)
        self._db.execute("INSERT OR IGNORE INTO claims SELECT value, ?, ? FROM json_each(?)", added)
        rows = self._db.execute(f"SELECT key FROM claims WHERE owner = ? AND {_HAS_KEY}", (self._owner, wanted))
        claimed, replies = {key for (key,) in rows.fetchall()}, self._replies(keys)
        self._end_claims(replies)
        return {key: replies.get(key, key in claimed) for key in keys}

    def _end_claims(self, keys: Iterable[str]) -> None:
        self._db.execute(f"DELETE FROM claims WHERE owner = ? AND {_HAS_KEY}", (self._owner, json.dumps(list(keys))))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._store_errors(), self._db:
            # A transaction that begins by reading could not write once another process has written.
            self._db.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"the stored replies cannot be used: {error}",
                file=self._file,
                field="--store",
                remedy="fix the problem (room on the disk, permissions, a damaged file) and run the command again; it "
                "resumes, and finished calls are not paid for again",
            ) from error


def _deliver(batch: Sequence[_Operation]) -> None:
    """Set the results of the callers' futures, on their event loop."""
    for operation in batch:
        if operation.future.cancelled():
            continue
        if operation.error is not None:
            operation.future.set_exception(operation.error)
        else:
            operation.future.set_result(operation.result)


def _row_of(key: str, role: str, reply: Reply) -> _Row:
    logprobs = None if reply.logprobs is None else json.dumps(reply.logprobs)
    tokens = (reply.input_tokens, reply.output_tokens, reply.cached_tokens)
    row = (key, role, reply.text, *tokens, reply.finish, logprobs)
    return (*row, _checksum(row))


def _reply_of(row: _Row) -> Reply:
    stored = None if row[7] is None else json.loads(row[7])
    logprobs = None if stored is None else tuple(tuple(map(tuple, alternatives)) for alternatives in stored)
    text, input_tokens, output_tokens, cached_tokens, finish = row[2:7]
    return Reply(text, input_tokens, output_tokens, cached_tokens, finish, logprobs)


def _checksum(values: Sequence[Any]) -> str:
    """Over the key and all fields, so that a changed row, or one under another key, is noticed."""
    # SQLite accepts any type in a column, e.g. bytes.
    return hashlib.blake2b(json.dumps(values, default=repr).encode(), digest_size=8).hexdigest()


def _has_ended(owner: str) -> bool:
    """Whether an owner's process has ended; False if it is of another machine or container, whose claims expire."""
    machine, pid, started, _ = owner.rsplit("/", 3)
    if machine != platform.node():
        return False
    try:
        process = psutil.Process(int(pid))
        # The start time of a process shifts when the clock is set.
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - float(started)) > 10.0
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
