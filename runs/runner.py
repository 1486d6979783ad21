"""Runs many judges over the items of a corpus, on one event loop (`programs.lm.engine`) with one LM and one limiter.

Compile and compare share `JudgeRunner`. DSPy's optimizers, which evaluate from worker threads, use the same
connections, limiter and store of replies. `judge_in_order` runs one judge over a stream that may not fit into memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import logging
import sys
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, CancelledError, Future, InvalidStateError, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any, Generic, TypeVar

import dspy

from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus, Granularity, RatedGroup, Task, fingerprint, is_visible
from debate_judge.programs.grouping import Question, group_into_questions, items_of, source_key
from debate_judge.programs.judge import (
    EMPTY,
    CompiledJudge,
    DebateConfig,
    Failure,
    Item,
    Judge,
    Judgement,
    ScoreScale,
    Transcript,
    Unscored,
    reason_of,
    round_to_granularity,
)
from debate_judge.programs.lm import engine
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.limits import SOURCE, TooManyUnscoredError
from debate_judge.programs.lm.replies import ON_REPLY, Reply, StoreError
from debate_judge.programs.lm.settings import Price
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.progress import RunProgress

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

AskQuestions = Callable[[Sequence[Question]], list[list[Transcript]]]
"""Questions -> transcripts of each, one per item."""


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
        self.progress = RunProgress(lm, progress)
        self.closed = False
        """Whether further work is refused."""
        self._cache = cache
        self._submitted: set[Future[Any]] = set()

    def __enter__(self) -> JudgeRunner:
        self.progress.__enter__()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        self.progress.__exit__()
        self._cancel_all()
        # Replies in flight are paid for, so they are waited for; a second interrupt ends this, too.
        interrupted = error_type is not None and not issubclass(error_type, Exception)
        count = self.lm.calls_in_flight
        closing = engine.submit(self.lm.aclose(for_good=interrupted))
        try:
            if interrupted and count:
                message = f"stopping: {count} calls are in flight and paid for; their replies are stored (Ctrl-C: not)"
                print(f"\n{message}", file=sys.stderr)
            closing.result()
        except BaseException:
            closing.cancel()
            raise

    def _cancel_all(self) -> None:
        self.closed = True
        for future in list(self._submitted):
            future.cancel()

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeRunner:
        # Optimizers copy programs that have a runner; there is only one event loop.
        return self

    @contextmanager
    def call_context(self, item: Item, usage: JudgeUsage | None = None) -> Iterator[None]:
        """Set LM, usage and source for the LM calls of this block and of tasks started in it; the first call about a
        source goes ahead of the others (`PrefixWarmup`).
        """
        SOURCE.set(item.source)
        ON_REPLY.set(None if usage is None else usage.charge)
        with dspy.context(lm=self.lm, disable_history=True, trace=None):
            yield

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the event loop; returns a future to wait for its result or to cancel it."""
        if self.closed:
            work.close()
            raise CancelledError
        future = engine.submit(work)
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        if self.closed:
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

        def ask(questions: Sequence[Question]) -> list[list[Transcript]]:
            return self._ask_each(questions, lambda question: judge.converse(question.items, rounds), label)

        if self._cache is None:
            return grouping.by_item(ask(grouping.questions))
        keys = [question.key for question in grouping.questions]
        debates = grouping.by_item(self._cache.get_or_ask(judge, rounds, keys, grouping.questions, ask))
        # A longer debate in the cache contains the shorter one.
        return [debate.until(rounds) for debate in debates]

    def break_tie(
        self, judge: Judge, items: Sequence[Item], transcripts: Sequence[Transcript], label: str = "tie-breaks"
    ) -> list[Transcript]:
        """Have the Tie-breaker decide each debate without agreement; the others are returned unchanged."""
        grouping = group_into_questions(judge, items)
        debates = grouping.by_question(transcripts)
        by_key = {question.key: debate for question, debate in zip(grouping.questions, debates, strict=True)}

        def ask(questions: Sequence[Question]) -> list[list[Transcript]]:
            return self._ask_each(questions, lambda q: judge.break_ties(q.items, by_key[q.key]), label)

        if self._cache is None:
            return grouping.by_item(ask(grouping.questions))
        keys = [(question.key, *by_key[question.key]) for question in grouping.questions]
        return grouping.by_item(self._cache.get_or_ask(judge, 0, keys, grouping.questions, ask))

    def judge(self, judge: Judge, items: Sequence[Item], label: str = "items") -> list[Judgement]:
        """Judge each item with the judge's own rounds and Tie-breaker."""
        transcripts = self.converse(judge, items, judge.debate_config.rounds, label)
        if judge.debate_config.tie_breaker:
            transcripts = self.break_tie(judge, items, transcripts)
        return [judge.judgement(t, judge.debate_config.rounds) for t in transcripts]

    def _ask_each(self, questions: Sequence[Question], work: Callable[[Question], Awaitable[T]], label: str) -> list[T]:
        (results,), failed = run_shared_pass(self, [PassJob("", work, questions)], label)
        for error in failed.values():
            raise error
        return results


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


