"""Replies, what they used, and where they are stored. Imports no DSPy.

A reply is stored and committed before its caller continues, so that finished calls are not paid for again and a stopped
run resumes. Of the processes that need the same reply one claims the call and makes it; a claim expires unless its
owner renews it, and ends at once where the owner's process has ended. An operation of a store takes some 40
microseconds, so it is carried out where it is called, on the loop of all LM calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import platform
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from debate_judge.data.errors import InputError, make_folder
from debate_judge.programs.lm.settings import Price

_LOG = logging.getLogger(__name__)

Messages = list[dict[str, Any]]
"""Texts with their roles (system, user, assistant), as OpenAI's chat protocol has them."""

# --- replies ---


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as it is stored: nothing in it identifies a key or an account."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that the provider served from its prefix cache; `input_tokens` includes them."""
    finish: str = "stop"
    logprobs: Sequence[Sequence[tuple[str, float]]] | None = None
    """If requested: for each token, that token and the most likely alternatives, with log-probabilities."""

    id: str | None = field(default=None, compare=False)
    """What the server calls it; the store keeps neither this nor what follows."""
    from_cache: bool = field(default=False, compare=False)
    """Whether a gateway says that it is from its cache."""

    def __post_init__(self) -> None:
        # A reply must be the same when it comes from the store.
        object.__setattr__(self, "text", storable(self.text))
        object.__setattr__(self, "finish", storable(self.finish))


def storable(text: str) -> str:
    """The text without what UTF-8 or a database cannot hold."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


class Transport:
    """Makes one attempt at a call."""

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        """Send `messages` once; raises the errors of `dspy.lm15`, whose class says whether to retry."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close its connections."""


class LocalTransport(Transport):
    """A transport that answers inside the process: the offline stand-in, the dry run, the scripted LM of tests.

    A subclass defines `answer`, which must not block: it runs on the event loop.
    """

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        """Answer a call.

        Args:
            system: The system text, empty if there is none.
            user: The last user text; earlier turns (demonstrations) are not read.
            settings: Those of the call.
        """
        raise NotImplementedError

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        system = next((m["content"] for m in messages if m["role"] == "system"), "")
        return self.answer(system, messages[-1]["content"], settings)


# --- usage ---


@dataclass(frozen=True, slots=True)
class CallTag:
    """What the engine knows of a call besides its request. Equal requests with a tag and `sample` are one call."""

    role: str = "proposer"
    """Role in the debate, for the accounts."""
    round: int = 0
    """Round of the debate, for the accounts."""
    sample: int | None = None
    """Number of a sample; part of the call's key."""


CALL_TAG: ContextVar[CallTag | None] = ContextVar("call_tag", default=None)
"""Set around a call, read by the LM's engine. Without a tag, as in DSPy's proposers, equal requests are new samples."""

ON_REPLY: ContextVar[Callable[[str, Reply], None] | None] = ContextVar("on_reply", default=None)
"""Called by the engine with the key of each reply, and the reply, whether or not the store had it."""


