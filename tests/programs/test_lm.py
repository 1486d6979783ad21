"""`JudgeLM`: deduplication, the store, cancellation, budget and usage."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy import lm15
from dspy.lm15 import Response

from debate_judge.programs.judge import Unscored
from debate_judge.programs.lm.client import JudgeLM, Reply
from debate_judge.programs.lm.errors import INCOMPLETE, MISMATCHED, BudgetSpentError
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.reply import InMemoryStore
from tests.programs.engines import OTHER, QUESTION, Engine, ask, call_key, judge_lm, judged, reply_to, response

# --- the store ---


def test_an_error_of_the_engines_own_is_no_reply() -> None:
    def act(number: int) -> Response:
        raise KeyError("a bug")

    with pytest.raises(dspy.LMError, match="a bug"):
        ask(judge_lm(act)[0], QUESTION)


# --- calls at the same time ---


async def gathered(lm: JudgeLM, engine: Engine, *questions: list[dict[str, Any]]) -> list[Any]:
    """Ask all at once; the engine answers only when nothing else moves."""
    engine.gate = threading.Event()
    tasks = [asyncio.create_task(reply_to(lm, question)) for question in questions]
    while lm.meter.requested.total() < len(questions):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    engine.gate.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_identical_calls_in_flight_are_executed_once() -> None:
    lm, engine = judge_lm()
    replies = asyncio.run(gathered(lm, engine, QUESTION, QUESTION, OTHER, QUESTION))
    assert [r.text for r in replies] == ["answer 1", "answer 1", "answer 2", "answer 1"]
    assert len(engine.requests) == 2
    assert (lm.meter.requested["scorer"], lm.meter.executed["scorer"]) == (4, 2)


def test_a_caller_that_waited_for_a_failed_call_makes_its_own() -> None:
    def act(number: int) -> Response:
        if number == 1:
            raise lm15.InvalidRequestError("not like this")
        return response("better")

    lm, engine = judge_lm(act)
    first, *others = asyncio.run(gathered(lm, engine, QUESTION, QUESTION, QUESTION))
    assert isinstance(first, dspy.LMInvalidRequestError)
    assert [other.text for other in others] == ["better", "better"]
    assert len(engine.requests) == 2


def test_the_reply_to_a_sent_request_is_stored_although_its_caller_is_cancelled() -> None:
    """It is paid for: who waits for the same call gets it, and so does a later run."""

    async def go() -> tuple[Reply, int]:
        lm, engine = judge_lm()
        engine.gate = threading.Event()
        first = asyncio.create_task(reply_to(lm, QUESTION))
        second = asyncio.create_task(reply_to(lm, QUESTION))
        while not engine.requests or lm.meter.requested.total() < 2:
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.wait([first])
        engine.gate.set()
        reply = await second
        assert await reply_to(lm, QUESTION) == reply
        return reply, len(engine.requests)

    reply, executed = asyncio.run(go())
    assert reply.text == "answer 1"
    assert executed == 1


def test_closing_the_lm_waits_for_sent_requests() -> None:
    async def go() -> Reply | None:
        lm, engine = judge_lm()
        engine.gate = threading.Event()
        call = asyncio.create_task(reply_to(lm, QUESTION))
        while not engine.requests:
            await asyncio.sleep(0.001)
        call.cancel()
        await asyncio.wait([call])
        closing = asyncio.create_task(lm.aclose())
        await asyncio.sleep(0.05)
        assert not closing.done()
        engine.gate.set()
        await closing
        return await lm.store.get(call_key(lm, QUESTION))

    reply = asyncio.run(go())
    assert reply.text == "answer 1"


def test_a_call_that_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    async def go() -> int:
        lm, engine = judge_lm(concurrency=1)
        engine.gate = threading.Event()
        first = asyncio.create_task(reply_to(lm, QUESTION))
        while not engine.requests:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(reply_to(lm, OTHER))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.wait([second])
        engine.gate.set()
        await first
        await lm.aclose()
        return len(engine.requests)

    assert asyncio.run(go()) == 1


# --- replies that were cut off or refused ---


def finishing(*finishes: str) -> Callable[[int], Response]:
    return lambda number: response("[[ ## score ## ]]\n4", finishes[min(number, len(finishes)) - 1])


def test_a_reply_that_was_cut_off_is_asked_for_with_four_times_the_limit() -> None:
    lm, engine = judge_lm(finishing("length", "stop"), max_tokens=100)
    assert ask(lm, QUESTION)[0].finish == "stop"
    assert [request.config.max_tokens for request in engine.requests] == [100, 400]
    # The next run finds both.
    ask(lm, QUESTION)
    assert len(engine.requests) == 2


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "truncated"), ("content_filter", "refused")], ids=["cut off", "refused"]
)
def test_a_truncated_or_filtered_reply_is_no_score(finish: str, reason: str) -> None:
    judgement = judged(judge_lm(finishing(finish), max_tokens=100)[0])
    assert isinstance(judgement, Unscored)
    assert judgement.reason == reason


# --- the meter ---


def test_the_meter_counts_requests_and_tokens_by_role() -> None:
    lm, _ = judge_lm()
    ask(lm, QUESTION, QUESTION, role="scorer")
    ask(lm, OTHER, role="critic")
    assert lm.meter.requested == {"scorer": 2, "critic": 1}
    assert lm.meter.executed == {"scorer": 1, "critic": 1}
    # 10 tokens in, 4 of them from the provider's cache, and 3 out, for each of two calls.
    assert (lm.meter.input_tokens, lm.meter.cached_tokens, lm.meter.output_tokens) == (20, 8, 6)


@pytest.mark.parametrize(
    ("lost", "paid"),
    [
        (lm15.TimeoutError("no answer came in time"), 2),
        (lm15.TransportError("the answer broke off", provider_code=INCOMPLETE), 2),
        (lm15.TransportError("the answer to something else", provider_code=MISMATCHED), 2),
        (lm15.ServerError("oops", status=500), 1),
    ],
    ids=lambda value: getattr(value, "provider_code", None) or type(value).__name__,
)
def test_a_lost_answer_is_charged_to_the_budget(lost: Exception, paid: int) -> None:
    def act(number: int) -> Response:
        if number == 1:
            raise lost
        return response("4")

    lm, engine = judge_lm(act, options=LMOptions(budget=BudgetCaps(calls=3), first_wait=0.001))

    async def go() -> None:
        await reply_to(lm, QUESTION)
        for number in range(3 - paid):
            await reply_to(lm, [{"role": "user", "content": f"Question {number}"}])
        with pytest.raises(BudgetSpentError, match="3 of 3 calls"):
            await reply_to(lm, OTHER)

    asyncio.run(go())
    # The first call got through at its second attempt.
    assert len(engine.requests) == 2 + (3 - paid)


def test_no_probe_is_sent_past_the_budget() -> None:
    lm, engine = judge_lm(options=LMOptions(budget=BudgetCaps(calls=1)))
    ask(lm, QUESTION)
    with pytest.raises(BudgetSpentError):
        asyncio.run(lm.recorded_engine.probe())
    assert len(engine.requests) == 1


def test_the_in_memory_store_drops_the_oldest_replies() -> None:
    lm, engine = judge_lm(store=InMemoryStore(max_replies=2))
    first, second, third = ([{"role": "user", "content": f"{number}?"}] for number in range(3))
    ask(lm, first, second, third, third, second, first)
    assert [request.messages[-1].text for request in engine.requests] == ["0?", "1?", "2?", "0?"]