@dataclass
class JudgeUsage:
    """Tokens of all replies that one judge needed, whether this run made the calls or the store had the replies.

    Judges of one pass have many calls in common, and each call is made only once. A judge must not look cheaper because
    another one made the call first. So the tokens of a reply are counted for every judge that needed it, once each.
    """

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


@dataclass(frozen=True)
class PassJob(Generic[T]):
    """One function to be applied to a list of questions."""

    judge: str
    """Name of the judge that the job is for. If one of its jobs cannot be done for any item, all are cancelled."""
    work: Callable[[Question], Awaitable[T]]
    questions: Sequence[Question]
    usage: JudgeUsage | None = None
    """Counts the tokens of all replies that the work needs."""


def run_shared_pass(
    runner: JudgeRunner, jobs: Sequence[PassJob[T]], label: str
) -> tuple[list[list[T]], dict[str, dspy.LMError | InputError]]:
    """Run all jobs concurrently.

    Questions of the jobs alternate, so that calls about one text are made close together: they hit the provider's
    prefix cache, and equal calls of several judges are made once. Equal questions of a job are worked on once. No
    result depends on the order. An error that concerns all judges is raised.

    Returns:
        For each job its results, in the order of its questions, or none where its judge failed; and judge -> the error
        because of which it cannot judge any item.
    """
    unique = [{question.key: question for question in job.questions} for job in jobs]
    results: list[dict[str, T]] = [{} for _ in jobs]
    tasks: dict[str, list[asyncio.Task[None]]] = {job.judge: [] for job in jobs}
    failed: dict[str, dspy.LMError | InputError] = {}

    async def ask(job: PassJob[T], question: Question, answers: dict[str, T]) -> None:
        try:
            with runner.call_context(question.items[0], job.usage):
                answers[question.key] = await job.work(question)
        except (InputError, dspy.LMUnsupportedFeatureError) as error:
            if isinstance(error, StoreError):
                raise
            # E.g. a score mode that this LM or scale does not support: it concerns this judge alone.
            failed.setdefault(job.judge, error)
            for task in tasks[job.judge]:
                task.cancel()

    def start(group: asyncio.TaskGroup) -> None:
        for row in zip_longest(*(questions.values() for questions in unique)):
            for job, question, answers in zip(jobs, row, results, strict=True):
                if question is not None:
                    task = group.create_task(ask(job, question, answers))
                    task.add_done_callback(lambda _: item_pass.advance())
                    tasks[job.judge].append(task)

    # Here and not on the event loop, because the stage of the run is a context variable of this thread.
    with runner.progress.track(label, sum(map(len, unique))) as item_pass:
        runner.wait(_in_group(start))
    ordered = [
        [] if job.judge in failed else [answers[question.key] for question in job.questions]
        for job, answers in zip(jobs, results, strict=True)
    ]
    return ordered, failed


async def _in_group(start: Callable[[asyncio.TaskGroup], None]) -> None:
    """Wait for the tasks that `start` makes; of the fatal errors, which many of them meet, one is raised."""
    error: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            start(group)
    except* (dspy.LMError, StoreError) as errors:
        error = errors.exceptions[0]
    if error is not None:
        # Not in the `except*` block, whose errors Python up to 3.11.3 raises as a group.
        raise error


# --- debates that are kept ---