@dataclass
class Usage:
    """Numbers of calls and tokens, by price."""

    calls: int = 0
    """Executed."""
    cache_hits: int = 0
    """Replies from the store: paid for by an earlier run, or by another caller of this run."""
    fresh: int = 0
    """Input at the full price."""
    cached: int = 0
    """Input that the provider served from its prefix cache."""
    output: int = 0
    stored_input: int = 0
    """Input of the replies from the store."""
    stored_output: int = 0
    uncounted: int = 0
    """Executed calls whose tokens the server did not report."""

    @property
    def stored(self) -> int:
        """Tokens of the replies from the store."""
        return self.stored_input + self.stored_output

    def cost(self, price: Price) -> float:
        """US dollars spent on what was executed."""
        return price.cost(self.fresh, self.cached, self.output)

    def saved(self, price: Price) -> float:
        """US dollars that the store's replies would have cost without any cache."""
        return price.cost(self.stored_input, 0, self.stored_output)

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass
class Meter:
    """Counts calls and tokens by role and round. Other threads may read it."""

    requested: Counter[str] = field(default_factory=Counter)
    accounts: dict[tuple[str, int], Usage] = field(default_factory=dict)
    """(role, round) -> what its calls used."""
    failed: Counter[str] = field(default_factory=Counter)
    """Requested, and neither answered nor in the store, after all attempts."""
    prices: dict[str, Price | None] = field(default_factory=dict)
    """Role -> price, for roles of a second LM."""

    def count_reply(self, role: str, reply: Reply, *, round: int = 0) -> None:
        """Count a reply of an executed call."""
        fresh, unknown = reply.input_tokens - reply.cached_tokens, not (reply.input_tokens or reply.output_tokens)
        self._add(role, round, Usage(1, 0, fresh, reply.cached_tokens, reply.output_tokens, uncounted=unknown))

    def count_hit(self, role: str, reply: Reply, *, round: int = 0) -> None:
        """Count a reply from the store."""
        stored = Usage(cache_hits=1, stored_input=reply.input_tokens, stored_output=reply.output_tokens)
        self._add(role, round, stored)

    def _add(self, role: str, round: int, usage: Usage) -> None:
        self.accounts[role, round] = self.accounts.get((role, round), Usage()) + usage

    def counts(self) -> dict[str, int]:
        """Numbers of calls: `requested`, of these `answered`, `failed` and `from_cache`; the rest were cancelled."""
        counts = {"requested": self.requested, "answered": self.executed, "failed": self.failed}
        return {name: count.copy().total() for name, count in counts.items()} | {"from_cache": self.total.cache_hits}

    def snapshot(self) -> Meter:
        """A copy without prices, for another process."""
        return Meter(self.requested.copy(), self.accounts.copy(), self.failed.copy())

    @classmethod
    def sum(cls, meters: Iterable[Meter]) -> Meter:
        """The counts of several processes together."""
        total = cls()
        for meter in meters:
            total.requested.update(meter.requested)
            total.failed.update(meter.failed)
            for (role, round), usage in meter.accounts.items():
                total._add(role, round, usage)
        return total

    @property
    def executed(self) -> Counter[str]:
        """Role -> its executed calls."""
        return Counter({role: usage.calls for role, usage in self.by_role.items() if usage.calls})

    @property
    def by_role(self) -> dict[str, Usage]:
        """Role -> what its calls used, over all rounds."""
        by_role: dict[str, Usage] = {}
        for (role, _), usage in sorted(self.accounts.copy().items()):
            by_role[role] = by_role.get(role, Usage()) + usage
        return by_role

    @property
    def total(self) -> Usage:
        """All calls together."""
        return sum(self.accounts.copy().values(), Usage())

    def cost(self, price: Price) -> dict[str, float]:
        """Role -> US dollars spent on its executed calls."""
        prices = ((role, usage, self.prices.get(role, price)) for role, usage in self.by_role.items())
        return {role: usage.cost(role_price) for role, usage, role_price in prices if role_price is not None}


# --- stores ---

FILE = "replies.sqlite"
"""The database in the folder of a store; SQLite keeps `-wal` and `-shm` files next to it while it is open."""
_SCHEMA = 2
"""Version of the tables, in `PRAGMA user_version`; any other is refused."""
_CLAIM_EXPIRY = 20.0
"""Seconds after which a claim that was not renewed ends, e.g. because its process hangs."""
_RENEWAL_INTERVAL = 5.0
"""Seconds between two renewals of the claims that a process holds."""
_TABLES = """
CREATE TABLE replies (
    key TEXT PRIMARY KEY, role TEXT NOT NULL, text TEXT NOT NULL, input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, finish TEXT NOT NULL, logprobs TEXT,
    checksum TEXT NOT NULL, usable INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, expires REAL NOT NULL);
"""
_COLUMNS = "key, role, text, input_tokens, output_tokens, cached_tokens, finish, logprobs, checksum"


def replies_folder(store: str | Path, spec: str) -> Path:
    """The folder with the stored replies of the LM `spec`, below the folder given with `--store`."""
    return Path(store) / "replies" / spec.replace("/", "_")


class StoreError(InputError):
    """A store cannot be read or written; the run must end."""


class ReplyStore:
    """Stores replies by the keys of their calls: here as long as the process lasts, without claims.

    Args:
        max_replies: The oldest replies beyond this number are dropped. None keeps all.
    """

    def __init__(self, max_replies: int | None = None) -> None:
        self._max_replies = max_replies
        self._replies: dict[str, Reply] = {}

    async def get(self, key: str) -> Reply | None:
        """The reply that is stored under a key."""
        return self._replies.get(key)

    async def get_or_claim(self, key: str) -> Reply | bool:
        """The stored reply; else True if this store now holds the call's claim, False while another one does."""
        return await self.get(key) or True

    async def put(self, key: str, role: str, reply: Reply) -> None:
        """Store a reply, committed when this returns, and end the claim of its call."""
        self._replies[key] = reply
        if self._max_replies is not None and len(self._replies) > self._max_replies:
            del self._replies[next(iter(self._replies))]

    async def release(self, key: str) -> None:
        """End the claim of a call that has failed."""

    async def discard(self, key: str) -> None:
        """Forget a reply that could not be used, at the latest when the store is opened again."""
        self._replies.pop(key, None)

    def close(self) -> None:
        """End all claims."""


