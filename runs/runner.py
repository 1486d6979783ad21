"""Runs judges over items on one event loop (`programs.lm.engine`), with one LM and one limiter.

Compile, compare and score share `JudgeRunner`. DSPy's optimizers, which evaluate from worker threads, use the same
connections, limiter and store of replies.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from types import TracebackType
from typing import Any, Generic, TypeVar

import dspy

from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus, Granularity, fingerprint
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import (
    DebateConfig,
    Failure,
    Item,
    Judge,
    Judgement,
    Transcript,
    Unscored,
    corpus_items,
    round_to_granularity,
)
from debate_judge.programs.lm.engine import JudgeLM, submit
from debate_judge.programs.lm.limits import SOURCE, TooManyUnscoredError
from debate_judge.programs.lm.replies import Reply, ReplyStore, StoreError
from debate_judge.programs.lm.settings import Price
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.progress import RunProgress

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


_USAGE: ContextVar[JudgeUsage | None] = ContextVar("usage", default=None)
"""Usage of the judge that the running task works for; set by `JudgeRunner.call_context`."""


@dataclass
class JudgeUsage:
    """Tokens of all replies that one judge needed, whether this run made the calls or the store had the replies."""

    fresh: int = 0
    """Input tokens at the full price."""
    cached: int = 0
    """Input tokens that the provider's prefix cache served when the call was made."""
    output: int = 0
    _keys: set[str] = field(default_factory=set, repr=False)

    def charge(self, key: str, reply: Reply) -> None:
        """Add a reply, unless it has been counted already."""
        if key not in self._keys:
            self._keys.add(key)
            self.fresh += reply.input_tokens - reply.cached_tokens
            self.cached += reply.cached_tokens
            self.output += reply.output_tokens

    def usd(self, price: Price) -> float:
        """Cost in US dollars."""
        return price.cost(self.fresh, self.cached, self.output)


@contextmanager
def charged_to(usage: JudgeUsage | None) -> Iterator[None]:
    """Count the replies that this block and tasks started in it ask for in `usage`; None counts none."""
    token = _USAGE.set(usage)
    try:
        yield
    finally:
        _USAGE.reset(token)


class UsageByJudge:
    """A `programs.lm.replies.ReplyStore` that counts each reply in the usage of the judge that asks for it.

    A missing reply is counted when it is stored, for every judge that has asked for it, whichever task stores it: a
    call in flight serves all that wait for it.
    """

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._awaited: dict[str, list[JudgeUsage]] = {}

    async def get(self, key: str) -> Reply | None:
        reply = await self._store.get(key)
        self._charge(key, reply)
        return reply

    async def get_or_claim(self, key: str) -> Reply | bool:
        outcome = await self._store.get_or_claim(key)
        if isinstance(outcome, Reply):
            # Another process has stored it since `get`.
            self._charge(key, outcome)
        return outcome

    def _charge(self, key: str, reply: Reply | None) -> None:
        usage = _USAGE.get()
        if usage is not None and reply is not None:
            usage.charge(key, reply)
        elif usage is not None:
            # A judge that asks twice is in the list twice; `charge` counts the reply once.
            self._awaited.setdefault(key, []).append(usage)

    async def release(self, key: str) -> None:
        await self._store.release(key)

    async def discard(self, key: str) -> None:
        await self._store.discard(key)

    def close(self) -> None:
        self._store.close()

    async def put(self, key: str, role: str, reply: Reply) -> None:
        await self._store.put(key, role, reply)
        for usage in self._awaited.pop(key, ()):
            usage.charge(key, reply)


AskQuestions = Callable[[list[Question]], list[list[Transcript]]]
"""Questions -> transcripts of each, one per item."""