class DebateCache:
    """The debates of a run: the same question to the same judge is answered from memory. If two threads need the same
    answer, one asks and the other waits.

    Folds of a compile ask the same judges about the same sources many times. The store of replies answers without LM
    calls, but formatting the prompts and parsing the replies of a debate takes a few milliseconds each time. Debates
    with a failure are not kept, because another attempt may succeed.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[int, Future[list[Transcript]]]] = {}
        """Key -> the rounds of the debates, and their transcripts."""
        self._lock = threading.Lock()

    def get_or_ask(
        self, judge: Judge, rounds: int, keys: Sequence[Hashable], questions: Sequence[Question], ask: AskQuestions
    ) -> list[list[Transcript]]:
        """For each question and its key, the judge's transcripts of at least `rounds` rounds; calls `ask` for those
        that are neither kept nor in flight."""
        name = _judge_fingerprint(judge)
        by_key: dict[Hashable, Question] = {(name, key): q for key, q in zip(keys, questions, strict=True)}
        new: dict[Hashable, Question] = {}
        with self._lock:
            for key, question in by_key.items():
                if key not in self._kept or self._kept[key][0] < rounds:
                    new[key], self._kept[key] = question, (rounds, Future())
            found = {key: self._kept[key] for key in by_key}
        try:
            for key, transcripts in zip(new, ask(list(new.values())) if new else [], strict=True):
                found[key][1].set_result(transcripts)
        finally:
            with self._lock:
                for key in new:
                    future = found[key][1]
                    # Threads that wait for a question that failed are released with an error.
                    failed = future.cancel() or any(transcript.failure for transcript in future.result())
                    if failed and self._kept[key] is found[key]:
                        del self._kept[key]
        return [found[name, key][1].result() for key in keys]


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


# --- one call for each role before a run ---

_HARMLESS = "The bus leaves at noon."
"""In place of a text that the provider may refuse."""

REMEDIES: Mapping[str, str] = {
    "unreadable reply": "the model ignores the reply format; try a larger or instruction-tuned model; if the "
    "server has a new model under the old name, use another --store, because earlier replies are kept",
    "truncated": "give replies more room with --max-tokens 8000; a reasoning LM needs thousands of tokens",
    "refused": "the provider withholds answers about this text; another LM may not",
    "too long": "the longest item (group {group!r}) does not fit into the LM's context: choose an LM or a server "
    "setting with a larger one, or shorten the text",
    "no log-probabilities": "choose the score-mode sampled:20 or text; an export keeps the mode that it was "
    "compiled with",
}
"""Reason why an item is unscored -> remedy."""


def preflight(
    runner: JudgeRunner, judges: Mapping[str, Judge], items: Iterable[Item], *, name: str = "", whole: bool = True
) -> None:
    """Make one call for each role of each judge, so that an error that concerns all items is reported before money is
    spent: on one aspect of each scale, because an LM may fail with one scale alone. Most of these calls are needed by
    the run anyway, and are then answered by the store of replies.

    Args:
        runner: With the judges' LM.
        judges: Aspect -> its judge.
        items: What is to be judged, or the first of it.
        name: Of the judges, for messages; else they are called by their aspects.
        whole: Whether the items are all that is to be judged: then the longest question is tried, and the shortest
            because a single one may fail for reasons of its own.

    Raises:
        InputError: The LM cannot play a role, with the reason and the remedy.
        dspy.LMError: The key is refused, the model unknown, the account empty.
    """
    if runner.lm.model.partition("/")[0] == OFFLINE:
        return
    by_aspect: dict[str, list[Item]] = {}
    for item in items:
        by_aspect.setdefault(item.aspect.name, []).append(item)
    by_scale = {(id(judges[name]), members[0].aspect.scale): name for name, members in reversed(by_aspect.items())}
    checks = []
    for aspect in by_scale.values():
        judge = judges[aspect]
        questions = group_into_questions(judge, by_aspect[aspect], compare_pairs=False).questions
        if whole:
            questions = max(questions, key=_length), min(questions, key=_length)
        if judge.named_predictors():
            checks.append(partial(_check, runner, name or aspect, judge, questions, whole))
    runner.run_concurrently(checks)


def _check(runner: JudgeRunner, name: str, judge: Judge, questions: Sequence[Question], whole: bool) -> None:
    failures: list[Failure] = []
    for question in questions:
        if (failure := _smoke_test(runner, judge, question.items)) is None:
            return
        failures.append(failure)
        if failure.reason == "no log-probabilities" or (whole and failure.reason == "too long"):
            # It holds for all items if it holds for this one.
            break
    items, failure = questions[0].items, failures[-1]
    if failure.reason in ("lm error", "refused"):
        # The texts may be at fault: firewalls and filters refuse those that name passwords or wounds.
        harmless = [replace(item, source=_HARMLESS, context="", text=_HARMLESS) for item in items]
        if _smoke_test(runner, judge, harmless) is None:
            _LOG.warning("%s: the first texts are refused and will have no score: %s", name, failure.detail)
            return
    remedy = REMEDIES.get(failure.reason, "fix what the message says").format(group=items[0].group)
    raise InputError(
        f"{runner.lm.model} cannot play the {failure.role}: {failure.reason}",
        field=f"{name}: {failure.role}",
        found=failure.detail,
        remedy=f"{remedy}; --no-preflight starts without this check, and leaves such items unscored",
    )


def _smoke_test(runner: JudgeRunner, judge: Judge, items: Sequence[Item]) -> Failure | None:
    async def work() -> Failure | None:
        with dspy.context(lm=runner.lm, disable_history=True, trace=None):
            return (await judge.smoke_test(items)).failure

    return runner.wait(work())


def _length(question: Question) -> int:
    first = question.items[0]
    return len(first.source) + len(first.context) + sum(len(item.text) for item in question.items)


# --- judgements ---


def group_scores(
    corpus: Corpus, aspect: Aspect, judgements: Sequence[Judgement], granularity: Granularity
) -> list[GroupScores]:
    """Pair judgements, in the order of `programs.grouping.corpus_items`, with the human ratings, group by group."""
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
    """Refuse judgements of which a larger share than `max_share` has no score, because the agreement would be that of a
    part; `label` names the items in the message.

    Raises:
        TooManyUnscoredError: Of the LM, because what it answered is stored: the same command resumes.
    """
    unscored = [j for j in judgements if isinstance(j, Unscored)]
    if len(unscored) <= max_share * len(judgements):
        return
    reasons = Counter(j.reason for j in unscored).most_common()
    example = next(j.detail for j in unscored if j.reason == reasons[0][0])
    raise TooManyUnscoredError(
        f"{len(unscored)} of {len(judgements)} {label} have no score, and at most {100 * max_share:.0f} % may: "
        f"{', '.join(f'{n} {reason}' for reason, n in reasons)}, e.g. {example}"
    )


NO_TEXT = Unscored("no text", "the text is empty", 0, EMPTY)
"""The judgement of an empty text."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one text in one aspect, as a compiled judge reports it."""

    score: float | None
    """On the aspect's scale, rounded to the chosen granularity, or mapped to the raters' scale; None if unscored."""
    judge_score: float | None
    """The score before the map to the raters' scale."""
    rounds: int | None
    stop_reason: str | None
    """Why the judge stopped: single call, no issue, rounds over, tie-breaker, metric; None where it has no score."""
    unscored: str | None
    """Why there is no score."""
    detail: str
    """More about `unscored`, e.g. the error of the LM."""
    reason: str
    """The reason of the Scorer's last score or of the Tie-breaker's decision; without a score, why there is none."""
    calls: float
    """LM calls for this score, whether or not the store had the replies; of a shared call its share."""
    transcript: Transcript = field(repr=False)