async def wait_or_claim(store: ReplyStore, key: str) -> Reply | None:
    """Wait while another process holds the claim of a call; its reply, or None if this process now holds the claim."""
    pause = 0.02
    while (outcome := await store.get_or_claim(key)) is False:
        await asyncio.sleep(pause)
        # A call to an LM takes seconds.
        pause = min(1.5 * pause, 0.5)
    return None if outcome is True else outcome


class SqlStore(ReplyStore):
    """A store in a SQLite file. Any number of event loops, threads and processes may use it.

    A row has a checksum over its key and all its fields; one whose checksum is wrong is deleted, and its call made
    again. The first reply that is stored under a key stays.

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
            # isolation_level=None: `_transaction` sends BEGIN itself. Another process's is waited for.
            self._db = sqlite3.connect(self._file, 60.0, isolation_level=None, check_same_thread=False)
            self._set_up()
        threading.Thread(target=self._renew_claims, name="claims", daemon=True).start()

    def _set_up(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == _SCHEMA:
            # What an earlier run could not use is asked for again.
            self._db.execute("DELETE FROM replies WHERE NOT usable")
        elif version or self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._db.close()
            raise StoreError(
                "the file belongs to another program, or to another version of this one",
                file=self._file,
                field="--store",
                expected=f"a store of version {_SCHEMA}",
                found=f"version {version}" if version else "no version",
                remedy="give another folder",
            )
        else:
            self._db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={_SCHEMA}; COMMIT;")

    async def get(self, key: str) -> Reply | None:
        with self._transaction(begin=False):
            return self._reply(key)

    async def get_or_claim(self, key: str) -> Reply | bool:
        with self._transaction():
            if (reply := self._reply(key)) is not None:
                return reply
            claim = self._db.execute("SELECT owner, expires FROM claims WHERE key = ?", (key,)).fetchone()
            if claim is not None and claim[0] != self._owner and claim[1] > time.time() and not _has_ended(claim[0]):
                return False
            row = (key, self._owner, time.time() + _CLAIM_EXPIRY)
            self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", row)
            return True

    async def put(self, key: str, role: str, reply: Reply) -> None:
        logprobs = None if reply.logprobs is None else json.dumps(reply.logprobs)
        tokens = (reply.input_tokens, reply.output_tokens, reply.cached_tokens)
        row = (key, role, reply.text, *tokens, reply.finish, logprobs)
        with self._transaction():
            values = (*row, _checksum(row))
            self._db.execute(f"INSERT OR IGNORE INTO replies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._end_claim(key)

    async def release(self, key: str) -> None:
        with self._transaction():
            self._end_claim(key)

    async def discard(self, key: str) -> None:
        with self._transaction():
            self._db.execute("UPDATE replies SET usable = 0 WHERE key = ?", (key,))

    def close(self) -> None:
        """End all claims and close the file."""
        # In one step: who claimed a call in between could not store its reply any more.
        with self._lock:
            self._closed.set()
            with suppress(sqlite3.Error):
                self._db.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))
            self._db.close()

    def _reply(self, key: str) -> Reply | None:
        """The reply of the row with a right checksum; any other is deleted."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM replies WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row[-1] != _checksum(row[:-1]):
            _LOG.warning("%s: a stored reply with a wrong checksum, which is requested again: %s", self._file, key)
            # Not what another process has stored in its place meanwhile.
            self._db.execute("DELETE FROM replies WHERE key = ? AND checksum = ?", (key, row[-1]))
            return None
        stored = json.loads(row[7] or "null")
        logprobs = stored and tuple(tuple(map(tuple, alternatives)) for alternatives in stored)
        text, input_tokens, output_tokens, cached_tokens, finish = row[2:7]
        return Reply(text, input_tokens, output_tokens, cached_tokens, finish, logprobs)

    def _end_claim(self, key: str) -> None:
        self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))

    def _renew_claims(self) -> None:
        while not self._closed.wait(_RENEWAL_INTERVAL):
            # If this fails, the next operation reports why; at worst the claims expire.
            with suppress(StoreError), self._transaction():
                until = time.time() + _CLAIM_EXPIRY
                self._db.execute("UPDATE claims SET expires = ? WHERE owner = ?", (until, self._owner))

    @contextmanager
    def _transaction(self, *, begin: bool = True) -> Iterator[None]:
        """One operation at a time, and none after the end."""
        with self._lock, self._store_errors():
            if self._closed.is_set():
                raise StoreError("the store is closed", file=self._file)
            with self._db if begin else nullcontext():
                if begin:
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
