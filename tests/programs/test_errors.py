"""Waits before retries, classes and messages of errors, replies of odd servers, secrets in what is shown; and the
limiter with random callers in virtual time: no call waits forever, and no slot is lost."""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import selectors
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import numpy as np
import pytest
from dspy import lm15
from dspy.clients.errors import wrap_error

from debate_judge.programs.lm import limits
from debate_judge.programs.lm.limits import (
    UNUSABLE,
    BudgetSpentError,
    Estimate,
    Estimator,
    Limiter,
    redact_error,
    retry_after,
    retry_wait,
)
from debate_judge.programs.lm.replies import Reply, SqlStore
from debate_judge.programs.lm.settings import BudgetCaps, LMOptions, Price, redact, redact_text
from debate_judge.programs.lm.transport import IMPOSSIBLE, interpret_error, read_reply
from tests.stores import get, key, put


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "-3"}, 0.0),
        *(({"retry-after": form}, None) for form in ("soon", "nan", "9" * 400)),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 01 Jan 2124 00:00:00 +99999999"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def waits(error: Exception, attempt: int) -> list[float]:
    return [retry_wait(error, attempt, 1.0, 60.0) for _ in range(50)]


def test_waits_double_up_to_the_maximum_and_retry_after_is_respected_up_to_it() -> None:
    for attempt, pause, least, most in (
        *((attempt, None, least, least + 1) for attempt, least in ((1, 1), (2, 2), (6, 32), (7, 60), (5000, 60))),
        *((3, pause, least, most) for pause, least, most in ((5.0, 5, 5.6), (1000.0, 60, 61))),
    ):
        seconds = waits(lm15.ServerError("slow down", status=503, retry_after=pause), attempt)
        assert least <= min(seconds) < max(seconds) <= most
    date = email.utils.formatdate(time.time() + 1000, usegmt=True)
    assert 500 < retry_after({"retry-after": date}) <= 1000
    # "Come back at once" is believed once.
    at_once = lm15.RateLimitError("slow down", status=429, retry_after=0.0)
    assert max(waits(at_once, 1)) < 1.0 < min(waits(at_once, 3))


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, '{"error": {"code": "context_length_exceeded"}}', "ContextWindowExceededError"),
        (400, "This model's maximum context length is 4096 tokens.", "ContextWindowExceededError"),
        (400, "temperature is not supported", "LMInvalidRequestError"),
        (429, "you exceeded your quota (insufficient_quota)", "LMBillingError"),
        (400, "Your credit balance is too low to access the API.", "LMBillingError"),
        (403, "billing is not active on this account", "LMBillingError"),
        (429, "No deployments available - crossed budget: Exceeded budget for provider openai", "LMBillingError"),
        (429, "Rate limit reached. Need more tokens? See the plans in settings/billing", "LMRateLimitError"),
        (429, "Request too large for this model", "LMInvalidRequestError"),
        (429, "slow down", "LMRateLimitError"),
        (400, '{"error":{"message":"No connected db.","type":"no_db_connection"}}', "LMAuthError"),
    ],
)
def test_an_error_status_has_an_error_class(status: int, text: str, kind: str) -> None:
    with pytest.raises(Exception, match=f"HTTP {status}") as caught:
        interpret_error(status, text, None)
    assert type(wrap_error(caught.value, model="openai/m")).__name__ == kind


def test_no_error_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unusual-4711")
    with pytest.raises(Exception, match="unusual-4711") as caught:
        interpret_error(401, "Incorrect key: unusual-4711", None)
    for error in (caught.value, RuntimeError("no header unusual-4711")):
        assert "unusual-4711" not in str(redact_error(error))
    # However short it is.
    assert "k3y" not in redact_text("bad key k3y: see http://me:k3y@host", "k3y")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, "abc", "[removed]") for name in ("api_key", "OPENAI_API_KEY", "accessToken", "db.password")),
        *((name, "abc", "abc") for name in ("keyword", "monkey", "model")),
        ("max_tokens", 2000, 2000),
        ("lm", {"spec": "x/y", "token": "abc"}, {"spec": "x/y", "token": "[removed]"}),
    ],
)
def test_names_that_make_a_value_a_secret(name: str, value: Any, expected: Any) -> None:
    assert redact(value, name) == expected


