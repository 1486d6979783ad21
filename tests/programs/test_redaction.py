"""Which settings and texts count as secrets."""

from __future__ import annotations

from typing import Any

import pytest
from dspy import lm15

from debate_judge.programs.lm.errors import lm_error, redact_error
from debate_judge.programs.lm.http.chat_completions import read_reply
from debate_judge.programs.lm.redaction import redact, redact_text


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("api_key", "abc", "[removed]"),
        ("OPENAI_API_KEY", "abc", "[removed]"),
        ("accessToken", "abc", "[removed]"),
        ("db.password", 1234, "[removed]"),
        ("password", None, None),
        ("max_tokens", 2000, 2000),
        ("keyword", "summary", "summary"),
        ("monkey", "summary", "summary"),
        ("model", "openai/gpt-4o-mini", "openai/gpt-4o-mini"),
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


def test_the_value_of_a_secret_variable_is_removed_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "unusual-4711")
    monkeypatch.setenv("OTHER_TOKEN", "short")
    assert redact_text("x unusual-4711 y short") == "x [removed] y short"


def test_the_working_directory_is_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/home/someone")
    assert redact_text("sqlite:////home/someone/runs.db") == "sqlite:////home/someone/runs.db"


def test_a_key_that_was_pasted_with_a_line_break_is_removed_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unusual-4711\n")
    assert redact_text("no such key: unusual-4711.") == "no such key: [removed]."


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


def test_an_error_that_no_library_has_a_class_for_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unusual-4711")
    assert "unusual" not in str(lm_error(RuntimeError("no header unusual-4711"), "openai/m"))


def test_a_key_is_removed_however_short_it_is() -> None:
    found = redact_error(lm15.AuthError("bad key k3y: see http://me:k3y@host"), "k3y")
    assert "k3y" not in str(found)
    assert "bad key" in str(found)
