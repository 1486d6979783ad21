"""When a call is repeated, and how long it waits: Retry-After, backoff, patience."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time

import pytest

from debate_judge.programs.lm.errors import lm_error
from debate_judge.programs.lm.http.chat_completions import refused
from debate_judge.programs.lm.limits.retries import Backoff, Patience, retry, retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_date_in_the_future_is_waited_for() -> None:
    date = email.utils.formatdate(time.time() + 1000, usegmt=True)
    found = retry_after({"retry-after": date})
    assert found is not None
    assert 500 < found <= 1000


def test_waits_double_up_to_the_longest_and_are_spread() -> None:
    backoff = Backoff(1.0, 60.0, random.Random(0))
    for failures in (0, 1, 5, 6, 5000):
        mean = min(2.0 ** min(failures, 30), 60.0)
        waits = [backoff.wait(failures) for _ in range(50)]
        assert 0.5 * mean <= min(waits) < max(waits) <= 1.5 * mean


def test_what_the_server_asks_for_is_waited_at_least_but_no_longer_than_the_longest() -> None:
    backoff = Backoff(1.0, 60.0, random.Random(0))
    for asked, least, most in ((0.0, 0.0, 0.1), (5.0, 5.0, 5.6), (1000.0, 60.0, 61.0)):
        waits = [backoff.wait(9, asked) for _ in range(50)]
        assert least <= min(waits) < max(waits) <= most


@pytest.mark.parametrize("attempts", [1, 3])
def test_patience_ends_with_the_attempts(attempts: int) -> None:
    patience = Patience(Backoff(0.0, 0.0), attempts=attempts)
    made = 0

    async def attempt() -> None:
        nonlocal made
        made += 1
        raise ConnectionError(f"attempt {made}")

    async def wait_after(error: Exception) -> float:
        wait = patience.wait()
        if wait is None:
            raise error
        return wait

    with pytest.raises(ConnectionError, match=f"attempt {attempts}"):
        asyncio.run(retry(attempt, wait_after))
    assert made == patience.failures == attempts


def test_patience_in_seconds_begins_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("debate_judge.programs.lm.limits.retries.time.monotonic", lambda: now)
    patience = Patience(Backoff(1.0, 1.0), seconds=10.0)
    # The first attempt alone took longer than that.
    now = 1000.0
    assert patience.wait() is not None
    now = 1009.0
    assert patience.wait() is not None
    now = 1010.0
    assert patience.wait() is None


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, '{"error": {"code": "context_length_exceeded"}}', "ContextWindowExceededError"),
        (400, "This model's maximum context length is 4096 tokens.", "ContextWindowExceededError"),
        (400, "the request exceeds the available context size", "ContextWindowExceededError"),
        (413, "too many tokens", "ContextWindowExceededError"),
        (400, "temperature is not supported", "LMInvalidRequestError"),
        (500, "the context window is broken", "LMServerError"),
        (429, "you exceeded your quota (insufficient_quota)", "LMBillingError"),
        (429, "Request too large for this model", "LMInvalidRequestError"),
        (429, "slow down", "LMRateLimitError"),
    ],
)
def test_an_error_answer_has_a_type(status: int, text: str, kind: str) -> None:
    with pytest.raises(Exception, match=f"HTTP {status}") as caught:
        refused(status, text, None)
    assert type(lm_error(caught.value, "openai/m")).__name__ == kind


def test_no_error_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unusual-4711")
    with pytest.raises(Exception, match="unusual-4711") as caught:
        refused(401, "Incorrect key: unusual-4711, or short", None)
    text = str(lm_error(caught.value, "openai/m", "short"))
    assert "unusual-4711" not in text
    assert "short" not in text