@pytest.mark.parametrize(
    ("text", "expected", "variables"),
    [
        ("http://me:pa%40ss@host:8000/v1", "http://host:8000/v1", {}),
        ("https://host/v1?api_key=abc&n=1", "https://host/v1?api_key=[removed]&n=1", {}),
        ("Authorization: Bearer abcdef123456", "Authorization: [removed]", {}),
        ("Incorrect API key provided: sk-abcdefghijkl1234.", "Incorrect API key provided: [removed].", {}),
        ("a risk-averse judge of basic understanding", "a risk-averse judge of basic understanding", {}),
        ("x unusual-4711 y", "x [removed] y", {"MY_SERVICE_TOKEN": "unusual-4711"}),
        # The working directory is no password.
        ("sqlite:////home/someone/runs.db", "sqlite:////home/someone/runs.db", {"PWD": "/home/someone"}),
        # The password of an address, as it stands there and decoded.
        ("refused with p%40ss-word", "refused with [removed]", {"HTTPS_PROXY": "http://me:p%40ss-word@host:3128"}),
        ("refused with p@ss-word", "refused with [removed]", {"MLFLOW_TRACKING_URI": "http://me:p%40ss-word@host/v1"}),
        # A key that was pasted with a line break.
        ("no such key: unusual-4711.", "no such key: [removed].", {"OPENAI_API_KEY": "unusual-4711\n"}),
    ],
)
def test_secrets_inside_a_text(
    text: str, expected: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert redact_text(text) == expected


def test_half_a_key_is_not_shown_where_an_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unusual-4711-unusual-4712")
    for start in range(170, 205):
        with pytest.raises(lm15.ServerError) as caught:
            read_reply(b"x" * start + b"unusual-4711-unusual-4712")
        assert "unusual" not in str(caught.value)


def completion(content: Any = "fine", usage: Any = None, **choice: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    return json.dumps({"id": "1", "choices": [{"message": message, **choice}], "usage": usage}).encode()


def stored(folder: Path, reply: Reply) -> Reply | None:
    with closing(SqlStore(folder)) as store:
        put(store, key(0), reply)
        return get(store, key(0))


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, (12, 3, 4)),
        ({"prompt_tokens": "12", "completion_tokens": "3"}, (12, 3, 0)),
        ({"prompt_tokens": -1, "completion_tokens": None}, (0, 0, 0)),
        ({"prompt_tokens": True, "completion_tokens": [3]}, (0, 0, 0)),
        ({"prompt_tokens": "9" * 5000, "completion_tokens": 10**40}, (0, 0, 0)),
        *((usage, (0, 0, 0)) for usage in ("none", [], None)),
    ],
)
def test_invalid_token_counts_are_unknown(usage: Any, tokens: tuple[int, int, int], tmp_path: Path) -> None:
    reply = read_reply(completion(usage=usage))
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.cached_tokens) == ("fine", *tokens)
    assert stored(tmp_path, reply) == reply


def test_single_log_probabilities_that_are_no_numbers_cost_neither_the_others_nor_the_reply(tmp_path: Path) -> None:
    top = [{"token": "4", "logprob": -0.5}, {"token": "3", "logprob": "N"}, {"token": "2", "logprob": None}]
    content = [{"token": "4", "logprob": -1e99, "top_logprobs": top}, {"token": ".", "logprob": -1e99}]
    # Python's servers write these words, which are no JSON, and one wrote a number that is too large.
    raw = completion("4 NaN", logprobs={"content": content}).replace(b'"N"', b"NaN").replace(b"-1e+99", b"-Infinity", 1)
    reply = read_reply(raw.replace(b"-1e+99", b"-1e999"))
    assert reply.text == "4 NaN"
    assert reply.logprobs == ((("4", IMPOSSIBLE), ("4", -0.5)), ((".", IMPOSSIBLE),))
    assert stored(tmp_path, reply) == reply


