"""Closes runs whose process was killed before it could close them itself.

A process that ends by SIGKILL or a power cut leaves its run in the state RUNNING. So each process holds a lock while it
tracks, and its run has the lock's name as a tag: a file `running/NAME.lock` in the store and, where runs are kept in
PostgreSQL, a lock in the database as well, so that a team's machines know about each other's runs. The operating
system, or the server, releases it with the process, however that ends: a run whose lock another process can take is no
longer running. Process ids would not do, for they are given out again.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from filelock import FileLock, Timeout

from debate_judge.programs.lm.sql.postgresql import DatabaseLock, uses_psycopg
from debate_judge.runs.tracking.store import TrackingStore, explained

TAG = "process"


class RunLock:
    """The lock of a process on its run.

    Args:
        uri: Of the tracking store.
        store: Folder that the lock's file is kept in, below `running`.
        name: Of the lock of another process; None for a new one.
    """

    def __init__(self, uri: str, store: Path, name: str | None = None) -> None:
        self.name = name or uuid.uuid4().hex
        self._new = name is None
        # A name may come from a tag that anyone can edit in the UI; it must not lead out of the folder.
        self._file = store / "running" / f"{Path(self.name).name}.lock"
        self._held = FileLock(self._file, thread_local=False)
        self._shared = DatabaseLock(uri, "tracking URI", f"run {self.name}") if uses_psycopg(uri) else None

    def acquire(self) -> bool:
        """Take the lock; False if a process has it, or if nothing is known of it here."""
        if self._new:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        # A database forgets the lock with its session, while the process lives on: where the file is, the file decides.
        elif not self._file.exists():
            return self._shared is not None and self._shared.acquire()
        try:
            self._held.acquire(timeout=0)
        except Timeout:
            return False
        return not self._new or self._shared is None or self._shared.acquire()

    def release(self, *, closed: bool) -> None:
        """Give the lock up; the file stays for a run that could not be closed, so that a later process closes it."""
        if closed:
            self._file.unlink(missing_ok=True)
        self._held.release()
        if self._shared is not None:
            self._shared.release()


def close_stale_runs(place: TrackingStore, store: Path, successor: str) -> list[str]:
    """Set the runs of an experiment whose process is gone, and their unfinished trials, to KILLED; returns their ids.

    Each gets a tag `error`, and `successor` with the id of the run that has just been started if that has the same
    name. Runs of processes that are alive are left alone, and so are those whose lock is kept in another store, `store`
    being that of this process: nothing is known about them here.

    Raises:
        InputError: The store cannot be used.
    """
    closed: list[str] = []
    with explained(place.uri):
        name = place.client.get_run(successor).info.run_name
        for run in place.running(f"tags.{TAG} LIKE '%'"):
            run_id = run.info.run_id
            if run_id == successor:
                continue
            lock, ended = RunLock(place.uri, store, run.data.tags[TAG]), False
            try:
                # Between the search and the lock the process may have closed the run itself.
                taken = lock.acquire()
                if taken and place.client.get_run(run_id).info.status == "RUNNING":
                    _close(place, run_id, successor if run.info.run_name == name else None)
                    closed.append(run_id)
                ended = taken
            finally:
                lock.release(closed=ended)
    return closed


def _close(place: TrackingStore, run_id: str, successor: str | None) -> None:
    for trial in place.running(f"tags.`mlflow.parentRunId` = '{run_id}'"):
        place.client.set_terminated(trial.info.run_id, "KILLED")
    place.client.set_tag(run_id, "error", "the process was killed before it could close the run")
    if successor is not None:
        place.client.set_tag(run_id, "successor", successor)
    place.client.set_terminated(run_id, "KILLED")