class DebateCache:
    """Transcripts by judge and question. If two threads need the same transcript, one asks and the other waits.

    Debates with a failure are not kept, because another attempt may succeed.
    """

    def __init__(self) -> None:
        self._debates: _Cache = {}
        self._tie_breaks: _Cache = {}
        self._lock = threading.Lock()

    def debates(
        self, judge: Judge, rounds: int, questions: Sequence[Question], ask: AskQuestions
    ) -> list[list[Transcript]]:
        """The judge's debates of at most `rounds` rounds, one list for each question.

        A longer debate in the cache is cut, because it contains the shorter one.
        """
        name = _judge_fingerprint(judge)
        by_key: dict[Hashable, Question] = {(name, question.key): question for question in questions}
        cached = self._get_or_ask(self._debates, rounds, by_key, ask)
        return [[debate.until(rounds) for debate in cached[name, question.key]] for question in questions]

    def tie_breaks(
        self, judge: Judge, debates: Sequence[Sequence[Transcript]], questions: Sequence[Question], ask: AskQuestions
    ) -> list[list[Transcript]]:
        """`debates` after the decisions of the judge's Tie-breaker, one list for each question."""
        name = _judge_fingerprint(judge)
        keys = [(name, question.key, tuple(debate)) for question, debate in zip(questions, debates, strict=True)]
        cached = self._get_or_ask(self._tie_breaks, 0, dict(zip(keys, questions, strict=True)), ask)
        return [cached[key] for key in keys]

    def _get_or_ask(
        self, cache: _Cache, rounds: int, questions: Mapping[Hashable, Question], ask: AskQuestions
    ) -> dict[Hashable, list[Transcript]]:
        """Key -> transcripts of at least `rounds` rounds; calls `ask` for those not cached and not in flight."""
        new: dict[Hashable, Question] = {}
        with self._lock:
            for key, question in questions.items():
                if key not in cache or cache[key].rounds < rounds:
                    new[key], cache[key] = question, _CachedDebate(rounds)
            debates = {key: cache[key] for key in questions}
        try:
            for key, transcripts in zip(new, ask(list(new.values())) if new else [], strict=True):
                debates[key].result.set_result(transcripts)
        finally:
            with self._lock:
                for key in new:
                    # Threads that wait for a question that failed are released with an error.
                    failed = debates[key].result.cancel() or any(t.failure for t in debates[key].result.result())
                    if failed and cache[key] is debates[key]:
                        del cache[key]
        return {key: debate.result.result() for key, debate in debates.items()}


@dataclass(frozen=True, eq=False)
class _CachedDebate:
    rounds: int
    result: Future[list[Transcript]] = field(default_factory=Future)


_Cache = dict[Hashable, _CachedDebate]


def _judge_fingerprint(judge: Judge) -> str:
    """Fingerprint of what a judge's replies depend on: class, configuration and state, but not the number of rounds,
    which the caller gives."""
    # A shallow copy: deep copies, made thousands of times, would take longer than the cache saves.
    default_rounds = copy.copy(judge)
    default_rounds.debate_config = DebateConfig()
    state = [(name, predictor.signature.instructions, predictor.demos) for name, predictor in judge.named_predictors()]
    return fingerprint(
        json.dumps([judge.kind, judge.together, default_rounds.config(), state], sort_keys=True, default=str)
    )


_LOG = logging.getLogger(__name__)

_HARMLESS = "The bus leaves at noon."
"""In place of a text that the provider may refuse."""

_SKIP_HINT = "; --no-preflight starts without this check, and leaves such items unscored"

REMEDIES: Mapping[str, str] = {
    "unreadable reply": "the model ignores the reply format; try a larger or instruction-tuned model; if the "
    "server has a new model under the old name, use another --store, because earlier replies are kept" + _SKIP_HINT,
    "truncated": "give replies more room with --max-tokens 8000; a reasoning LM needs thousands of tokens" + _SKIP_HINT,
    "refused": "the provider withholds answers about this text; another LM may not" + _SKIP_HINT,
    "no log-probabilities": "choose the score-mode sampled:20 or text; an export keeps the mode that it was "
    "compiled with",
}
"""Reason why an item is unscored -> remedy."""

_ALL_ITEMS_REASON = "no log-probabilities"
"""The reason that holds for all items if it holds for one."""


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """A judge to be tried, and the questions to try it on."""

    name: str
    judge: Judge
    questions: Sequence[Question]
    """Tried one after the other until one succeeds: a single question may fail for reasons of its own."""
    longest_first: bool = True
    """Whether the first question is the longest of the run, so that all fail if it is too long."""

    @classmethod
    def of(cls, name: str, judge: Judge, items: Sequence[Item]) -> PreflightCheck:
        """A check on the first items of a stream, grouped as in the run."""
        return cls(name, judge, group_into_questions(judge, items, compare_pairs=False).questions, longest_first=False)


