"""The door to the LM: what is asked once, what is kept, what counts, and what identifies a call."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15
from dspy.lm15 import Message, Request, Response, Usage

from data.schema import Aspect, Scale, Task
from programs.debate import Debate
from programs.judge import Item, Rules, Unscored, Verdict
from programs.lm import JudgeLM, Memory, Reply, make_lm
from runs.journal import Journal

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}]
OTHER = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and three?"}]

ASPECT = Aspect("coherence", "Do the sentences build on each other?", Scale(1, 5))
ITEM = Item("g", "c", Task("t", "article", "summary", (ASPECT,)), ASPECT, "Rain fell.", "Rain.")


class Engine:
    """Answers with a running number, or does what `act` does; remembers the requests."""

    def __init__(self, act: Callable[[int], Response] | None = None) -> None:
        self.act = act or (lambda number: response(f"answer {number}"))
        self.requests: list[Request] = []
        self.gate: asyncio.Event | None = None

    def complete(self, request: Request) -> Response:
        self.requests.append(request)
        return self.act(len(self.requests))


class AsyncEngine(Engine):
    async def complete(self, request: Request) -> Response:
        answer = super().complete
        if self.gate is not None:
            number = len(self.requests) + 1
            self.requests.append(request)
            await self.gate.wait()
            return self.act(number)
        await asyncio.sleep(0)
        return answer(request)


def response(text: str, finish: Any = "stop") -> Response:
    usage = Usage(input_tokens=10, output_tokens=3, cache_read_tokens=4)
    return Response(id=None, model="m", message=Message.assistant(text), finish_reason=finish, usage=usage)


def judge_lm(act: Callable[[int], Response] | None = None, **options: Any) -> tuple[JudgeLM, AsyncEngine]:
    engine = AsyncEngine(act)
    return JudgeLM("test/m", engine=Engine(), async_engine=engine, **options), engine


def ask(lm: JudgeLM, *questions: list[dict[str, Any]], role: str = "scorer") -> list[Reply]:
    async def go() -> list[Reply]:
        return [await lm.ask(question, role) for question in questions]

    return asyncio.run(go())


# --- the store ---


def test_what_the_store_has_is_not_sent() -> None:
    lm, engine = judge_lm()
    first, second, third = ask(lm, QUESTION, OTHER, QUESTION)
    assert [first.text, second.text] == ["answer 1", "answer 2"]
    assert third == first
    assert len(engine.requests) == 2


def test_another_process_finds_what_was_answered(tmp_path: Path) -> None:
    store = Journal(tmp_path)
    replies = ask(judge_lm(store=store)[0], QUESTION, OTHER)
    store.close()
    again = Journal(tmp_path)
    lm, engine = judge_lm(store=again)
    assert ask(lm, OTHER, QUESTION) == replies[::-1]
    assert engine.requests == []
    again.close()


def test_a_call_that_fails_is_not_stored() -> None:
    def act(number: int) -> Response:
        if number == 1:
            raise lm15.InvalidRequestError("not like this")
        return response("better")

    lm, engine = judge_lm(act)
    with pytest.raises(dspy.LMInvalidRequestError):
        ask(lm, QUESTION)
    assert ask(lm, QUESTION)[0].text == "better"
    assert len(engine.requests) == 2
    assert (lm.meter.asked["scorer"], lm.meter.executed["scorer"]) == (2, 1)


def test_an_error_of_the_engines_own_is_no_reply() -> None:
    def act(number: int) -> Response:
        raise KeyError("a bug")

    with pytest.raises(dspy.LMError, match="a bug"):
        ask(judge_lm(act)[0], QUESTION)


# --- calls at the same time ---


async def gathered(lm: JudgeLM, engine: AsyncEngine, *questions: list[dict[str, Any]]) -> list[Any]:
    """Ask all at once; the engine answers only when nothing else moves."""
    engine.gate = asyncio.Event()
    tasks = [asyncio.create_task(lm.ask(question, "scorer")) for question in questions]
    for _ in range(20):
        await asyncio.sleep(0)
    engine.gate.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_identical_calls_in_flight_are_executed_once() -> None:
    lm, engine = judge_lm()
    replies = asyncio.run(gathered(lm, engine, QUESTION, QUESTION, OTHER, QUESTION))
    assert [r.text for r in replies] == ["answer 1", "answer 1", "answer 2", "answer 1"]
    assert len(engine.requests) == 2
    assert (lm.meter.asked["scorer"], lm.meter.executed["scorer"]) == (4, 2)


def test_who_waits_for_a_call_that_fails_asks_himself() -> None:
    def act(number: int) -> Response:
        if number == 1:
            raise lm15.InvalidRequestError("not like this")
        return response("better")

    lm, engine = judge_lm(act)
    first, *others = asyncio.run(gathered(lm, engine, QUESTION, QUESTION, QUESTION))
    assert isinstance(first, dspy.LMInvalidRequestError)
    assert [other.text for other in others] == ["better", "better"]
    assert len(engine.requests) == 2


def test_who_waits_for_a_call_that_is_cancelled_asks_himself() -> None:
    async def go() -> tuple[Reply, int]:
        lm, engine = judge_lm()
        engine.gate = asyncio.Event()
        first = asyncio.create_task(lm.ask(QUESTION, "scorer"))
        await asyncio.sleep(0)
        second = asyncio.create_task(lm.ask(QUESTION, "scorer"))
        for _ in range(5):
            await asyncio.sleep(0)
        first.cancel()
        engine.gate.set()
        return await second, len(engine.requests)

    reply, executed = asyncio.run(go())
    assert reply.text == "answer 2"
    assert executed == 2


def test_no_more_calls_are_in_flight_than_allowed() -> None:
    lm, engine = judge_lm(concurrency=3)

    async def go() -> int:
        engine.gate = asyncio.Event()
        questions = [[{"role": "user", "content": f"{i}?"}] for i in range(10)]
        tasks = [asyncio.create_task(lm.ask(question, "scorer")) for question in questions]
        for _ in range(50):
            await asyncio.sleep(0)
        flying = len(engine.requests)
        engine.gate.set()
        await asyncio.gather(*tasks)
        return flying

    assert asyncio.run(go()) <= 3
    assert len(engine.requests) == 10


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


def judged(lm: JudgeLM, rules: Rules = Rules(0), **settings: Any) -> Any:  # noqa: B008 - Rules are frozen
    async def go() -> Any:
        with dspy.context(**{"lm": lm, "disable_history": True, "trace": None, **settings}):
            return await Debate(rules=rules).judge(ITEM)

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "truncated"), ("content_filter", "refused")], ids=["cut off", "refused"]
)
def test_a_reply_that_did_not_end_well_is_no_score(finish: str, reason: str) -> None:
    judgement = judged(judge_lm(finishing(finish), max_tokens=100)[0])
    assert isinstance(judgement, Unscored)
    assert judgement.reason == reason


# --- the meter ---


def test_the_meter_counts_by_role_what_was_asked_and_what_was_spent() -> None:
    lm, _ = judge_lm()
    ask(lm, QUESTION, QUESTION, role="scorer")
    ask(lm, OTHER, role="critic")
    assert lm.meter.asked == {"scorer": 2, "critic": 1}
    assert lm.meter.executed == {"scorer": 1, "critic": 1}
    # 10 tokens in, 4 of them from the provider's cache, and 3 out, for each of two calls.
    assert (lm.meter.input_tokens, lm.meter.cached_tokens, lm.meter.output_tokens) == (20, 8, 6)


def test_a_debate_is_metered_under_the_names_of_its_roles() -> None:
    replies = iter(
        [
            "[[ ## score ## ]]\n4",
            "[[ ## decision ## ]]\nISSUE\n[[ ## feedback ## ]]\nHm.",
            "[[ ## score ## ]]\n3",
            "[[ ## final_score ## ]]\n2",
        ]
    )
    lm, _ = judge_lm(lambda number: response(next(replies)))
    verdict = judged(lm, Rules(1, True))
    assert isinstance(verdict, Verdict)
    assert lm.meter.executed == {"scorer": 2, "critic": 1, "tie-breaker": 1}


# --- what identifies a call ---


def key(messages: list[dict[str, Any]] = QUESTION, model: str = "test/m", **options: Any) -> str:
    call = options.pop("call", {})
    lm = JudgeLM(model, engine=Engine(), async_engine=AsyncEngine(), **options)
    return lm.call_key(messages, **call)


def test_equal_calls_have_equal_keys() -> None:
    assert key() == key()
    assert len(key()) == 32
    # How a call is paced decides nothing about its reply.
    assert key(concurrency=3) == key()
    assert key(temperature=None) == key()


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_different_calls_have_different_keys() -> None:
    keys = [
        key(),
        key(model="test/n"),
        key(endpoint="http://localhost:8000/v1"),
        key(temperature=0.0),
        key(temperature=1.0),
        key(max_tokens=100),
        key(call={"sample": 1}),
        key(call={"sample": 2}),
        key(OTHER),
        key(QUESTION[1:]),
        key([*QUESTION, *QUESTION[1:]]),
        key(user("ab")),
        key([*user("a"), *user("b")]),
        key([{"role": "assistant", "content": "ab"}]),
        # A text that imitates the border between two messages.
        key(user("auser 1 b")),
        key(user("é")),
        key(user("e\u0301")),
    ]
    assert len(set(keys)) == len(keys)


def made(api_base: str | None = "http://localhost:1/v1", spec: str = "openai/m", **options: Any) -> JudgeLM:
    return make_lm(spec, api_base=api_base, **options)


def test_no_secret_is_part_of_a_calls_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for secret in (None, "sk-one", "sk-two"):
        if secret is None:
            monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        else:
            monkeypatch.setenv("OPENAI_API_KEY", secret)
        keys.add(made().call_key(QUESTION))
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://user:secret@localhost:8000/v1", "http://localhost:8000/v1"),
        ("https://token@host.example/v1/", "https://host.example/v1/"),
        ("https://host.example/p@th", "https://host.example/p@th"),
        ("https://a:b@c@host.example", "https://host.example"),
    ],
)
def test_credentials_in_an_address_go_no_further(address: str, endpoint: str) -> None:
    lm = made(address)
    assert lm.endpoint == endpoint
    assert lm.call_key(QUESTION) == made(endpoint).call_key(QUESTION)


# --- DSPy's own modules ---


def proposals(store: Any, questions: list[str], endpoint: str = "") -> tuple[list[str], int]:
    engine = Engine()
    lm = JudgeLM("test/m", engine=engine, async_engine=AsyncEngine(), store=store, endpoint=endpoint)
    return [lm(question)[0] for question in questions], len(engine.requests)


def test_equal_requests_of_dspys_modules_are_samples_of_their_own_and_found_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    questions = ["Propose.", "Propose.", "Another.", "Propose."]
    first, executed = proposals(journal, questions)
    assert first == ["answer 1", "answer 2", "answer 3", "answer 4"]
    assert executed == 4
    journal.close()
    # A second process asks in the same order: everything is there. What goes beyond is executed.
    again = Journal(tmp_path)
    assert proposals(again, questions) == (first, 0)
    assert proposals(again, [*questions, "Propose."]) == ([*first, "answer 1"], 1)
    # Another server's replies are another matter.
    assert proposals(again, questions[:1], endpoint="http://localhost:1/v1")[1] == 1
    again.close()


def test_what_dspys_modules_ask_is_metered() -> None:
    store = Memory()
    lm = JudgeLM("test/m", engine=Engine(), async_engine=AsyncEngine(), store=store)
    lm("Propose.")
    again = JudgeLM("test/m", engine=Engine(), async_engine=AsyncEngine(), store=store)
    again("Propose.")
    assert (lm.meter.asked["proposer"], lm.meter.executed["proposer"]) == (1, 1)
    assert (again.meter.asked["proposer"], again.meter.executed["proposer"]) == (1, 0)


def test_a_failure_of_dspys_modules_is_not_stored() -> None:
    def act(number: int) -> Response:
        if number == 1:
            raise lm15.InvalidRequestError("not like this")
        return response("better")

    engine, store = Engine(act), Memory()
    lm = JudgeLM("test/m", engine=engine, async_engine=AsyncEngine(), store=store)
    with pytest.raises(dspy.LMError):
        lm("Propose.")
    # A process that comes after it counts its requests from the start.
    again = JudgeLM("test/m", engine=engine, async_engine=AsyncEngine(), store=store)
    assert again("Propose.") == ["better"]


def test_programs_that_are_copied_keep_their_lm() -> None:
    lm, _ = judge_lm()
    assert copy.deepcopy(lm) is lm
    assert copy.deepcopy({"lm": lm})["lm"] is lm


# --- make_lm ---


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("spec", ["gpt-4o-mini", "", "Offline"])
def test_a_spec_without_provider_is_refused_with_an_example(spec: str) -> None:
    with pytest.raises(ValueError, match="openai/gpt-4o-mini"):
        make_lm(spec)


@pytest.mark.parametrize("spec", ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"])
def test_a_missing_key_is_named(spec: str) -> None:
    with pytest.raises(dspy.LMConfigurationError, match=spec.split("/")[0].upper() + "_API_KEY"):
        ask(make_lm(spec), QUESTION)


def test_the_papers_temperature_is_the_default() -> None:
    # DEBATE, appendix E.1.
    assert made().kwargs["temperature"] == 0.0
    assert made(temperature=0.7).kwargs["temperature"] == 0.7


def test_reasoning_models_get_neither_temperature_nor_limit() -> None:
    settings = made(spec="openai/o3").kwargs
    assert {value for name, value in settings.items() if name in ("temperature", "max_tokens")} <= {None}


def test_the_offline_lm_needs_nothing_and_answers_alike_every_time() -> None:
    first, second = judged(make_lm("offline")), judged(make_lm("offline"))
    assert isinstance(first, Verdict)
    assert first == second
    assert 1 <= first.score <= 5


def test_counting_starts_anew_with_each_lm() -> None:
    numbers = count(1)
    lms = [judge_lm(lambda _: response(f"{next(numbers)}"))[0] for _ in range(2)]
    assert [ask(lm, QUESTION)[0].text for lm in lms] == ["1", "2"]
    assert [lm.meter.asked.total() for lm in lms] == [1, 1]
