"""Validation of replies from odd servers: what is usable is kept, and every stored reply can be read again."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from dspy import lm15

from debate_judge.programs.lm.http.chat_completions import read_reply
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
from tests.stores import get, put

KEY = "0" * 32


def answer(content: Any = "fine", usage: Any = None, **choice: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    return json.dumps({"id": "1", "choices": [{"message": message, **choice}], "usage": usage}).encode()


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, (12, 3, 4)),
        ({"prompt_tokens": "12", "completion_tokens": "3"}, (12, 3, 0)),
        ({"prompt_tokens": 12.0, "completion_tokens": 3.5}, (12, 3, 0)),
        ({"prompt_tokens": -1, "completion_tokens": None}, (0, 0, 0)),
        ({"prompt_tokens": True, "completion_tokens": [3]}, (0, 0, 0)),
        ({"prompt_tokens": "9" * 5000, "completion_tokens": 10**40}, (0, 0, 0)),
        ({"prompt_tokens": "many", "completion_tokens": {"text": 3}}, (0, 0, 0)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, (5, 0, 5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": "none"}, (5, 0, 0)),
        ("none", (0, 0, 0)),
        ([], (0, 0, 0)),
        (None, (0, 0, 0)),
    ],
)
def test_invalid_token_counts_are_unknown(usage: Any, tokens: tuple[int, int, int], tmp_path: Path) -> None:
    reply = read_reply(answer(usage=usage))
    assert reply.text == "fine"
    found = (reply.input_tokens, reply.output_tokens, reply.cached_tokens)
    assert found == tokens
    assert {type(count) for count in found} == {int}
    kept_and_found_again(tmp_path, reply)


def kept_and_found_again(folder: Path, reply: Reply) -> None:
    with closing(SqlStore(folder)) as journal:
        put(journal, KEY, reply)
    with closing(SqlStore(folder)) as journal:
        assert get(journal, KEY) == reply


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83c\udfad", "\x00", "é"])
def test_characters_that_utf_8_cannot_hold_are_replaced(text: str, tmp_path: Path) -> None:
    raw = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    try:
        reply = read_reply(raw)
    except lm15.ServerError:
        # A lone surrogate is no JSON: the call is made again.
        assert not text.isascii()
        return
    reply.text.encode()
    kept_and_found_again(tmp_path, reply)


@pytest.mark.parametrize(
    "token",
    [
        {"token": "4", "logprob": None},
        {"token": 4, "logprob": -0.1},
        {"token": "4", "logprob": "high"},
        {"token": "4", "logprob": 1e999},
    ],
)
def test_invalid_log_probabilities_are_none(token: dict[str, Any], tmp_path: Path) -> None:
    raw = answer("4", logprobs={"content": [token]})
    if token["logprob"] == 1e999:
        raw = raw.replace(b"Infinity", b"1e999")
    try:
        reply = read_reply(raw)
    except lm15.ServerError:
        # Too large for a float: the parser raises.
        assert token["logprob"] == 1e999
        return
    assert (reply.text, reply.logprobs) == ("4", None)
    kept_and_found_again(tmp_path, reply)


@pytest.mark.parametrize(
    "raw",
    [b"[]", b"{}", b"null", b'{"choices": "x"}', b'{"choices": [null]}', b'{"choices": [{"message": {"content": 4}}]}'],
)
def test_a_response_that_is_no_completion_is_retried(raw: bytes) -> None:
    with pytest.raises(lm15.ServerError):
        read_reply(raw)