def score_of(judge: CompiledJudge, item: Item, judgement: Judgement, scale: ScoreScale = "judge") -> Score:
    """The judgement as it is reported; the raters' scale needs a calibration of the aspect."""
    other_fields = reason_of(judgement), judgement.calls, judgement.transcript
    if isinstance(judgement, Unscored):
        return Score(None, None, None, None, judgement.reason, judgement.detail, *other_fields)
    chosen = judge.aspects[item.aspect.name]
    judge_score = round_to_granularity(judgement, item.aspect, chosen.granularity)
    value = (
        chosen.calibration.map_score(judge_score)
        if scale == "raters" and chosen.calibration and judge_score is not None
        else judge_score
    )
    return Score(value, judge_score, judgement.rounds, judgement.stop_reason, None, "", *other_fields)


def items_of_group(task: Task, group: RatedGroup, aspects: Sequence[Aspect]) -> Iterator[Item]:
    """The group's items in the order of results: candidate by candidate, and for each the aspects."""
    for candidate_items in zip(*(items_of(task, group, aspect) for aspect in aspects), strict=True):
        yield from candidate_items


def max_in_flight(lm: JudgeLM) -> int:
    """Number of items to have in flight so that the LM is always busy.

    A debate makes its calls one after the other, results wait for the oldest item, and the candidates of a source wait
    for the first of them (`PrefixWarmup`). Other items use the free slots meanwhile; with fewer items than this some
    slots were idle in `tests/bench/prefix.py`.
    """
    return max(12 * lm.concurrency, 64)


