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

from debate_judge.data.schema import Aspect, RatedGroup, Task, is_visible
from debate_judge.programs.grouping import Question, group_into_questions, items_of, source_key
from debate_judge.programs.judge import (
    EMPTY,
    CompiledJudge,
    Item,
    Judge,
    Judgement,
    ScoreScale,
    Transcript,
    Unscored,
    reason_of,
)
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.runs.runner import JudgeRunner

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
    """Lists of consecutive items of one source, at most `MAX_GROUPED` in a list."""
    group: list[Item] = []
    try:
        for item in items:
            if group and (source_key(item) != source_key(group[0]) or len(group) == MAX_GROUPED):
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