def preflight_checks(
    name: str, judges: Mapping[str, Judge], corpus: Corpus, aspects: Sequence[Aspect]
) -> list[PreflightCheck]:
    """The checks of an entrant with `judges` by aspect: on one aspect of each scale, because an LM may fail with one
    scale alone.
    """
    by_scale = {(id(judges[aspect.name]), aspect.scale): aspect for aspect in reversed(aspects)}
    checks = []
    for aspect in by_scale.values():
        judge = judges[aspect.name]
        grouping = group_into_questions(judge, corpus_items(corpus, aspect), compare_pairs=False)
        checks.append(PreflightCheck(name, judge, longest_and_shortest(grouping.questions)))
    return checks


def longest_and_shortest(questions: Iterable[Question]) -> list[Question]:
    """The longest and the shortest question; the first of equally long ones."""
    question_list = list(questions)
    if not question_list:
        return []
    return [max(question_list, key=_length), min(question_list, key=_length)]


def preflight(runner: JudgeRunner, checks: Sequence[PreflightCheck]) -> None:
    """Make one call for each role of each judge.

    Raises:
        InputError: The LM cannot play a role, with the reason and the remedy.
        dspy.LMError: The key is refused, the model unknown, the account empty.
    """
    if runner.lm.model.partition("/")[0] == OFFLINE:
        return
    runner.run_concurrently(
        [partial(_check, runner, check) for check in checks if check.questions and check.judge.named_predictors()]
    )


def _check(runner: JudgeRunner, check: PreflightCheck) -> None:
    failure, remaining = _smoke_test(runner, check.judge, check.questions[0]), list(check.questions[1:])
    too_long = failure is not None and failure.reason == "too long"
    remaining = [] if check.longest_first and too_long else remaining
    while failure is not None and remaining and failure.reason != _ALL_ITEMS_REASON:
        failure = _smoke_test(runner, check.judge, remaining.pop(0))
    if failure is not None and failure.reason in ("lm error", "refused") and not too_long:
        # The texts may be at fault: firewalls and filters refuse those that name passwords or wounds.
        harmless = [replace(i, source=_HARMLESS, context="", text=_HARMLESS) for i in check.questions[0].items]
        if _smoke_test(runner, check.judge, Question(tuple(harmless))) is None:
            _LOG.warning("%s: the first texts are refused and will have no score: %s", check.name, failure.detail)
            return
    if failure is not None:
        raise _preflight_error(runner.lm, check, failure, too_long)


def _smoke_test(runner: JudgeRunner, judge: Judge, question: Question) -> Failure | None:
    async def work() -> Failure | None:
        with dspy.context(lm=runner.lm, disable_history=True, trace=None):
            return (await judge.smoke_test(question.items)).failure

    return runner.wait(work())


def _preflight_error(lm: JudgeLM, check: PreflightCheck, failure: Failure, too_long: bool) -> InputError:
    if too_long:
        size = _length(check.questions[0])
        return InputError(
            f"the longest item does not fit into the context of {lm.model}",
            field=f"{check.name}: {failure.role}",
            expected=f"room for about {size // 4 + 2000:,} tokens, debate and reply included",
            found=failure.detail,
            remedy="choose an LM or a server setting with a larger context, or shorten the text (group "
            f"{check.questions[0].items[0].group!r})" + _SKIP_HINT,
        )
    remedy = REMEDIES.get(failure.reason, "fix what the message says" + _SKIP_HINT)
    return InputError(
        f"{lm.model} cannot play the {failure.role}: {failure.reason}",
        field=f"{check.name}: {failure.role}",
        found=failure.detail,
        remedy=remedy,
    )


def _length(question: Question) -> int:
    first = question.items[0]
    return len(first.source) + len(first.context) + sum(len(item.text) for item in question.items)
