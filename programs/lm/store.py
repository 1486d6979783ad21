"""Stores every LM reply in a SQLite file, so that finished calls are not paid for again and a stopped run resumes.

A reply is committed before its caller continues. Of the processes that need the same reply one claims the call and
makes it; a claim expires unless its owner renews it, and ends at once where the owner's process has ended. An operation
takes some 40 microseconds, so it is carried out where it is called, on the loop of all LM calls.

A row has a checksum over its key and all its fields. A row whose checksum is wrong is deleted, and its call made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from debate_judge.data.files.writing import make_folder
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
_COLUMNS = "key, role, text, input_tokens, output_tokens, cached_tokens, finish, logprobs, checksum"


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
        self._lock, self._closed = threading.Lock(), threading.Event()
        # SQLite does not wait for another process that changes the mode of the file at the same moment.
        with FileLock(folder / ".opening"), self._store_errors():
            # isolation_level=None: `_transaction` sends BEGIN itself.
            self._db = sqlite3.connect(self._file, _TIMEOUT, isolation_level=None, check_same_thread=False)
            self._set_up()
        threading.Thread(target=self._renew_claims, name="claims", daemon=True).start()

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
        with self._open():
            return self._reply(key)

    async def get_or_claim(self, key: str) -> Reply | bool:
        """The stored reply; else True if this store now holds the call's claim, False while another one does."""
        with self._open(), self._transaction():
            if (reply := self._reply(key)) is not None:
                return reply
            claim = self._db.execute("SELECT owner, expires FROM claims WHERE key = ?", (key,)).fetchone()
            if claim is not None and claim[0] != self._owner and claim[1] > time.time() and not _has_ended(claim[0]):
                return False
            self._db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (key, self._owner, time.time() + CLAIM_EXPIRY)
            )
            return True

    async def put(self, key: str, role: str, reply: Reply) -> None:
        """Store a reply, and end the claim of its call. The first reply that is stored under a key stays."""
        row = _row_of(key, role, reply)
        with self._open(), self._transaction():
            self._db.execute(f"INSERT OR IGNORE INTO replies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._end_claims("AND key = ?", key)

    async def release(self, key: str) -> None:
        """End the claim of a call that has failed."""
        with self._open(), self._transaction():
            self._end_claims("AND key = ?", key)

    async def discard(self, key: str) -> None:
        """Keep a reply that could not be used only until the store is opened again, so that the next run asks anew."""
        with self._open(), self._transaction():
            self._db.execute("UPDATE replies SET usable = 0 WHERE key = ?", (key,))

    def close(self) -> None:
        """End all claims and close the file."""
        with self._lock:
            if not self._closed.is_set():
                self._closed.set()
                with suppress(sqlite3.Error), self._transaction():
                    self._end_claims()
                self._db.close()

    def _reply(self, key: str) -> Reply | None:
        """The reply of the row with a right checksum; any other is deleted."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM replies WHERE key = ?", (key,)).fetchone()
        if row is None or row[-1] == _checksum(row[:-1]):
            return row and _reply_of(row)
        _LOG.warning("%s: a stored reply with a wrong checksum, which is requested again: %s", self._file, key)
        # Not what another process has stored in its place meanwhile.
        self._db.execute("DELETE FROM replies WHERE key = ? AND checksum = ?", (key, row[-1]))
        return None

    def _end_claims(self, which: str = "", *values: str) -> None:
        self._db.execute(f"DELETE FROM claims WHERE owner = ? {which}", (self._owner, *values))

    def _renew_claims(self) -> None:
        while not self._closed.wait(_RENEWAL_INTERVAL):
            # If this fails, the next operation reports why; at worst the claims expire.
            with suppress(StoreError), self._open(), self._transaction():
                until = time.time() + CLAIM_EXPIRY
                self._db.execute("UPDATE claims SET expires = ? WHERE owner = ?", (until, self._owner))

    @contextmanager
    def _open(self) -> Iterator[None]:
        """One operation at a time, and none after the end."""
        with self._lock, self._store_errors():
            if self._closed.is_set():
                raise StoreError("the store is closed", file=self._file)
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._db:
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


def _row_of(key: str, role: str, reply: Reply) -> tuple[Any, ...]:
    logprobs = None if reply.logprobs is None else json.dumps(reply.logprobs)
    tokens = (reply.input_tokens, reply.output_tokens, reply.cached_tokens)
    row = (key, role, reply.text, *tokens, reply.finish, logprobs)
    return (*row, _checksum(row))


def _reply_of(row: tuple[Any, ...]) -> Reply:
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
