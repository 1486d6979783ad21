"""Closes runs whose process was killed before it could close them itself.

A process that ends by SIGKILL or a power cut leaves its run in the state RUNNING. So each process holds a lock while it
tracks, and its run has the lock's name as a tag: a file `running/NAME.lock` in the store. The operating system
releases the lock when the process ends in any way: a run whose lock can be taken is no longer running.
Process ids would not do, because they are reused.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from filelock import FileLock, Timeout

from debate_judge.runs.tracking.store import TrackingStore, tracking_errors

LOCK_TAG = "process"


class RunLock:
    """The lock of a process on its run.

    Args:
        uri: Tracking URI.
        store: Folder whose subfolder `running` has the lock's file.
        name: Name of another process's lock; None for a new one.
    """

    def __init__(self, uri: str, store: Path, name: str | None = None) -> None:
        self.name = name or uuid.uuid4().hex
        self._new = name is None
        # A name may come from a tag that anyone can edit in the UI; it must not lead out of the folder.
        self._path = store / "running" / f"{Path(self.name).name}.lock"
        self._file_lock = FileLock(self._path, thread_local=False)

    def acquire(self) -> bool:
        """Take the lock; False if another process has it, or if it was made in another store."""
        if self._new:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        elif not self._path.exists():
            return False
        try:
            self._file_lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self, *, closed: bool) -> None:
        """Release the lock; the file of a run that could not be closed is kept, so that a later process closes it."""
        if closed:
            self._path.unlink(missing_ok=True)
        self._file_lock.release()


def close_stale_runs(tracking: TrackingStore, store: Path, successor: str) -> list[str]:
    """Set the runs of an experiment whose process is gone, and their unfinished trials, to KILLED; returns their ids.

    Each gets a tag `error`, and a tag `successor` with the id of the run that has just been started if that has the
    same name. Not closed are runs of processes that are alive, and runs whose lock is in another folder than `store`,
    because it cannot be checked.

    Raises:
        InputError: The store cannot be used.
    """
    closed: list[str] = []
    with tracking_errors(tracking.uri):
        name = tracking.client.get_run(successor).info.run_name
        for run in tracking.running_runs(f"tags.{LOCK_TAG} LIKE '%'"):
            run_id = run.info.run_id
            if run_id == successor:
                continue
            lock, process_gone = RunLock(tracking.uri, store, run.data.tags[LOCK_TAG]), False
            try:
                # Between the search and the lock the process may have closed the run itself.
                acquired = lock.acquire()
                if acquired and tracking.client.get_run(run_id).info.status == "RUNNING":
                    _close(tracking, run_id, successor if run.info.run_name == name else None)
                    closed.append(run_id)
                process_gone = acquired
            finally:
                lock.release(closed=process_gone)
    return closed


def _close(tracking: TrackingStore, run_id: str, successor: str | None) -> None:
    for trial in tracking.running_runs(f"tags.`mlflow.parentRunId` = '{run_id}'"):
        tracking.client.set_terminated(trial.info.run_id, "KILLED")
    tracking.client.set_tag(run_id, "error", "the process was killed before it could close the run")
    if successor is not None:
        tracking.client.set_tag(run_id, "successor", successor)
    tracking.client.set_terminated(run_id, "KILLED")
