"""Runs judges over items on one event loop (`programs.lm.loop`), with one LM and one limiter.

`JudgeRunner` is what compile, compare and score share. DSPy's optimizers, which evaluate from worker threads, use the
same connections, limiter and store of replies.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from types import TracebackType
from typing import Any, Generic, TypeVar

import dspy

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import Item, Judge, Judgement, Unscored, Verdict, round_to_granularity
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.limits.limiter import SOURCE
from debate_judge.programs.lm.reply import StoreError
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.billing import JudgeUsage, charged_to
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.progress import RunProgress

T = TypeVar("T")


class JudgeRunner:
    """Runs judges, at the request of any thread.

    Use it as a context manager; leaving it ends what was submitted. Waiting for a result can be interrupted at any
    moment: what was answered until then is in the LM's store.

    Args:
        lm: Is asked.
        progress: Whether progress is shown on stderr.
        memory: Where debates are kept while the run lasts, for runs that hold the same ones again and again.
    """

    def __init__(self, lm: JudgeLM, *, progress: bool = True, memory: DebateCache | None = None) -> None:
        self.lm = lm
        self.memory = memory
        self.progress = RunProgress(lm, progress)
        """What is shown on stderr."""
        self._process = os.getpid()
        self._submitted: set[Future[Any]] = set()
        self._ended = False

    def __enter__(self) -> JudgeRunner:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_forked_copy:
            return
        self.progress.stop()
        self._end()
        # The replies that are on their way are paid for. Only an interrupt does not wait for them.
        orderly = kind is None or issubclass(kind, Exception)
        loop.run(self.lm.aclose(drain=orderly))

    def _end(self) -> None:
        """Cancel all work; none is accepted any more."""
        self._ended = True
        for future in list(self._submitted):
            future.cancel()

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeRunner:
        # Optimizers copy the programs that hold a runner; there is one loop.
        return self

    @contextmanager
    def asking(
        self, question: Item | Question, *, lm: JudgeLM | None = None, usage: JudgeUsage | None = None
    ) -> Iterator[None]:
        """Tell the LM calls of this block, and of tasks started in it, what they belong to; calls about one source are
        led by the first (`PrefixWarmup`).
        """
        item = question.items[0] if isinstance(question, Question) else question
        SOURCE.set(item.source)
        with dspy.context(lm=lm or self.lm, disable_history=True, trace=None), charged_to(usage):
            yield

    @property
    def is_forked_copy(self) -> bool:
        """Whether this process has the runner by a fork: its loop's thread then runs in the parent alone."""
        return self._process != os.getpid()

    def require_own_process(self) -> None:
        """Refuse to wait for a loop that nothing runs, in a process that was forked after the runner was made."""
        if self.is_forked_copy:
            raise RuntimeError("this runner was started before the process was forked; start it after the fork")

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop; wait for the result by the future, or cancel it there."""
        try:
            self.require_own_process()
            if self._ended:
                raise CancelledError
        except BaseException:
            work.close()
            raise
        future = loop.submit(work)
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        if self._ended:
            # By another thread, which may have cancelled all work before this was added.
            future.cancel()
        return future

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result; an interrupt here cancels it there."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def lm_is_remote(self) -> bool:
        """Whether the LM's answers come from outside this process, so that it pays to have many calls on their way."""
        return self.lm.destination is not None

    def run_concurrently(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """The results of pieces of work, none of which needs the result of another, in their order.

        Each runs in a thread of its own and in a copy of the caller's context, so that their calls go out together.
        With an LM inside this process, which nobody waits for, they run one after the other.

        Raises:
            Exception: What the first of them failed with; the others are ended, and so is all that was submitted.
        """
        if not self.lm_is_remote or len(works) < 2:
            return [work() for work in works]
        with ThreadPoolExecutor(len(works)) as pool:
            futures = [pool.submit(copy_context().run, work) for work in works]
            try:
                failed = any(future.exception() for future in wait(futures, return_when=FIRST_EXCEPTION).done)
            except BaseException:
                self._end()
                raise
            if failed:
                self._end()
        errors = [error for future in futures if (error := future.exception()) is not None]
        # Those that were ended failed because of another one.
        for error in sorted(errors, key=lambda error: isinstance(error, CancelledError)):
            raise error
        return [future.result() for future in futures]

    def converse(self, judge: Judge, items: Sequence[Item], rounds: int, what: str = "debates") -> list[Transcript]:
        """Hold one debate of at most `rounds` rounds for each item; results are in the order of the items.

        Items that the judge wants to be asked about together are (`programs.grouping`).
        """
        grouping = group_into_questions(judge, items)

        def ask(table: Question) -> Awaitable[list[Transcript]]:
            return judge.converse(table.items, rounds)

        if self.memory is None:
            return grouping.by_item(self._each(grouping.questions, ask, what))
        return grouping.by_item(
            self.memory.debates(judge, rounds, grouping.questions, lambda tables: self._each(tables, ask, what))
        )

    def break_tie(
        self, judge: Judge, items: Sequence[Item], transcripts: Sequence[Transcript], what: str = "tie-breaks"
    ) -> list[Transcript]:
        """Let the Tie-breaker decide each debate that is still open; the others are returned unchanged."""
        grouping = group_into_questions(judge, items)
        held_debates = {
            t.key: table_transcripts
            for t, table_transcripts in zip(grouping.questions, grouping.by_question(transcripts), strict=True)
        }

        def ask(tables: Sequence[Question]) -> list[list[Transcript]]:
            return self._each(tables, lambda table: judge.break_ties(table.items, held_debates[table.key]), what)

        if self.memory is None:
            return grouping.by_item(ask(grouping.questions))
        debates = [held_debates[table.key] for table in grouping.questions]
        return grouping.by_item(self.memory.tie_breaks(judge, debates, grouping.questions, ask))

    def judge(self, judge: Judge, items: Sequence[Item], what: str = "items") -> list[Judgement]:
        """Judge each item by the judge's own rules."""
        transcripts = self.converse(judge, items, judge.debate_config.rounds, what)
        if judge.debate_config.tie_breaker:
            transcripts = self.break_tie(judge, items, transcripts)
        return [judge.judgement(t, judge.debate_config.rounds) for t in transcripts]

    def _each(self, items: Sequence[Question], work: Callable[[Question], Awaitable[T]], what: str) -> list[T]:
        done = run_shared_pass(self, [PassJob("", work, items)], what)
        for error in done.failed.values():
            raise error
        return done.results[0]


# --- one pass of many judges over many items ---


@dataclass(frozen=True)
class PassJob(Generic[T]):
    """One kind of work on a list of questions."""

    owner: str
    """Name of the judge that it is for. What makes one job impossible ends all jobs of its owner, and no others."""
    work: Callable[[Any], Awaitable[T]]
    """Takes one of the questions."""
    items: Sequence[Item] | Sequence[Question]
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


def run_shared_pass(runner: JudgeRunner, jobs: Sequence[PassJob[T]], what: str) -> PassResult[T]:
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
        self.unique: list[dict[str, Item | Question]] = [{item.key: item for item in job.items} for job in jobs]
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

    def _in_turn(self) -> list[tuple[int, Item | Question]]:
        rows = zip_longest(*(items.values() for items in self.unique))
        return [(number, item) for row in rows for number, item in enumerate(row) if item is not None]

    async def _one(self, number: int, item: Item | Question) -> None:
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


# --- judgements ---


def group_scores(
    corpus: Corpus, aspect: Aspect, judgements: Sequence[Judgement], granularity: Granularity
) -> list[GroupScores]:
    """Pair judgements, in the order of `programs.judge.corpus_items`, with the human ratings, group by group."""
    reported = iter(round_to_granularity(j, aspect, granularity) for j in judgements)
    return [
        replace(group, scores=tuple(islice(reported, len(group.candidates)))) for group in group_ratings(corpus, aspect)
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
    """Mean LM calls that a judgement needs, whether or not they had to be executed."""
    return sum(j.calls for j in judgements) / len(judgements)


def scored(judgements: Sequence[Judgement]) -> list[Verdict]:
    return [j for j in judgements if isinstance(j, Verdict)]


def require_scored(judgements: Sequence[Judgement], most: float, what: str) -> None:
    """Refuse a judge that leaves more than the share `most` of the judgements without a score, for its agreement would
    be that of a part; `what` names the items in the message.
    """
    missing = [j for j in judgements if isinstance(j, Unscored)]
    if len(missing) <= most * len(judgements):
        return
    reasons = Counter(j.reason for j in missing)
    example = next(j.detail for j in missing if j.reason == reasons.most_common(1)[0][0])
    raise InputError(
        f"{len(missing)} of {len(judgements)} {what} have no score",
        field="max-unscored",
        expected=f"at most {100 * most:.0f} %",
        found=f"{', '.join(f'{n} {reason}' for reason, n in reasons.most_common())}, e.g. {example}",
        remedy="fix the problem and run the command again, or accept it with a larger share; finished calls are not "
        "paid for again",
    )
