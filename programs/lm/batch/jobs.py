"""What is known of batch jobs that are still at the provider, so that another process can take them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from debate_judge.programs.lm.reply import ReplyStore


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch job, from just before it is made until its replies are in the store."""

    token: str
    """Its name here, which is also in its metadata at the provider."""
    endpoint: str
    """Address of the service, without credentials."""
    model: str
    role: str
    round: int
    keys: tuple[str, ...]
    """Keys of its calls, in the order of the file's lines."""
    size: int
    """Bytes of the file."""
    made: float
    """When, in seconds since 1970."""
    id: str | None = None
    """The provider's name for it; None from just before it is made until the provider has answered."""

    @property
    def name(self) -> str:
        return self.id or f"{self.token} (not known to be made)"


class JobBook(Protocol):
    """Where jobs are written down. `programs.lm.batch.job_files` keeps them in files, beside the replies."""

    def jobs(self) -> list[BatchJob]:
        """The jobs whose replies are not all in the store yet, the oldest first."""
        ...

    def save(self, job: BatchJob) -> None:
        """Write a job down; what was noted of the same token before is replaced."""
        ...

    def delete(self, job: BatchJob) -> None:
        """Forget a job, after its replies have reached the store for good."""
        ...

    def place(self, job: BatchJob) -> str:
        """Where the job is written down, for messages."""
        ...


@runtime_checkable
class JobStore(ReplyStore, Protocol):
    """A store of replies with a book of jobs that lasts as long as the replies."""

    @property
    def jobs(self) -> JobBook: ...


class JobsInMemory:
    """A book that lasts as long as the process."""

    def __init__(self) -> None:
        self._jobs: dict[str, BatchJob] = {}

    def jobs(self) -> list[BatchJob]:
        return list(self._jobs.values())

    def save(self, job: BatchJob) -> None:
        self._jobs[job.token] = job

    def delete(self, job: BatchJob) -> None:
        self._jobs.pop(job.token, None)

    def place(self, job: BatchJob) -> str:
        return "the memory of this process"


def book_of(store: ReplyStore) -> JobBook:
    """The store's own book, or one in memory."""
    return store.jobs if isinstance(store, JobStore) else JobsInMemory()
