"""Keys of calls, calls of DSPy's own modules, and `make_lm`."""

from __future__ import annotations

import copy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.engine import untagged_key
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from tests.programs.engines import OTHER, QUESTION, Engine, call_key, judge_lm, request_of


def key(messages: list[dict[str, Any]] = QUESTION, model: str = "test/m", **options: Any) -> str:
    call = options.pop("call", {})
    lm = JudgeLM(model, engine=Engine(), **options)
    return call_key(lm, messages, **call)


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


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
        key([*user("a"), *user("b")]),
        key([{"role": "assistant", "content": "ab"}]),
        # The last imitates the border between two messages.
        *(key(user(text)) for text in ("ab", "é", "e\u0301", "auser 1 b")),
    ]
    assert len(set(keys)) == len(keys)


def made(api_base: str | None = "http://localhost:1/v1", spec: str = "openai/m", **options: Any) -> JudgeLM:
    return make_lm(spec, api_base=api_base, **options)


def test_no_key_is_part_of_a_calls_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {call_key(made(), QUESTION)}
    for secret in ("sk-one", "sk-two"):
        monkeypatch.setenv("OPENAI_API_KEY", secret)
        keys.add(call_key(made(), QUESTION))
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://user:secret@localhost:8000/v1", "http://localhost:8000/v1"),
        ("https://token@host.example/v1/", "https://host.example/v1"),
        ("https://host.example/p@th", "https://host.example/p@th"),
        ("https://a:b@c@host.example", "https://host.example"),
    ],
)
def test_credentials_in_an_address_enter_neither_endpoint_nor_key(address: str, endpoint: str) -> None:
    lm = made(address)
    assert lm.endpoint == endpoint
    assert call_key(lm, QUESTION) == call_key(made(endpoint), QUESTION)


def test_equal_requests_of_dspys_modules_are_separate_samples_and_stored(tmp_path: Path) -> None:
    def proposals(questions: list[str], endpoint: str = "") -> tuple[list[str], int]:
        with closing(SqlStore(tmp_path)) as store:
            lm = JudgeLM("test/m", engine=Engine(), store=store, endpoint=endpoint)
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


def test_programs_that_are_copied_keep_their_lm() -> None:
    lm, _ = judge_lm()
    assert copy.deepcopy({"lm": lm})["lm"] is lm


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_reasoning_models_get_neither_temperature_nor_limit() -> None:
    settings = made(spec="openai/o3").kwargs
    assert settings.get("temperature") is settings.get("max_tokens") is None


def test_the_keys_of_earlier_versions_hold() -> None:
    """A store of replies outlives the code."""
    lm = make_lm("openai/m", api_base="http://localhost:1/v1")
    assert call_key(lm, QUESTION) == "1dc00a5858f9dd4a64618ece40cdc6b7"
    assert call_key(lm, QUESTION, temperature=1.0, logprobs=5, sample=3) == "087a5c8c17c07c53df2a00d504607e65"
    request = request_of("openai/m", QUESTION, {"temperature": 0.0, "max_tokens": 2000})
    assert untagged_key("http://localhost:1/v1", request, 1) == "a03864afdd8b2f25ddaa50fc21647313"
