"""Runs judges over items on one event loop (`programs.lm.engine`), with one LM and one limiter.

Compile, compare and score share `JudgeRunner`. DSPy's optimizers, which evaluate from worker threads, use the same
connections, limiter and store of replies.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from types import TracebackType
from typing import Any, Generic, TypeVar

import dspy

from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import Item, Judge, Judgement, Transcript, Unscored, round_to_granularity
from debate_judge.programs.lm.engine import JudgeLM, submit
from debate_judge.programs.lm.limits import SOURCE, TooManyUnscoredError
from debate_judge.programs.lm.replies import StoreError
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.judge_usage import JudgeUsage, charged_to
from debate_judge.runs.runner.progress import RunProgress

T = TypeVar("T")


class JudgeRunner:
    """Runs judges; its methods may be called from any thread.

    Use it as a context manager; leaving it cancels what was submitted. Waiting for a result can be interrupted at any
    moment: replies until then are in the LM's store.

    Args:
        lm: The LM of all judges.
        progress: Whether progress is shown on stderr.
        cache: Cache of debates, for runs that repeat the same ones many times.
    """

    def __init__(self, lm: JudgeLM, *, progress: bool = True, cache: DebateCache | None = None) -> None:
        self.lm = lm
        self.cache = cache
        self.progress = RunProgress(lm, progress)
        self._submitted: set[Future[Any]] = set()
        self._cancelled = False

    def __enter__(self) -> JudgeRunner:
        self.progress.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        self._cancel_all()
        # Replies in flight are paid for, so they are waited for; a second interrupt ends this, too.
        interrupted = error_type is not None and not issubclass(error_type, Exception)
        count = self.lm.calls_in_flight
        closing = submit(self.lm.aclose(for_good=interrupted))
        try:
            if interrupted and count:
                message = f"stopping: {count} calls are in flight and paid for; their replies are stored (Ctrl-C: not)"
                print(f"\n{message}", file=sys.stderr)
            closing.result()
        except BaseException:
            closing.cancel()
            raise

    def _cancel_all(self) -> None:
        """Cancel all work; further work is refused."""
        self._cancelled = True
        for future in list(self._submitted):
            future.cancel()

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeRunner:
        # Optimizers copy programs that have a runner; there is only one event loop.
        return self

    @contextmanager
    def call_context(self, question: Item | Question, *, usage: JudgeUsage | None = None) -> Iterator[None]:
        """Set LM, usage and source for the LM calls of this block and of tasks started in it; the first call about a
        source goes ahead of the others (`PrefixWarmup`).
        """
        item = question.items[0] if isinstance(question, Question) else question
        SOURCE.set(item.source)
        with dspy.context(lm=self.lm, disable_history=True, trace=None), charged_to(usage):
            yield

    @property
    def closed(self) -> bool:
        """Whether further work is refused."""
        return self._cancelled

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the event loop; returns a future to wait for its result or to cancel it."""
        if self._cancelled:
            work.close()
            raise CancelledError
        future = submit(work)
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        if self._cancelled:
            # Another thread may have cancelled all work before this future was added.
            future.cancel()
        return future

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the event loop and return its result; an interrupt cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def lm_is_remote(self) -> bool:
        """Whether calls leave this process, so that concurrent calls save time."""
        return self.lm.destination is not None

    def run_concurrently(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """The results of independent tasks, in their order.

        Each runs in a thread of its own and in a copy of the caller's context, so that their calls are concurrent. With
        an LM inside this process they run one after the other.

        Raises:
            Exception: The error of the first task that failed; all other work is cancelled.
        """
        if not self.lm_is_remote or len(tasks) < 2:
            return [work() for work in tasks]
        futures = [_in_thread(work) for work in tasks]
        try:
            if any(future.exception() for future in wait(futures, return_when=FIRST_EXCEPTION).done):
                self._cancel_all()
            wait(futures)
        except BaseException:
            # The threads are not waited for: leaving the runner says what is in flight, and waits for that.
            self._cancel_all()
            raise
        errors = [error for future in futures if (error := future.exception()) is not None]
        # A task is cancelled because of another one's error, which is raised in its place.
        for error in sorted(errors, key=lambda error: isinstance(error, CancelledError)):
            raise error
        return [future.result() for future in futures]

    def converse(self, judge: Judge, items: Sequence[Item], rounds: int, label: str = "debates") -> list[Transcript]:
        """Hold one debate of at most `rounds` rounds for each item; results are in the order of the items.

        Items share questions as the judge's options say (`programs.grouping`).
        """
        grouping = group_into_questions(judge, items)

        def ask(question: Question) -> Awaitable[list[Transcript]]:
            return judge.converse(question.items, rounds)

        if self.cache is None:
            return grouping.by_item(self._run_each(grouping.questions, ask, label))
        questions = grouping.questions
        return grouping.by_item(
            self.cache.debates(judge, rounds, questions, lambda missing: self._run_each(missing, ask, label))
        )

    def break_tie(
        self, judge: Judge, items: Sequence[Item], transcripts: Sequence[Transcript], label: str = "tie-breaks"
    ) -> list[Transcript]:
        """Have the Tie-breaker decide each debate without agreement; the others are returned unchanged."""
        grouping = group_into_questions(judge, items)
        questions, debates = grouping.questions, grouping.by_question(transcripts)
        by_key = {question.key: debate for question, debate in zip(questions, debates, strict=True)}

        def ask(question: Question) -> Awaitable[list[Transcript]]:
            return judge.break_ties(question.items, by_key[question.key])

        if self.cache is None:
            return grouping.by_item(self._run_each(questions, ask, label))
        return grouping.by_item(
            self.cache.tie_breaks(judge, debates, questions, lambda missing: self._run_each(missing, ask, label))
        )

    def judge(self, judge: Judge, items: Sequence[Item], label: str = "items") -> list[Judgement]:
        """Judge each item with the judge's own rounds and Tie-breaker."""
        transcripts = self.converse(judge, items, judge.debate_config.rounds, label)
        if judge.debate_config.tie_breaker:
            transcripts = self.break_tie(judge, items, transcripts)
        return [judge.judgement(t, judge.debate_config.rounds) for t in transcripts]

    def _run_each(self, questions: Sequence[Question], work: Callable[[Question], Awaitable[T]], label: str) -> list[T]:
        shared_pass = run_shared_pass(self, [PassJob("", work, questions)], label)
        for error in shared_pass.failed.values():
            raise error
        return shared_pass.results[0]


def _in_thread(work: Callable[[], T]) -> Future[T]:
    """Run `work` in a thread of its own, for which the end of the process does not wait, as it would for a pool's."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return future


# --- one pass of many judges over many items ---


@dataclass(frozen=True)
class PassJob(Generic[T]):
    """One function to be applied to a list of items or questions."""

    judge: str
    """Name of the judge that the job is for. If one of its jobs cannot be done for any item, all are cancelled."""
    work: Callable[[Any], Awaitable[T]]
    """Called with one of `items`."""
    items: Sequence[Item] | Sequence[Question]
    usage: JudgeUsage | None = None
    """Counts the tokens of all replies that the work needs."""


@dataclass(frozen=True)
class PassResult(Generic[T]):
    """The results of a pass."""

    results: list[list[T]]
    """One list for each job, in the order of its items; empty where the judge failed."""
    failed: dict[str, dspy.LMError | InputError] = field(default_factory=dict)
    """Judge -> the error because of which it cannot judge any item."""


def run_shared_pass(runner: JudgeRunner, jobs: Sequence[PassJob[T]], label: str) -> PassResult[T]:
    """Run all jobs concurrently.

    Items of the jobs alternate, so that calls about one text are made close together: they hit the provider's prefix
    cache, and equal calls of several judges are made once. Equal items of a job are worked on once. No result depends
    on the order. An error that concerns all judges is raised.
    """
    work = _Pass(runner, jobs)
    # Here and not on the event loop, because the stage of the run is a context variable of this thread.
    with runner.progress.track(label, sum(map(len, work.unique))) as item_pass:
        return runner.wait(work.run(item_pass.advance))


class _Pass(Generic[T]):
    def __init__(self, runner: JudgeRunner, jobs: Sequence[PassJob[T]]) -> None:
        self.runner = runner
        self.jobs = jobs
        self.unique: list[dict[str, Item | Question]] = [{item.key: item for item in job.items} for job in jobs]
        self.results: list[dict[str, T]] = [{} for _ in jobs]
        self.tasks: dict[str, list[asyncio.Task[None]]] = {job.judge: [] for job in jobs}
        self.failed: dict[str, dspy.LMError | InputError] = {}

    async def run(self, advance: Callable[[], None]) -> PassResult[T]:
        error: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for job_index, item in self._interleaved():
                    task = group.create_task(self._run_one(job_index, item))
                    task.add_done_callback(lambda _: advance())
                    self.tasks[self.jobs[job_index].judge].append(task)
        except* (dspy.LMError, StoreError) as errors:
            # Many items meet the same fatal error; one of them is raised.
            error = errors.exceptions[0]
        if error is not None:
            # Not in the `except*` block, whose errors Python up to 3.11.3 raises as a group.
            raise error
        results = [
            [] if job.judge in self.failed else [by_key[item.key] for item in job.items]
            for job, by_key in zip(self.jobs, self.results, strict=True)
        ]
        return PassResult(results, self.failed)

    def _interleaved(self) -> list[tuple[int, Item | Question]]:
        rows = zip_longest(*(items.values() for items in self.unique))
        return [(job_index, item) for row in rows for job_index, item in enumerate(row) if item is not None]

    async def _run_one(self, job_index: int, item: Item | Question) -> None:
        job = self.jobs[job_index]
        try:
            with self.runner.call_context(item, usage=job.usage):
                self.results[job_index][item.key] = await job.work(item)
        except (InputError, dspy.LMUnsupportedFeatureError) as error:
            if isinstance(error, StoreError):
                raise
            # E.g. a score mode that this LM or scale does not support: it concerns this judge alone.
            if job.judge not in self.failed:
                self.failed[job.judge] = error
                for task in self.tasks[job.judge]:
                    if task is not asyncio.current_task():
                        task.cancel()


# --- judgements ---


def group_scores(
    corpus: Corpus, aspect: Aspect, judgements: Sequence[Judgement], granularity: Granularity
) -> list[GroupScores]:
    """Pair judgements, in the order of `programs.judge.corpus_items`, with the human ratings, group by group."""
    scores = iter(round_to_granularity(j, aspect, granularity) for j in judgements)
    return [
        replace(group, scores=tuple(islice(scores, len(group.candidates)))) for group in group_ratings(corpus, aspect)
    ]


def group_ratings(corpus: Corpus, aspect: Aspect) -> list[GroupScores]:
    """The human ratings of an aspect, group by group, without scores."""
    return [
        GroupScores(
            group.id,
            tuple(c.id for c in group.candidates),
            tuple(group.ratings(aspect.name)),
            (None,) * len(group.candidates),
            tuple(tuple(c.ratings.get(aspect.name, ())) for c in group.candidates),
            group.source_id,
        )
        for group in corpus.groups
    ]


def calls_per_item(judgements: Sequence[Judgement]) -> float:
    """Mean LM calls per judgement, whether or not the store had the replies."""
    return sum(j.calls for j in judgements) / len(judgements)


def require_scored(judgements: Sequence[Judgement], max_share: float, label: str) -> None:
    """Raise an error if a larger share than `max_share` of the judgements has no score, because the agreement would be
    that of a part; `label` names the items in the message.

    Raises:
        TooManyUnscoredError: Of the LM, because what it answered is stored: the same command resumes.
    """
    unscored = [j for j in judgements if isinstance(j, Unscored)]
    if len(unscored) <= max_share * len(judgements):
        return
    reasons = Counter(j.reason for j in unscored)
    example = next(j.detail for j in unscored if j.reason == reasons.most_common(1)[0][0])
    raise TooManyUnscoredError(
        f"{len(unscored)} of {len(judgements)} {label} have no score, and at most {100 * max_share:.0f} % may: "
        f"{', '.join(f'{n} {reason}' for reason, n in reasons.most_common())}, e.g. {example}"
    )
