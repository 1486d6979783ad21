"""The thread of a process that talks to the database of replies: what is asked of it meanwhile goes out together.

So a run that recalls or writes thousands of replies makes few transactions, and no event loop waits for a round trip.
While the database is away calls go on without it: what is put is remembered by its key and sent when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.sharing import replies_table as table
from debate_judge.programs.lm.sharing.database import unreachable

if TYPE_CHECKING:
    import psycopg

_LOG = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two tries to reach a database that is away."""
_LAST = 30.0
"""Seconds that the end of a run waits for what is still to be sent; the next run sends the rest."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """What a task waits for: the record of a key, and where it is to be claimed whether that was granted."""

    key: str
    claims: bool
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[tuple[bool, str | None]]


@dataclass(slots=True)
class _Work:
    """What has come since the thread has last looked."""

    puts: list[tuple[str, str]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    questions: list[_Wanted] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.puts or self.released or self.questions)


class DatabaseLink:
    """Keeps one connection, and with it this process's claims: advisory locks, which go when the connection does.

    Args:
        address: Of the database.
        named: The flag or variable that it comes from, for messages.
        lm: Whose replies are put; for people who look into the table.
        recorded: From a key to the record that is kept on this machine, None if there is none.
        backlog: Keys of records on this machine that the database may not have, as numbers: there may be millions.

    Raises:
        InputError: The database cannot be reached or used.
    """

    def __init__(
        self, address: str, named: str, lm: str, recorded: Callable[[str], str | None], backlog: Iterable[int]
    ) -> None:
        self._address, self._named, self._lm, self._recorded = address, named, lm, recorded
        self._backlog = deque(backlog)
        self._connection: psycopg.Connection[Any] | None = table.open_table(address, named)
        self._held: set[str] = set()
        self._work = _Work()
        self._changed = threading.Condition()
        self._ending: float | None = None
        self._pause, self._next_try = _FIRST_PAUSE, 0.0
        self._thread = threading.Thread(target=self._run, name="replies-database", daemon=True)
        self._thread.start()

    def put(self, key: str, record: str) -> None:
        """Send a record as soon as possible."""
        with self._changed:
            if self._connection is None:
                self._backlog.append(int(key, 16))
            else:
                self._work.puts.append((key, record))
                self._changed.notify()

    async def find(self, key: str) -> str | None:
        """The record of a key; None if the database has none or is away."""
        return (await self._ask(key, claims=False))[1]

    async def claim(self, key: str) -> tuple[bool, str | None]:
        """Whether a call is this process's to make, and the record if there is one; granted if it is away."""
        return await self._ask(key, claims=True)

    async def _ask(self, key: str, *, claims: bool) -> tuple[bool, str | None]:
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._connection is None:
                return True, None
            question = _Wanted(key, claims, loop, loop.create_future())
            self._work.questions.append(question)
            self._changed.notify()
        return await question.answer

    def release(self, key: str) -> None:
        """Give a claim up, after what was put before has been sent."""
        with self._changed:
            self._work.released.append(key)
            self._changed.notify()

    def close(self) -> int:
        """Send what is left and end the connection; returns how many records this machine still has to send."""
        with self._changed:
            self._ending = time.monotonic() + _LAST
            self._next_try = 0.0
            self._changed.notify()
        self._thread.join()
        return len(self._backlog)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_to_do, self._longest_wait())
                work, self._work = self._work, _Work()
                ending = self._ending
            if self._connection is None and time.monotonic() >= self._next_try:
                self._reconnect()
            if self._connection is None:
                self._set_aside(work)
            else:
                self._carry_out(self._connection, work)
            late = ending is not None and time.monotonic() >= ending
            if late or (ending is not None and not work and (self._connection is None or not self._backlog)):
                break
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _has_to_do(self) -> bool:
        connected = self._connection is not None
        return bool(self._work) or self._ending is not None or (connected and bool(self._backlog))

    def _longest_wait(self) -> float | None:
        return None if self._connection is not None else max(0.0, self._next_try - time.monotonic())

    def _carry_out(self, connection: psycopg.Connection[Any], work: _Work) -> None:
        backlog: list[int] = []
        try:
            table.insert(connection, self._lm, work.puts)
            # Only now, so that whom they are granted to finds what was put.
            self._unlock(connection, work.released)
            granted = self._lock(connection, [q.key for q in work.questions if q.claims])
            wanted = {q.key for q in work.questions if not q.claims or q.key in granted}
            self._answer(work.questions, granted, table.select(connection, list(wanted)))
            if not work:
                backlog = [self._backlog.popleft() for _ in range(min(table.AT_ONCE, len(self._backlog)))]
                missing = table.missing(connection, [f"{number:032x}" for number in backlog])
                found = ((key, self._recorded(key)) for key in missing)
                table.insert(connection, self._lm, [(key, record) for key, record in found if record is not None])
            self._pause = _FIRST_PAUSE
        except Exception as error:
            # Whatever it is: were this thread to end, all that waits for it would wait for ever.
            self._backlog.extend(backlog)
            self._lost(connection, error)
            self._set_aside(work)

    def _lock(self, connection: psycopg.Connection[Any], keys: Sequence[str]) -> set[str]:
        """Claim what can be claimed; what this process has is granted to it again, as by `claims.FileClaims`."""
        numbers = {_number(key): key for key in keys if key not in self._held}
        if numbers:
            statement = "SELECT n FROM unnest(%s::bigint[]) AS t (n) WHERE pg_try_advisory_lock(n)"
            rows = connection.execute(statement, (list(numbers),)).fetchall()
            self._held.update(numbers[number] for (number,) in rows)
        return self._held.intersection(keys)

    def _unlock(self, connection: psycopg.Connection[Any], keys: Sequence[str]) -> None:
        numbers = [_number(key) for key in keys if key in self._held]
        if numbers:
            connection.execute("SELECT pg_advisory_unlock(n) FROM unnest(%s::bigint[]) AS t (n)", (numbers,))
            self._held.difference_update(keys)

    def _answer(self, questions: Sequence[_Wanted], granted: set[str], found: dict[str, str]) -> None:
        answers = defaultdict[asyncio.AbstractEventLoop, list[tuple[_Wanted, tuple[bool, str | None]]]](list)
        for question in questions:
            answers[question.loop].append((question, (question.key in granted, found.get(question.key))))
        for loop, several in answers.items():
            try:
                loop.call_soon_threadsafe(self._tell, several)
            except RuntimeError:
                # The loop has ended, and with it all that waited there.
                self._tell(several, ended=True)

    def _tell(self, answers: Sequence[tuple[_Wanted, tuple[bool, str | None]]], *, ended: bool = False) -> None:
        for question, answer in answers:
            if not ended and not question.answer.done():
                question.answer.set_result(answer)
            elif question.claims and answer[0]:
                # Cancelled before it was granted: no caller would release it.
                self.release(question.key)

    def _set_aside(self, work: _Work) -> None:
        """Go on without the database: what was put is sent later, and every process makes its own calls."""
        self._backlog.extend(int(key, 16) for key, _ in work.puts)
        self._answer(work.questions, {question.key for question in work.questions}, {})

    def _lost(self, connection: psycopg.Connection[Any], error: Exception) -> None:
        with suppress(Exception):
            connection.close()
        with self._changed:
            self._connection = None
            # They went with the connection.
            self._held.clear()
        # What is refused at once, e.g. for want of a right, is not tried again and again.
        level = logging.WARNING if self._pause == _FIRST_PAUSE else logging.DEBUG
        self._wait_longer()
        _LOG.log(
            level,
            "%s; the run goes on without it, and sends its replies when it is back",
            unreachable(self._address, self._named, error).problem,
        )

    def _wait_longer(self) -> None:
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _reconnect(self) -> None:
        try:
            connection = table.open_table(self._address, self._named)
        except InputError:
            self._wait_longer()
            return
        with self._changed:
            self._connection = connection
        _LOG.log(
            logging.WARNING if self._backlog else logging.DEBUG,
            "the database of replies is back; %d replies are sent",
            len(self._backlog),
        )


def _number(key: str) -> int:
    """Of a key's lock; keys are random, so that their beginning will do."""
    return int(key[:16], 16) - (1 << 63)
