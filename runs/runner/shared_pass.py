"""Many judges over many items in one pass: one event loop, one limiter, and each call that several need made once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.grouping import CandidateTable
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.reply import StoreError
from debate_judge.runs.runner.billing import JudgeUsage

if TYPE_CHECKING:
    from debate_judge.runs.runner.runner import JudgeRunner

T = TypeVar("T")


@dataclass(frozen=True)
class PassJob(Generic[T]):
    """One kind of work on a list of questions."""

    owner: str
    """Name of the judge that it is for. What makes one job impossible ends all jobs of its owner, and no others."""
    work: Callable[[Any], Awaitable[T]]
    """Takes one of the questions."""
    items: Sequence[Item] | Sequence[CandidateTable]
    usage: JudgeUsage | None = None
    """Counts all replies that the work needs."""
    lm: JudgeLM | None = None
    """In place of the runner's."""


@dataclass(frozen=True)
class PassResult(Generic[T]):
    """The results of a pass."""

    results: list[list[T]]
    """One list for each job, in the order of its items; empty where the owner failed."""
    failed: dict[str, dspy.LMError | InputError] = field(default_factory=dict)
    """Owner -> why its work is impossible, on any item."""


def run_together(runner: JudgeRunner, jobs: Sequence[PassJob[T]], what: str) -> PassResult[T]:
    """Do all jobs at once.

    Items of the jobs alternate, so that all calls about one text go out together: the provider's prefix cache is warm
    then, and equal calls of several judges are joined. Equal items of one job are worked on once. No result depends on
    the order. What fails for all judges is raised.
    """
    work = _Pass(runner, jobs)
    # Here and not on the loop, for the stage of the run is known to this thread.
    with runner.progress.over(what, sum(map(len, work.unique))) as shown:
        return runner.wait(work.run(shown.advance))


class _Pass(Generic[T]):
    def __init__(self, runner: JudgeRunner, jobs: Sequence[PassJob[T]]) -> None:
        self.runner = runner
        self.jobs = jobs
        self.unique: list[dict[str, Item | CandidateTable]] = [{item.key: item for item in job.items} for job in jobs]
        self.results: list[dict[str, T]] = [{} for _ in jobs]
        self.tasks: dict[str, list[asyncio.Task[None]]] = {job.owner: [] for job in jobs}
        self.failed: dict[str, dspy.LMError | InputError] = {}

    async def run(self, advance: Callable[[], None]) -> PassResult[T]:
        ended: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for number, item in self._in_turn():
                    task = group.create_task(self._one(number, item))
                    task.add_done_callback(lambda _: advance())
                    self.tasks[self.jobs[number].owner].append(task)
        except* (dspy.LMError, StoreError) as errors:
            # Many items meet the same fatal error; one of them tells the user enough.
            ended = errors.exceptions[0]
        if ended is not None:
            # Not in the block above, whose errors Python up to 3.11.3 hands on as a group.
            raise ended
        done = zip(self.jobs, self.results, strict=True)
        return PassResult(
            [[] if job.owner in self.failed else [found[item.key] for item in job.items] for job, found in done],
            self.failed,
        )

    def _in_turn(self) -> list[tuple[int, Item | CandidateTable]]:
        rows = zip_longest(*(items.values() for items in self.unique))
        return [(number, item) for row in rows for number, item in enumerate(row) if item is not None]

    async def _one(self, number: int, item: Item | CandidateTable) -> None:
        job = self.jobs[number]
        try:
            with self.runner.asking(item, lm=job.lm, usage=job.usage):
                self.results[number][item.key] = await job.work(item)
        except (InputError, dspy.LMUnsupportedFeatureError) as error:
            if isinstance(error, StoreError):
                raise
            # For example a score mode that this LM or scale does not allow, which concerns this judge alone.
            if job.owner not in self.failed:
                self.failed[job.owner] = error
                for task in self.tasks[job.owner]:
                    if task is not asyncio.current_task():
                        task.cancel()
