"""Closes runs whose process was killed before it could close them itself.

A process that ends by SIGKILL or a power cut leaves its run in the state RUNNING. So each process holds a lock on a
file `running/NAME.lock` in the store while it tracks, and its run has NAME as a tag. The operating system releases the
lock with the process, however that ends: a run whose lock another process can take has no process any more. Process
ids would not do, for they are given out again. Where runs are kept in PostgreSQL the process holds a lock in the
database as well, which goes with its connection: so a team's machines know about each other's runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from debate_judge.programs.lm.sql.postgresql import DatabaseLock, driven_by_psycopg
from debate_judge.runs.tracking.store import Place, explained

TAG = "process"


class RunLock:
    """The lock of one process on its run.

    Args:
        store: Folder that the lock's file is kept in, below `running`.
        uri: Of the tracking store; None for one without locks of its own.
    """

    def __init__(self, store: Path, uri: str | None = None) -> None:
        self.name = uuid.uuid4().hex
        self._uri = uri
        self._held: DatabaseLock | None = None
        self._file = _lock_file(store, self.name)
        self._lock = _lock(self._file)

    def acquire(self) -> None:
        """Take the lock, before the run is started: a run is never without."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        self._held = _lock_in_database(self._uri, self.name)
        if self._held is not None:
            self._held.acquire()

    def release(self, *, closed: bool) -> None:
        """Give the lock up; the file stays for a run that could not be closed, so that a later process closes it."""
        if closed:
            self._file.unlink(missing_ok=True)
        self._lock.release()
        if self._held is not None:
            self._held.release()


def close_abandoned(place: Place, store: Path, successor: str) -> list[str]:
    """Set the runs of an experiment whose process is gone, and their unfinished trials, to KILLED.

    Each gets a tag `error`, and `successor` with the id of the run that replaces it if they have the same name. Runs of
    processes that are alive are left alone, and so are runs whose lock is kept in another store, unless the database of
    the runs has it as well: nothing is known about them here.

    Args:
        place: The open store.
        store: Folder of the locks.
        successor: Id of the run that has just been started.

    Returns:
        The ids of the closed runs.

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
            with _taken_over(place, store, run.data.tags[TAG]) as taken:
                # Between the search and the lock the process may have closed the run itself.
                if taken and place.client.get_run(run_id).info.status == "RUNNING":
                    _close(place, run_id, successor if run.info.run_name == name else None)
                    closed.append(run_id)
    return closed


@contextmanager
def _taken_over(place: Place, store: Path, name: str) -> Iterator[bool]:
    """Whether the lock of a run could be taken, by the file of it or, where that lies elsewhere, in the database."""
    file = _lock_file(store, name)
    if not file.exists():
        held = _lock_in_database(place.uri, name)
        try:
            yield held is not None and held.acquire()
        finally:
            if held is not None:
                held.release()
        return
    try:
        lock = _lock(file).acquire(timeout=0)
    except Timeout:
        yield False
        return
    with lock:
        yield True
        file.unlink(missing_ok=True)


def _lock_in_database(uri: str | None, name: str) -> DatabaseLock | None:
    if uri is None or not driven_by_psycopg(uri):
        return None
    return DatabaseLock(uri, "tracking URI", f"run {name}")


def _close(place: Place, run_id: str, successor: str | None) -> None:
    for trial in place.running(f"tags.`mlflow.parentRunId` = '{run_id}'"):
        place.client.set_terminated(trial.info.run_id, "KILLED")
    place.client.set_tag(run_id, "error", "the process was killed before it could close the run")
    if successor is not None:
        place.client.set_tag(run_id, "successor", successor)
    place.client.set_terminated(run_id, "KILLED")


def _lock_file(store: Path, name: str) -> Path:
    # `name` may come from a tag that anyone can edit in the UI; it must not lead out of the folder.
    return store / "running" / f"{Path(name).name}.lock"


def _lock(file: Path) -> BaseFileLock:
    return FileLock(file, thread_local=False)
