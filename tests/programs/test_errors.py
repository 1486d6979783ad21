"""Waits before retries, classes and messages of errors, replies of odd servers, and secrets in what is shown."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15
from tenacity import AsyncRetrying, RetryCallState

from debate_judge.programs.lm.errors import BudgetSpentError, ProviderDownError, describe, lm_error, redact_error
from debate_judge.programs.lm.http.chat_completions import interpret_error, read_reply
from debate_judge.programs.lm.limits.failures import RetryWait, retry_after
from debate_judge.programs.lm.redaction import redact, redact_text
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
from tests.stores import get, key, put


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        *(({"retry-after": form}, None) for form in ("soon", "nan", "inf", "9" * 400, "\u00b9")),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 01 Jan 0001 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 01 Jan 2124 00:00:00 +99999999"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


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
    for error in (caught.value, RuntimeError("no header unusual-4711, or short")):
        assert not re.search("unusual-4711|short", str(lm_error(error, "openai/m", "short")))
    # However short it is.
    assert "k3y" not in str(redact_error(lm15.AuthError("bad key k3y: see http://me:k3y@host"), "k3y"))


ADVICE = "\n\n  To fix:\n    - Pass the key explicitly (api_key= on dspy.LM)\n"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (dspy.LMAuthError("HTTP 401: wrong" + ADVICE), "OPENAI_API_KEY"),
        (dspy.LMNotConfiguredError("no key" + ADVICE), "OPENAI_API_KEY"),
        (dspy.LMUnsupportedModelError("HTTP 404: no such model"), "'openai/m'"),
        (dspy.LMBillingError("insufficient_quota"), "no credit left"),
        (BudgetSpentError("60 of 60 calls are spent"), "raise --budget"),
        (ProviderDownError("no call was answered for 300 s"), "wait until the provider answers"),
    ],
)
def test_the_message_has_a_remedy_for_users(error: dspy.LMError, remedy: str) -> None:
    text = describe(error, "openai/m")
    assert remedy in text
    assert "run the command again" in text
    assert "api_key" not in text
    assert "To fix" not in text


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, "abc", "[removed]") for name in ("api_key", "OPENAI_API_KEY", "accessToken", "db.password")),
        *((name, "abc", "abc") for name in ("keyword", "monkey", "model")),
        ("password", None, None),
        ("max_tokens", 2000, 2000),
        ("keys", ("a", "b"), ["[removed]", "[removed]"]),
        ("lm", {"spec": "x/y", "token": "abc"}, {"spec": "x/y", "token": "[removed]"}),
    ],
)
def test_names_that_make_a_value_a_secret(name: str, value: Any, expected: Any) -> None:
    assert redact(value, name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://me:pa%40ss@host:8000/v1", "http://host:8000/v1"),
        ("postgresql+psycopg2://me:p@ss@db/runs", "postgresql+psycopg2://db/runs"),
        ("see https://host/a?mail=me@host", "see https://host/a?mail=me@host"),
        ("https://host/v1?api_key=abc&n=1", "https://host/v1?[removed]&n=1"),
        ("Authorization: Bearer abcdef123456", "Authorization: [removed]"),
        ("Incorrect API key provided: sk-abcdefghijkl1234.", "Incorrect API key provided: [removed]."),
        ("a risk-averse judge of basic understanding", "a risk-averse judge of basic understanding"),
    ],
)
def test_secrets_inside_a_text(text: str, expected: str) -> None:
    assert redact_text(text).replace("api_key=[removed]", "[removed]") == expected


@pytest.mark.parametrize(
    ("variable", "value", "text", "expected"),
    [
        ("MY_SERVICE_TOKEN", "unusual-4711", "x unusual-4711 y", "x [removed] y"),
        ("OTHER_TOKEN", "short", "x short y", "x short y"),
        # The working directory is no password.
        ("PWD", "/home/someone", "sqlite:////home/someone/runs.db", "sqlite:////home/someone/runs.db"),
        # A key that was pasted with a line break.
        ("OPENAI_API_KEY", "unusual-4711\n", "no such key: unusual-4711.", "no such key: [removed]."),
    ],
)
def test_the_value_of_a_secret_variable_is_removed_wherever_it_stands(
    variable: str, value: str, text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert redact_text(text) == expected


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "OPENAI_API_BASE", "MLFLOW_TRACKING_URI"])
@pytest.mark.parametrize("shown", ["p%40ss-word", "p@ss-word"])
def test_the_password_of_an_address_in_the_environment_is_removed(
    variable: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://me:p%40ss-word@host:3128/v1")
    assert redact_text(f"refused with {shown}, sorry") == "refused with [removed], sorry"


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
    """The reply as the store gives it back."""
    with closing(SqlStore(folder)) as store:
        put(store, key(0), reply)
        return get(store, key(0))


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, (12, 3, 4)),
        ({"prompt_tokens": "12", "completion_tokens": "3"}, (12, 3, 0)),
        ({"prompt_tokens": 12.0, "completion_tokens": 3.5}, (12, 3, 0)),
        ({"prompt_tokens": -1, "completion_tokens": None}, (0, 0, 0)),
        ({"prompt_tokens": True, "completion_tokens": [3]}, (0, 0, 0)),
        ({"prompt_tokens": "9" * 5000, "completion_tokens": 10**40}, (0, 0, 0)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, (5, 0, 5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": "none"}, (5, 0, 0)),
        *((usage, (0, 0, 0)) for usage in ("none", [], None)),
    ],
)
def test_invalid_token_counts_are_unknown(usage: Any, tokens: tuple[int, int, int], tmp_path: Path) -> None:
    reply = read_reply(completion(usage=usage))
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.cached_tokens) == ("fine", *tokens)
    assert stored(tmp_path, reply) == reply


@pytest.mark.parametrize("token", [("4", None), (4, -0.1), ("4", "high")])
def test_invalid_log_probabilities_are_none(token: tuple[Any, Any], tmp_path: Path) -> None:
    logprobs = {"content": [dict(zip(("token", "logprob"), token, strict=True))]}
    reply = read_reply(completion("4", logprobs=logprobs))
    assert (reply.text, reply.logprobs) == ("4", None)
    assert stored(tmp_path, reply) == reply


@pytest.mark.parametrize(
    "raw",
    [
        *(b"[]", b"{}", b"null", b'{"choices": "x"}', b'{"choices": [null]}'),
        b'{"choices": [{"message": {"content": 4}}]}',
        # A lone surrogate is no JSON.
        b'{"choices": [{"message": {"content": "a\\ud800"}}]}',
        # A number that is too large for a float.
        completion("4", logprobs={"content": [{"token": "4", "logprob": 1}]}).replace(b": 1}", b": 1e999}"),
    ],
)
def test_a_response_that_is_no_completion_is_retried(raw: bytes) -> None:
    with pytest.raises(lm15.ServerError):
        read_reply(raw)
