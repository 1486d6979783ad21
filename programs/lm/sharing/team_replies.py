"""Replies that a team's machines share: a journal on each of them, and a PostgreSQL database behind all.

A reply goes into the journal first, with all that the journal guarantees, and from there to the database within
milliseconds, in a transaction with all that came meanwhile. What is asked for is looked up in the journal, then in the
database; what is found there is kept in the journal as well. Claims hold among the processes of the machine by the
journal and among machines by advisory locks of the database.

While the database is away the run goes on: processes of one machine still share, and what is answered is sent when it
is back, by this run or the next one on the same folder. Batch jobs stay on the machine that made them: only the key
that a job was made with can look at it.
"""

from __future__ import annotations

import logging

from debate_judge.programs.lm.journal import Journal, record_of, reply_of
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.sharing.database_link import DatabaseLink

_LOG = logging.getLogger(__name__)


class TeamReplies:
    """A `programs.lm.reply.SharedStore` of several machines.

    Args:
        journal: Of this machine; closed with this store.
        address: Of the database, as `sharing.database.database_address` returns it.
        named: The flag or variable that it comes from, for messages.
        lm: Whose replies these are; for people who look into the table.

    Raises:
        InputError: The database cannot be reached or used.
    """

    def __init__(self, journal: Journal, address: str, *, named: str, lm: str) -> None:
        self._journal = journal
        self.jobs = journal.jobs
        self._link = DatabaseLink(address, named, lm, journal.record, journal.keys())

    def get(self, key: str) -> Reply | None:
        return self._journal.get(key)

    def put(self, key: str, role: str, reply: Reply) -> None:
        """Keep a reply.

        Raises:
            StoreError: An earlier reply could not be written to the journal.
        """
        record = record_of(role, reply)
        self._journal.keep(key, reply, record)
        self._link.put(key, record)

    async def fetch(self, key: str) -> Reply | None:
        own = self._journal.get(key)
        return own if own is not None else self._take_over(key, await self._link.find(key))

    async def claim(self, key: str) -> bool:
        if not await self._journal.claim(key):
            return False
        granted = False
        try:
            granted, record = await self._link.claim(key)
        finally:
            if not granted:
                self._journal.release(key)
        if granted and self._journal.get(key) is None:
            self._take_over(key, record)
        return granted

    def release(self, key: str) -> None:
        self._link.release(key)
        self._journal.release(key)

    def _take_over(self, key: str, record: str | None) -> Reply | None:
        """Keep what the database has in the journal as well."""
        if record is None:
            return None
        try:
            reply = reply_of(record)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            _LOG.warning("the database's reply %s cannot be read (%s) and is asked for again", key, error)
            return None
        self._journal.keep(key, reply, record)
        return reply

    def flush(self) -> None:
        """Write what waits to the journal.

        Raises:
            StoreError: It cannot be written.
        """
        self._journal.flush()

    def close(self) -> None:
        """Write what waits, send it to the database and close both.

        Raises:
            StoreError: It cannot be written to the journal.
        """
        try:
            self._journal.flush()
            if left := self._link.close():
                _LOG.warning("%d replies are not in the database yet; the next run on this --store sends them", left)
        finally:
            self._journal.close()
