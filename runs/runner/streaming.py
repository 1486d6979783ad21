"""Judges a stream of items of any length: in order, with a bounded number in flight.

`JudgeRunner` takes all items at once, which suits a corpus; new texts may not fit into memory.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice

from debate_judge.data.schema import Aspect, RatedGroup, Task
from debate_judge.programs.compiled import CompiledJudge, ScoreScale, shared_judges
from debate_judge.programs.grouping import Question, group_into_questions, items_of, source_key
from debate_judge.programs.judge import Item, Judge, Judgement, Unscored, reason_of
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.runner import JudgeRunner


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
    together: int
    """Candidates in the same call, this one included."""
    joint: int
    """Aspects in the same call, this one included."""
    transcript: Transcript = field(repr=False)


def score_of(judge: CompiledJudge, item: Item, judgement: Judgement, scale: ScoreScale = "judge") -> Score:
    """The judgement as it is reported; the raters' scale needs a calibration of the aspect."""
    transcript, reason = judgement.transcript, reason_of(judgement)
    other_fields = reason, judgement.calls, transcript.together, transcript.joint, transcript
    if isinstance(judgement, Unscored):
        return Score(None, None, None, None, judgement.reason, judgement.detail, *other_fields)
    chosen = judge.aspects[item.aspect.name]
    judge_score = chosen.reported_score(judgement, item.aspect)
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


BATCH_WINDOW = 5000
"""Items in flight with batch jobs: a job takes long, however small it is."""


def max_in_flight(lm: JudgeLM) -> int:
    """Number of items to have in flight so that the LM is always busy.

    A debate makes its calls one after the other, results wait for the oldest item, and the candidates of a source wait
    for the first of them (`PrefixWarmup`). Other items use the free slots meanwhile; with fewer items than this some
    slots were idle in `tests/bench/prefix.py`.
    """
    return max(12 * lm.concurrency, 64 if lm.batch_engine is None else BATCH_WINDOW)


MAX_GROUPED = 512
"""Most candidates of one source in a chunk: all of them may not fit into memory."""


def group_by_source(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Lists of consecutive items of one source, at most `MAX_GROUPED` in a list."""
    for _, consecutive in groupby(items, key=source_key):
        while chunk := list(islice(consecutive, MAX_GROUPED)):
            yield chunk


@dataclass
class _PendingItem:
    """An item in flight."""

    item: Item
    judgements: Future[list[Judgement]] | None = None
    """Of all items of its question; None until it is asked."""
    position: int = 0


class _InFlight:
    """The items that were taken from the iterator and not yet yielded, in order.

    Items of a source that share calls are asked about when all of them have been taken.
    """

    def __init__(self, runner: JudgeRunner, judge: CompiledJudge, items: Iterable[Item]) -> None:
        self.pending: deque[_PendingItem] = deque()
        self.fatal: Future[list[Judgement]] = Future()
        self.input_error: Exception | None = None
        """Error that the iterator `items` raised."""
        self._runner = runner
        shared = shared_judges({name: aspect_judge.judge for name, aspect_judge in judge.aspects.items()})
        self._judges = {name: shared_judge for shared_judge in shared for name in shared_judge.aspects}
        self._items = iter(items)
        self._exhausted = False
        self._unasked: dict[str, list[_PendingItem]] = {}
        """Aspect -> items of the current source that are not asked about yet."""

    def fill(self, limit: int) -> bool:
        """Take items until `limit` are in flight and the first is asked about; returns whether any are."""
        while not self._exhausted and (len(self.pending) < limit or self.pending[0].judgements is None):
            try:
                item = next(self._items)
            except StopIteration:
                self._exhausted = True
            except Exception as error:
                self.input_error, self._exhausted = error, True
            else:
                self.pending.append(_PendingItem(item))
                self._add(self.pending[-1])
        if self._exhausted:
            self._ask_all()
        return bool(self.pending)

    def _add(self, new: _PendingItem) -> None:
        aspect = new.item.aspect.name
        judge = self._judges[aspect].judge
        if judge.together < 2 and not judge.joint:
            self._ask(judge, [new])
            return
        first = next((pending.item for unasked in self._unasked.values() for pending in unasked), new.item)
        if source_key(first) != source_key(new.item) or len(self._unasked.get(aspect, ())) == MAX_GROUPED:
            self._ask_all()
        self._unasked.setdefault(aspect, []).append(new)

    def _ask_all(self) -> None:
        for shared in dict.fromkeys(self._judges[aspect] for aspect in self._unasked):
            self._ask(shared.judge, [item for aspect in shared.aspects for item in self._unasked.get(aspect, ())])
        self._unasked.clear()

    def _ask(self, judge: Judge, pending: Sequence[_PendingItem]) -> None:
        grouping = group_into_questions(judge, [entry.item for entry in pending], compare_pairs=False)
        futures = [self._runner.submit(_judge(self._runner, judge, question)) for question in grouping.questions]
        for future in futures:
            future.add_done_callback(partial(_forward_error, self.fatal))
        for entry, (question, position) in zip(pending, grouping.positions, strict=True):
            entry.judgements, entry.position = futures[question], position


def judge_in_order(
    runner: JudgeRunner, judge: CompiledJudge, items: Iterable[Item]
) -> Iterator[tuple[Item, Judgement]]:
    """Judge `items` and yield each with its judgement, in their order.

    Items are taken as they are needed. Consecutive items of one source share calls if the judge lets candidates or
    aspects share them, at most `MAX_GROUPED` candidates at once. If `items` raises (a bad line of a file), everything
    before it is yielded first.

    Raises:
        dspy.LMError: No item can be judged: a wrong key, an unknown model. Raised at once, even if an earlier item
            still waits for its answer.
    """
    in_flight = _InFlight(runner, judge, items)
    limit = max_in_flight(runner.lm)
    try:
        while in_flight.fill(limit):
            first = in_flight.pending[0]
            future = first.judgements or in_flight.fatal
            wait((future, in_flight.fatal), return_when=FIRST_COMPLETED)
            judgements = future.result() if future.done() else in_flight.fatal.result()
            in_flight.pending.popleft()
            yield first.item, judgements[first.position]
    finally:
        for entry in in_flight.pending:
            if entry.judgements is not None:
                entry.judgements.cancel()
    if in_flight.input_error is not None:
        raise in_flight.input_error


def _forward_error(fatal: Future[list[Judgement]], done: Future[list[Judgement]]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        with contextlib.suppress(InvalidStateError):
            fatal.set_exception(error)


async def _judge(runner: JudgeRunner, judge: Judge, question: Question) -> list[Judgement]:
    with runner.call_context(question):
        return await judge.judge(question.items)
