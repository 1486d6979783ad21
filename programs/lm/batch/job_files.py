"""Batch jobs that are still at the provider, one small file each, in the folder of the replies."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from debate_judge.programs.lm.batch.jobs import BatchJob

_LOG = logging.getLogger(__name__)


class JobFiles:
    """A `programs.lm.batch.jobs.JobBook` on disk. Several processes may share a folder.

    Args:
        folder: Which exists.
        flush: Has the replies written, before a job is forgotten whose replies they are.
    """

    def __init__(self, folder: Path, flush: Callable[[], None]) -> None:
        self._folder = folder
        self._flush = flush

    def jobs(self) -> list[BatchJob]:
        """The jobs that are recorded. Files that cannot be read are skipped with a warning."""
        found = (self._read(path) for path in self._folder.glob("*.job"))
        return sorted((job for job in found if job is not None), key=lambda job: (job.made, job.token))

    def save(self, job: BatchJob) -> None:
        path = self._path(job)
        temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(asdict(job), file)
                file.flush()
                # A job that is forgotten in a power cut would be paid twice.
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self, job: BatchJob) -> None:
        self._flush()
        self._path(job).unlink(missing_ok=True)

    def place(self, job: BatchJob) -> str:
        return str(self._path(job))

    def _path(self, job: BatchJob) -> Path:
        return self._folder / f"{job.token}.job"

    def _read(self, path: Path) -> BatchJob | None:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            job = BatchJob(**{**record, "keys": tuple(str(key) for key in record["keys"])})
            if f"{job.token}.job" != path.name or not (job.id is None or isinstance(job.id, str)):
                raise ValueError("it is not about this job")
        except FileNotFoundError:
            # Another process has just deleted it.
            return None
        except (OSError, ValueError, TypeError, LookupError) as error:
            _LOG.warning("%s is no note of a batch job and is left alone: %s", path, error)
            return None
        return job
