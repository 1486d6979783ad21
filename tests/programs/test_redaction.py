"""What counts as a secret in a setting, and what must be left alone."""

from __future__ import annotations

from typing import Any

import pytest

from debate_judge.programs.lm.redaction import clean, clean_text


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
    assert clean(value, name) == expected


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
    assert clean_text(text).replace("api_key=[removed]", "[removed]") == expected


def test_the_value_of_a_secret_variable_is_removed_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "unusual-4711")
    monkeypatch.setenv("OTHER_TOKEN", "short")
    assert clean_text("x unusual-4711 y short") == "x [removed] y short"


def test_the_working_directory_is_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/home/someone")
    assert clean_text("sqlite:////home/someone/runs.db") == "sqlite:////home/someone/runs.db"