def choice(**changes: object) -> bytes:
    """A completion with changes to its choice."""
    value = json.loads(completion("fine"))
    value["choices"][0] |= changes
    return json.dumps(value).encode()


NOT_PAID = [
    *(b"[]", b"{}", b"null", b"OK", b"", b'{"choices": "x"}', b'{"choices": [null]}', b'{"choices": []}'),
    choice(message=None),
    *(b"<html>Please log in</html>", b'{"detail": "Not Found"}', b'{"error": "upstream failed"}'),
]
PAID = [
    *(choice(finish_reason=word) for word in ("error", "tool_calls", 3)),
    *(choice(message=message) for message in ({"content": 4}, {"content": [{"type": "image"}, 3]})),
    choice(error={"code": 502, "message": "the provider failed"}),
    # An error beside an answer.
    completion("fine").replace(b'{"', b'{"error": {"message": "overloaded"}, "', 1),
    completion("fine")[:-20],
    b'data: {"choices": [{"delta": {"content": "fine"}}]}\n\ndata: [DONE]\n\n',
    # A lone surrogate is no JSON.
    b'{"choices": [{"message": {"content": "a\\ud800"}}]}',
]


@pytest.mark.parametrize("raw", [*NOT_PAID, *PAID])
def test_what_is_no_completion_is_no_reply_and_its_tokens_are_paid_once_more_at_most(raw: bytes) -> None:
    with pytest.raises(lm15.ServerError) as caught:
        read_reply(raw)
    assert (caught.value.provider_code == UNUSABLE) == (raw in PAID)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for code that only computes and sleeps: its clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(Jumping(self))

    def time(self) -> float:
        return self.now


class Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            assert not asyncio.all_tasks(self.loop), "tasks wait, and nothing is left that could wake them"
        self.loop.now += timeout or 0.0
        return super().select(0)


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """A loop whose clock is `time.monotonic` of the limiter as well."""
    loop = VirtualLoop()
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=loop.time))
    yield loop
    loop.close()


def use(tokens: float = 0.0, most: float = 0.0) -> Estimate:
    """A call that is expected to use so many tokens, and at most so many, half of them output."""
    return Estimate(0, tokens, np.array([1.0, most, 0.0]), most / 2 or 1.0)


async def call_at_random(limiter: Limiter, concurrency: int, rng: random.Random, fails: bool) -> int:
    """120 callers that use a limiter in all ways; returns how many slots they got."""
    loop, counts = asyncio.get_running_loop(), {"inside": 0, "entered": 0}

    async def caller() -> None:
        await asyncio.sleep(rng.uniform(0, 20))
        again, front = True, False
        while again:
            call = use(rng.uniform(1, 5000), 200.0) if rng.random() < 0.5 else use()
            try:
                await limiter.acquire(call, front=front)
            except dspy.LMError:
                return
            counts["inside"] += 1
            counts["entered"] += 1
            try:
                assert counts["inside"] <= limiter.in_flight <= concurrency
                sent, chance = loop.time(), rng.random() if fails else 0.0
                await asyncio.sleep(rng.expovariate(2.0))
                again = front = 0.6 < chance < 0.8
                if again:
                    limiter.on_overload(sent, rng.uniform(0.1, 30) if rng.random() < 0.3 else 0.0)
                elif chance < 0.6:
                    limiter.on_success(call, np.array([1.0, rng.uniform(0, 3000), 0.0]), 0.5)
                else:
                    limiter.fail_all(dspy.LMAuthError("no"))
            finally:
                counts["inside"] -= 1
                limiter.release(call)
                if rng.random() < 0.1:
                    # Perhaps one that has just got its slot and does not know it yet.
                    rng.choice(callers).cancel()

    callers = [asyncio.create_task(caller()) for _ in range(120)]
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}, results
    return counts["entered"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.integration) for n in range(50, 400, 50))])
