"""Waits before retries: Retry-After and backoff; classes of errors."""

from __future__ import annotations

import email.utils
import time

import pytest
from dspy import lm15
from tenacity import AsyncRetrying, RetryCallState

from debate_judge.programs.lm.errors import lm_error
from debate_judge.programs.lm.http.chat_completions import interpret_error
from debate_judge.programs.lm.limits.failures import RetryWait, retry_after


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
    assert 500 < found <= 1000


def waits(error: Exception, attempt: int) -> list[float]:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    state.set_exception((type(error), error, None))
    wait = RetryWait(1.0, 60.0)
    return [wait(state) for _ in range(50)]


def test_waits_double_up_to_the_maximum_with_jitter() -> None:
    for attempt, least in ((1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (5000, 60.0)):
        found = waits(lm15.ServerError("oops", status=500), attempt)
        assert least <= min(found) < max(found) <= least + 1.0


def test_retry_after_is_respected_up_to_the_maximum() -> None:
    for asked, least, most in ((5.0, 5.0, 5.6), (1000.0, 60.0, 61.0)):
        found = waits(lm15.RateLimitError("slow down", status=429, retry_after=asked), 3)
        assert least <= min(found) < max(found) <= most
    # "Come back at once" is believed once.
    at_once = lm15.RateLimitError("slow down", status=429, retry_after=0.0)
    assert max(waits(at_once, 1)) < 1.0 < min(waits(at_once, 3))


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
def test_an_error_status_has_an_error_class(status: int, text: str, kind: str) -> None:
    with pytest.raises(Exception, match=f"HTTP {status}") as caught:
        interpret_error(status, text, None)
    assert type(lm_error(caught.value, "openai/m")).__name__ == kind


def test_no_error_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unusual-4711")
    with pytest.raises(Exception, match="unusual-4711") as caught:
        interpret_error(401, "Incorrect key: unusual-4711, or short", None)
    text = str(lm_error(caught.value, "openai/m", "short"))
    assert "unusual-4711" not in text
    assert "short" not in text
