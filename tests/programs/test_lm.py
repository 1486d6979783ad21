"""`JudgeLM`: what identifies a call; identical calls are made once, in a process and among processes; cancellation,
budget, DSPy's own modules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.limits import INCOMPLETE, MISMATCHED, SOURCE, BudgetSpentError, ProviderDownError
from debate_judge.programs.lm.replies import Reply, SqlStore
from debate_judge.programs.lm.settings import BudgetCaps, LMOptions
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import hold, only
from tests.programs.debates import ITEM
from tests.programs.engines import OTHER, QUESTION, Engine, ask, call_key, judge_lm, reply, reply_to


async def until_sent(engine: Engine) -> None:
    while not engine.requests:
        await asyncio.sleep(0.001)


def gathered(lm: JudgeLM, engine: Engine, *questions: list[dict[str, Any]]) -> list[Any]:
    """Ask all at once; the engine answers only when nothing else moves."""

    async def go() -> list[Any]:
        tasks = [asyncio.create_task(reply_to(lm, question)) for question in questions]
        while lm.meter.requested.total() < len(questions):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        engine.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(go())


def test_identical_calls_in_flight_are_executed_once() -> None:
    lm, engine = judge_lm(gated=True)
    replies = gathered(lm, engine, QUESTION, QUESTION, OTHER, QUESTION)
    assert [r.text for r in replies] == ["answer 1", "answer 1", "answer 2", "answer 1"]
    assert len(engine.requests) == 2
    assert (lm.meter.requested["scorer"], lm.meter.executed["scorer"]) == (4, 2)


def test_a_caller_that_waited_for_a_failed_call_makes_its_own() -> None:
    def act(number: int) -> Reply:
        if number == 1:
            raise lm15.InvalidRequestError("not like this")
        return reply("better")

    lm, engine = judge_lm(act, gated=True)
    first, *others = gathered(lm, engine, QUESTION, QUESTION, QUESTION)
    assert isinstance(first, dspy.LMInvalidRequestError)
    assert [other.text for other in others] == ["better", "better"]
    assert len(engine.requests) == 2


def test_the_reply_to_a_sent_request_is_stored_although_its_caller_is_cancelled() -> None:
    """It is paid for: who waits for the same call gets it, so does a later run, and closing the LM waits for it."""

    async def go() -> int:
        lm, engine = judge_lm(gated=True)
        first, second = (asyncio.create_task(reply_to(lm, question)) for question in (QUESTION, QUESTION))
        await until_sent(engine)
        first.cancel()
        await asyncio.wait([first])
        closing_lm = asyncio.create_task(lm.aclose())
        await asyncio.sleep(0.05)
        assert not closing_lm.done()
        engine.gate.set()
        assert await second == await lm.store.get(call_key(lm, QUESTION)) == await reply_to(lm, QUESTION)
        await closing_lm
        return len(engine.requests)

    assert asyncio.run(go()) == 1


def test_a_call_that_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    async def go() -> int:
        lm, engine = judge_lm(gated=True, concurrency=1)
        first = asyncio.create_task(reply_to(lm, QUESTION))
        await until_sent(engine)
        second = asyncio.create_task(reply_to(lm, OTHER))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.wait([second])
        engine.gate.set()
        await first
        await lm.aclose()
        return len(engine.requests)

    assert asyncio.run(go()) == 1


def finishing(*finishes: str) -> Callable[[int], Reply]:
    return lambda number: reply("[[ ## score ## ]]\n4", finishes[min(number, len(finishes)) - 1])


def test_a_reply_that_was_cut_off_is_asked_for_with_four_times_the_limit() -> None:
    lm, engine = judge_lm(finishing("length", "stop"), max_tokens=100)
    assert ask(lm, QUESTION)[0].finish == "stop"
    assert [settings["max_tokens"] for _, settings in engine.requests] == [100, 400]
    # The next run finds both.
    ask(lm, QUESTION)
    assert len(engine.requests) == 2


@pytest.mark.parametrize(("finish", "reason"), [("length", "truncated"), ("content_filter", "refused")])
def test_a_truncated_or_filtered_reply_is_no_score(finish: str, reason: str) -> None:
    lm, _ = judge_lm(finishing(finish), max_tokens=100)
    assert hold(lm, only(Debate(rounds=0).judge([ITEM]))).reason == reason


@pytest.mark.parametrize(
    ("lost", "paid"),
    [
        (lm15.TimeoutError("no answer came in time"), 2),
        (lm15.TransportError("the answer broke off", provider_code=INCOMPLETE), 2),
        (lm15.TransportError("the answer to something else", provider_code=MISMATCHED), 2),
        (lm15.ServerError("oops", status=500), 1),
    ],
)
def test_a_lost_answer_is_charged_to_the_budget(lost: Exception, paid: int) -> None:
    def act(number: int) -> Reply:
        if number == 1:
            raise lost
        return reply("4")

    lm, engine = judge_lm(act, options=LMOptions(budget=BudgetCaps(calls=3), first_wait=0.001))
    questions = [[{"role": "user", "content": f"Question {number}"}] for number in range(4)]
    with pytest.raises(BudgetSpentError, match="3 of 3 calls"):
        ask(lm, *questions)
    # The first call got through at its second attempt.
    assert len(engine.requests) == 1 + 1 + (3 - paid)


def test_a_retry_waits_as_long_as_the_provider_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, sleep = list[float](), asyncio.sleep

    async def slept(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    def act(number: int) -> Reply:
        if number == 1:
            raise lm15.ServerError("in 20 seconds", status=500, retry_after=20.0)
        return reply("4")

    lm, _ = judge_lm(act)
    monkeypatch.setattr(asyncio, "sleep", slept)
    assert ask(lm, QUESTION)[0].text == "4"
    assert 20 <= max(pauses) < 30


def test_a_call_that_meets_an_outage_in_its_retries_is_no_failure_of_its_own() -> None:
    def act(number: int) -> Reply:
        if "three" in str(engine.requests[-1]):
            return reply("5")
        raise lm15.ServerError("oops", status=500)

    lm, engine = judge_lm(act, options=LMOptions(retries=3, first_wait=0.1, max_outage=0.01))

    async def go() -> None:
        failing = asyncio.create_task(reply_to(lm, QUESTION))
        await until_sent(engine)
        # Between its attempts another call is answered, and none after it.
        assert (await reply_to(lm, OTHER)).text == "5"
        with pytest.raises(ProviderDownError):
            await failing

    asyncio.run(go())


def test_no_probe_is_sent_past_the_budget() -> None:
    lm, engine = judge_lm(options=LMOptions(budget=BudgetCaps(calls=1)))
    ask(lm, QUESTION)
    with pytest.raises(BudgetSpentError):
        asyncio.run(lm.probe())
    assert len(engine.requests) == 1
    # A server may put a system text of its own before the probe's 29 bytes.
    lm, engine = judge_lm(options=LMOptions(budget=BudgetCaps(tokens=45)), max_tokens=5)
    with pytest.raises(BudgetSpentError):
        asyncio.run(lm.probe())
    assert not engine.requests


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[SqlStore]]:
    with closing(SqlStore(tmp_path)) as first, closing(SqlStore(tmp_path)) as second:
        yield [first, second]


def test_a_call_that_waits_for_another_process_takes_no_slot_and_may_be_cancelled(stores: list[SqlStore]) -> None:
    async def go() -> None:
        other, store = stores
        lm, engine = judge_lm(store=store, concurrency=1)
        assert await other.get_or_claim(call_key(lm, QUESTION)) is True
        waiting = [asyncio.create_task(reply_to(lm, QUESTION)) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert (await reply_to(lm, OTHER)).text == "answer 1"
        assert lm.limiter.in_flight == 0
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert not waiting[1].done()
        await other.put(call_key(lm, QUESTION), "scorer", Reply("theirs"))
        assert (await waiting[1]).text == "theirs"
        assert len(engine.requests) == 1
        assert (lm.meter.requested.total(), lm.meter.executed.total()) == (3, 1)

    asyncio.run(go())


def test_prefix_warmup_and_claims_do_not_deadlock(stores: list[SqlStore]) -> None:
    """Two processes ask about two candidates of one source, each beginning with another: each leads with one call."""

    async def ask_all(lm: JudgeLM, candidates: str) -> list[str]:
        async def ask_about(candidate: str) -> str:
            SOURCE.set("The source.")
            return (await reply_to(lm, [{"role": "user", "content": f"The source. {candidate}"}])).text

        return await asyncio.gather(*map(ask_about, candidates))

    async def go() -> None:
        lms = [judge_lm(gated=True, store=store) for store in stores]
        both = [asyncio.create_task(ask_all(lm, text)) for (lm, _), text in zip(lms, ("ab", "ba"), strict=True)]
        for _, engine in lms:
            await until_sent(engine)
        for _, engine in lms:
            engine.gate.set()
        first, second = await asyncio.gather(*both)
        assert first == second[::-1]
        assert sum(len(engine.requests) for _, engine in lms) == 2

    asyncio.run(go())


def test_a_call_that_fails_in_one_process_is_made_by_the_one_that_waited(stores: list[SqlStore]) -> None:
    def refused(number: int) -> Any:
        raise dspy.lm15.InvalidRequestError("not like this")

    async def go() -> None:
        (lm, engine), (other, idle) = judge_lm(refused, gated=True, store=stores[0]), judge_lm(store=stores[1])
        failing = asyncio.create_task(reply_to(lm, QUESTION))
        await until_sent(engine)
        waiting = asyncio.create_task(reply_to(other, QUESTION))
        await asyncio.sleep(0.1)
        assert idle.requests == []
        engine.gate.set()
        with pytest.raises(dspy.LMInvalidRequestError):
            await failing
        assert (await waiting).text == "answer 1"

    asyncio.run(go())


def test_the_end_of_a_run_waits_for_what_was_sent_and_cancels_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    lm, engine = judge_lm(gated=True, concurrency=1)
    with ThreadPoolExecutor(3) as pool:
        runner = JudgeRunner(lm, progress=False).__enter__()
        sent = pool.submit(lm, "Propose.")
        asyncio.run(until_sent(engine))
        waiting = pool.submit(lm, "Propose another.")
        end = pool.submit(runner.__exit__, KeyboardInterrupt, None, None)
        with pytest.raises(dspy.LMError, match="the run ended"):
            waiting.result(30)
        assert engine.gate is not None
        engine.gate.set()
        end.result(30)
        assert sent.result(30) == ["answer 1"]
    assert len(engine.requests) == 1
    assert "1 calls are in flight" in capsys.readouterr().err


def key(messages: list[dict[str, Any]] = QUESTION, model: str = "test/m", **options: Any) -> str:
    call = options.pop("call", {})
    lm = JudgeLM(model, transport=Engine(), **options)
    return call_key(lm, messages, **call)


def test_different_calls_have_different_keys_and_equal_calls_equal_ones() -> None:
    # How a call is paced decides nothing about its reply.
    assert key() == key(concurrency=3) == key(temperature=None)
    keys = [
        key(),
        key(model="test/n"),
        key(endpoint="http://localhost:8000/v1"),
        *(key(temperature=temperature) for temperature in (0.0, 1.0)),
        key(max_tokens=100),
        *(key(call={"sample": number}) for number in (1, 2)),
        key(OTHER),
        key(QUESTION[1:]),
        key([*QUESTION, *QUESTION[1:]]),
        key([{"role": "user", "content": text} for text in "ab"]),
        key([{"role": "assistant", "content": "ab"}]),
        # The last imitates the border between two messages.
        *(key([{"role": "user", "content": text}]) for text in ("ab", "é", "e\u0301", "auser 1 b")),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("http://user:secret@localhost:8000/v1", "http://localhost:8000/v1"),
        ("https://token@host.example/v1/", "https://host.example/v1"),
        ("https://host.example/p@th", "https://host.example/p@th"),
        ("https://a:b@c@host.example", "https://host.example"),
    ],
)
def test_credentials_enter_neither_endpoint_nor_call_key(
    address: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = make_lm("openai/m", api_base=address)
    assert lm.endpoint == endpoint
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    assert call_key(lm, QUESTION) == call_key(make_lm("openai/m", api_base=endpoint), QUESTION)


def test_equal_requests_of_dspys_modules_are_separate_samples_and_stored(tmp_path: Path) -> None:
    def proposals(questions: list[str], endpoint: str = "") -> tuple[list[str], int]:
        with closing(SqlStore(tmp_path)) as store:
            lm = JudgeLM("test/m", transport=Engine(), store=store, endpoint=endpoint)
            replies = [lm(question)[0] for question in questions]
        assert lm.meter.requested["proposer"] == len(questions)
        return replies, lm.meter.executed["proposer"]

    questions = ["Propose.", "Propose.", "Another.", "Propose."]
    first = ["answer 1", "answer 2", "answer 3", "answer 4"]
    assert proposals(questions) == (first, 4)
    # A second process sends the same requests in the same order: all are stored. Further ones are executed.
    assert proposals(questions) == (first, 0)
    assert proposals([*questions, "Propose."]) == ([*first, "answer 1"], 1)
    # Another server's replies are another matter.
    assert proposals(questions[:1], endpoint="http://localhost:1/v1")[1] == 1


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