def test_no_call_waits_forever_and_every_slot_is_released(seed: int, virtual: VirtualLoop) -> None:
    for number in range(seed, seed + 50):
        rng = random.Random(number)
        concurrency, rpm, tpm = rng.choice((1, 2, 3, 8, 40)), rng.choice((None, 30.0, 600.0)), rng.choice((None, 5e4))
        budget = BudgetCaps(calls=rng.choice((20, 10_000))) if rng.random() < 0.3 else BudgetCaps()
        limiter = Limiter(concurrency, LMOptions(rpm=rpm, tpm=tpm, budget=budget))
        assert virtual.run_until_complete(call_at_random(limiter, concurrency, rng, rng.random() < 0.7)) > 0, number
        assert limiter.in_flight == 0, number
        # A failure of all calls is forgotten once none is in flight.
        with suppress(BudgetSpentError):
            virtual.run_until_complete(limiter.acquire(use()))


@pytest.mark.parametrize("options", [LMOptions(rpm=60), LMOptions(tpm=6000)])
def test_a_limit_per_minute_counts_requests_and_the_tokens_that_were_used(
    options: LMOptions, virtual: VirtualLoop
) -> None:
    """Each call is thought to need 1,000 tokens and uses 100: 120 calls take two minutes, and those not sent none."""

    async def work() -> None:
        limiter, call = Limiter(8, options), use(1000.0, 200.0)
        for _ in range(120):
            await limiter.acquire(call)
            limiter.release(call, unsent=True)
            await limiter.acquire(call)
            limiter.on_success(call, np.array([1.0, 100.0, 0.0]), 100.0)
            limiter.release(call)

    began = virtual.now
    virtual.run_until_complete(work())
    assert virtual.now - began == pytest.approx(120, rel=0.15)


def test_what_was_asked_for_before_all_calls_failed_is_not_sent_after_it() -> None:
    async def work() -> None:
        limiter, began = Limiter(2, LMOptions()), time.monotonic()
        await limiter.acquire(use())
        limiter.fail_all(dspy.LMAuthError("no"))
        limiter.release(use())
        with pytest.raises(dspy.LMAuthError):
            await limiter.acquire(use(), began=began)
        await limiter.acquire(use(), began=time.monotonic())

    asyncio.run(work())


def test_a_spent_budget_refuses_one_call_and_not_the_smaller_ones_after_it() -> None:
    async def work() -> None:
        limiter, small = Limiter(2, LMOptions(budget=BudgetCaps(tokens=1000))), use(10, 200)
        await limiter.acquire(small)
        large = asyncio.create_task(limiter.acquire(use(10, 2100)))
        await asyncio.sleep(0)
        assert not large.done()
        limiter.release(small)
        with pytest.raises(BudgetSpentError):
            await large
        await limiter.acquire(small)

    asyncio.run(work())


def test_an_estimate_is_the_mean_of_the_replies_so_far_and_its_maximum_above_all_of_them() -> None:
    estimator = Estimator(Price(1.0, 0.5, 2.0))
    for output in (10, 30):
        cost, observed = estimator.observe(100, Reply("4", 50, output, 20))
        assert (*cost, observed) == pytest.approx((1, 50 + output, (30 + 10 + 2 * output) / 1e6, output))
    call = estimator.estimate(100, None)
    assert call.tokens == pytest.approx(50 + 20)
    assert call.max_output >= 30
    assert call.max_cost[1] >= 50 + call.max_output
    assert estimator.estimate(100, 100).max_output == 100
    # A reply without usage is known by its length.
    assert (*estimator.observe(100, Reply("four"))[0][:2],) == pytest.approx((1, 50 + 2))
