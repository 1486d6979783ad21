"""Judging a stream of items of any length: in order, with a bounded number in flight.

`JudgeRunner` takes all items at once, which suits a corpus; new texts may be more than memory holds.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from debate_judge.data.schema import Aspect, RatedGroup, Task
from debate_judge.programs.compiled import CompiledJudge
from debate_judge.programs.judge import Item, Judgement, Unscored
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.runner import JudgeRunner


@dataclass(frozen=True, slots=True)
class Score:
    """What a compiled judge reports about one text in one aspect."""

    score: float | None
    """On the aspect's scale and in its granularity; None where there is none."""
    rounds: int | None
    stop_reason: str | None
    """Why the judge stopped: single call, no issue, rounds over, tie-breaker; None where it has no score."""
    unscored: str | None
    """Why there is no score."""
    detail: str
    """More about `unscored`, e.g. the error of the LM."""
    calls: float
    """LM calls that the answer needs, whether or not they had to be made; of a shared call its share."""
    transcript: Transcript = field(repr=False)


def score_of(judge: CompiledJudge, item: Item, judgement: Judgement) -> Score:
    """The judgement as it is reported."""
    if isinstance(judgement, Unscored):
        return Score(None, None, None, judgement.reason, judgement.detail, judgement.calls, judgement.transcript)
    value = judge.aspects[item.aspect.name].reported(judgement, item.aspect)
    return Score(value, judgement.rounds, judgement.stop_reason, None, "", judgement.calls, judgement.transcript)


def group_items(task: Task, group: RatedGroup, aspects: Sequence[Aspect]) -> Iterator[Item]:
    """The group's items in the order of results: candidate by candidate, and for each the aspects."""
    for c in group.candidates:
        for aspect in aspects:
            yield Item(group.id, c.id, task, aspect, group.source, c.text, group.context, group.references)


BATCH_WINDOW = 5000
"""Items in flight where calls go out in batch jobs: a job takes long, however small it is."""


def ahead(items: Iterator[Item], count: int) -> tuple[list[Item], Iterator[Item]]:
    """At most `count` of `items`, and an iterator over all of them, which alone raises what they raise."""
    taken: list[Item] = []
    broken: Exception | None = None
    try:
        taken.extend(islice(items, count))
    except Exception as error:
        broken = error

    def again() -> Iterator[Item]:
        yield from taken
        if broken is not None:
            raise broken
        yield from items

    return taken, again()


def window(lm: JudgeLM) -> int:
    """Items to hold in flight so that LM calls are never short of work.

    A debate makes its calls one after the other, results wait for the oldest item, and the candidates of a source wait
    for the first of them (`prefix_warmup`). With many items for each slot, others keep the slots busy meanwhile; with
    fewer than this some slots were empty in `tests/bench/prefix.py`.
    """
    return max(12 * lm.concurrency, 64 if lm.batches is None else BATCH_WINDOW)


def judge_in_order(
    runner: JudgeRunner, judge: CompiledJudge, items: Iterable[Item]
) -> Iterator[tuple[Item, Judgement]]:
    """Judge `items` and yield each with its judgement, in their order.

    Items are taken as they are needed. If `items` itself raises (a bad line of a file), everything before it is
    yielded first.

    Raises:
        dspy.LMError: No item can be judged: a wrong key, an unknown model. Raised at once, even if an earlier item
            still waits for its answer.
    """
    flying: deque[tuple[Item, Future[Judgement]]] = deque()
    source = iter(items)
    limit = window(runner.lm)
    broken: Exception | None = None
    ended = False
    fatal: Future[Judgement] = Future()
    try:
        while True:
            while not ended and len(flying) < limit:
                try:
                    item = next(source)
                except StopIteration:
                    ended = True
                except Exception as error:
                    broken, ended = error, True
                else:
                    flying.append((item, runner.submit(_judge(runner, judge, item))))
                    flying[-1][1].add_done_callback(partial(_pass_on, fatal))
            if not flying:
                break
            item, future = flying[0]
            # A stream that was begun before a fork and is read after it would wait for ever.
            runner.require_own_process()
            wait((future, fatal), return_when=FIRST_COMPLETED)
            judgement = future.result() if future.done() else fatal.result()
            flying.popleft()
            yield item, judgement
    finally:
        for _, future in flying:
            future.cancel()
    if broken is not None:
        raise broken


def _pass_on(fatal: Future[Judgement], done: Future[Judgement]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        with contextlib.suppress(InvalidStateError):
            fatal.set_exception(error)


async def _judge(runner: JudgeRunner, judge: CompiledJudge, item: Item) -> Judgement:
    with runner.asking(item):
        return await judge.judge(item)