MAX_GROUPED = 512
"""Most items of one source in a chunk: all of them may not fit into memory."""


def group_by_source(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Lists of consecutive items of one source, at most `MAX_GROUPED` in a list; those without a text, such as that of
    a broken line, part no others.
    """
    group: list[Item] = []
    try:
        for item in items:
            of_another = is_visible(item.text) and group and source_key(item) != source_key(group[0])
            if of_another or len(group) == MAX_GROUPED:
                yield group
                group = []
            group.append(item)
    except Exception:
        # What was read before an error in the input is judged.
        if group:
            yield group
        raise
    if group:
        yield group


def judge_in_order(
    runner: JudgeRunner, judge: CompiledJudge, items: Iterable[Item]
) -> Iterator[tuple[Item, Judgement]]:
    """Judge `items` and yield each with its judgement, in their order.

    Items are taken as they are needed; those without a text are not asked about. Consecutive items of one source share
    calls if the judge lets them (`Judge.together`), at most `MAX_GROUPED` at once. If `items` raises (a bad line of a
    file), everything before it is yielded first.

    Raises:
        dspy.LMError: No item can be judged: a wrong key, an unknown model. Raised at once, even if an earlier item
            still waits for its answer.
    """
    shares_calls = any(chosen.judge.together > 1 for chosen in judge.aspects.values())
    groups = group_by_source(items) if shares_calls else ([item] for item in items)
    limit, fatal, input_error = max_in_flight(runner.lm), Future[list[Judgement]](), list[Exception]()
    in_flight: deque[_InFlight] = deque()

    def fill() -> bool:
        """Take items until enough are in flight; returns whether any are."""
        while len(in_flight) < limit and not input_error and not fatal.done():
            try:
                group = next(groups, None)
            except Exception as error:
                input_error.append(error)
                break
            if group is None:
                break
            in_flight.extend(_ask(runner, judge, group, fatal))
        return bool(in_flight)

    try:
        while fill():
            item, future, index = in_flight[0]
            wait((future, fatal), return_when=FIRST_COMPLETED)
            judgements = future.result() if future.done() else fatal.result()
            in_flight.popleft()
            yield item, judgements[index]
    finally:
        for _, future, _ in in_flight:
            future.cancel()
    for error in input_error:
        raise error


_InFlight = tuple[Item, Future[list[Judgement]], int]
"""An item, the judgements of its question, and its index in them."""


def _ask(
    runner: JudgeRunner, judge: CompiledJudge, items: Sequence[Item], fatal: Future[list[Judgement]]
) -> list[_InFlight]:
    """Ask about those of these items that have a text; the first error goes to `fatal`, too."""
    not_asked = Future[list[Judgement]]()
    not_asked.set_result([NO_TEXT])
    places: dict[Item, tuple[Future[list[Judgement]], int]] = {}
    asked = [item for item in items if is_visible(item.text)]
    for aspect in dict.fromkeys(item.aspect.name for item in asked):
        aspect_judge, members = judge.aspects[aspect].judge, [item for item in asked if item.aspect.name == aspect]
        grouping = group_into_questions(aspect_judge, members, compare_pairs=False)
        futures = [runner.submit(_judge(runner, aspect_judge, question)) for question in grouping.questions]
        for future in futures:
            future.add_done_callback(partial(_forward_error, fatal))
        for item, (question, index) in zip(members, grouping.positions, strict=True):
            places[item] = futures[question], index
    return [(item, *places.get(item, (not_asked, 0))) for item in items]


def _forward_error(fatal: Future[list[Judgement]], done: Future[list[Judgement]]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        with contextlib.suppress(InvalidStateError):
            fatal.set_exception(error)


async def _judge(runner: JudgeRunner, judge: Judge, question: Question) -> list[Judgement]:
    with runner.call_context(question.items[0]):
        return await judge.judge(question.items)
