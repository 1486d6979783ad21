"""Each family of models with the parameters that it refuses, in its provider's protocol and words, over loopback."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from debate_judge.programs.lm.settings import LMOptions
from debate_judge.programs.make_lm import make_lm
from tests.hostile_server import HostileServer, completion, sized
from tests.programs.engines import OTHER, QUESTION, ask

pytestmark = pytest.mark.integration
NO_TEMPERATURE = "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) is."
NO_LIMIT = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
OPENAI = {"temperature": NO_TEMPERATURE, "max_tokens": NO_LIMIT}
ANTHROPIC = "max_tokens: {} > 4096, which is the maximum allowed number of output tokens for claude-x-20271101"
BEDROCK = "The maximum tokens you requested exceeds the model limit of 4096. Try again with a value lower than 4097."
GEMINI = "a maxOutputTokens value of {} but the supported range is from 1 (inclusive) to 4097 (exclusive)"
MISTRAL = '{{"detail": [{{"loc": ["body", "max_tokens"], "msg": "Input should be less than or equal to 4096"}}]}}'
VLLM = (
    "'max_tokens' or 'max_completion_tokens' is too large: {}. This model's maximum context length is 4126 tokens and "
    "your request has 30 input tokens"
)
FAMILIES: list[tuple[str, dict[str, str], str | None, int]] = [
    # Spec; parameter -> the error about it; the error about more than 4096 tokens; how many requests are refused.
    ("openai/gpt-4.1", {}, "max_tokens is too large: {}. This model supports at most 4096 completion tokens.", 1),
    ("openai/gpt-6-sol", OPENAI, None, 0),
    ("openai/team-brain", OPENAI, None, 2),
    ("azure/team-brain", OPENAI, None, 2),
    ("anthropic/claude-sonnet-4-5", {}, ANTHROPIC, 1),
    ("anthropic/claude-opus-4-8", {"temperature": "`temperature` is deprecated for this model."}, ANTHROPIC, 1),
    ("anthropic/claude-to-come", {"temperature": "`temperature` is deprecated for this model."}, ANTHROPIC, 2),
    ("bedrock/amazon.nova-lite-v1:0", {}, BEDROCK, 1),
    ("bedrock/eu.anthropic.claude-to-come-v1:0", {"temperature": "doesn't support the temperature field."}, BEDROCK, 2),
    ("gemini/gemini-3.1-pro-preview", {}, GEMINI, 1),
    ("gemini/gemini-to-come", {"temperature": "temperature is not supported by this model"}, GEMINI, 2),
    ("mistral/mistral-large-latest", {}, MISTRAL, 1),
    ("xai/grok-4", {"temperature": "Argument not supported on this model: temperature"}, "max_tokens above 4096", 2),
    ("groq/openai/gpt-oss-120b", {}, "`max_tokens` must be less than or equal to `4096` for this model", 1),
    ("openrouter/openai/gpt-5-mini", OPENAI, None, 0),
    ("openrouter/anthropic/claude-to-come", {"temperature": "`temperature` is deprecated."}, ANTHROPIC, 2),
    ("hosted_vllm/org/m", {}, VLLM, 1),
]  # fmt: skip
KEYS = ("OPENAI", "AZURE", "ANTHROPIC", "GEMINI", "DEEPSEEK", "MISTRAL", "XAI", "GROQ", "OPENROUTER")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in KEYS:
        monkeypatch.setenv(f"{provider}_API_KEY", "sk-of-a-test-of-families")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-a-test")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")


def error(path: str, words: str, status: bytes = b"400 Bad Request") -> bytes:
    """A refusal in the protocol that the path belongs to."""
    kind = {"type": "invalid_request_error", "message": words}
    body: Any = {"type": "error", "error": kind}
    if path.endswith("generateContent"):
        body = {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}
    if path.endswith(("/converse", "/invoke")):
        body = {"message": words}
    return sized(json.dumps(body).encode(), b"Content-Type: application/json", status=status)


@pytest.mark.parametrize(("spec", "refused", "too_long", "refusals"), FAMILIES, ids=[f[0] for f in FAMILIES])
def test_a_family_works_without_a_hand_on_settings(
    spec: str, refused: dict[str, str], too_long: str | None, refusals: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The first call is cut off at 2000 tokens where the family takes a limit; its second and the next are answered."""
    counts = {"refused": 0, "answered": 0}

    def send(request: bytes) -> list[bytes]:
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.decode().split()[1].partition("?")[0]
        words = next((words for name, words in refused.items() if f'"{name}"'.encode() in body), None)
        limit = re.search(rb'"max(?:_completion)?_?(?:output|Output)?_?[tT]okens": ?(\d+)', body)
        if words is None and too_long and limit and int(limit[1]) > 4096:
            words = too_long.format(int(limit[1]))
        counts["refused" if words else "answered"] += 1
        if words:
            return [error(path, words)]
        finish = "length" if too_long and limit and int(limit[1]) < 4096 and counts["answered"] == 1 else "stop"
        return [sized(json.dumps(completion(path, finish)).encode(), b"Content-Type: application/json")]

    has_version = spec.partition("/")[0] not in ("azure", "bedrock", "gemini")
    with HostileServer(send) as server:
        url, options = server.url if has_version else server.origin, LMOptions(retries=0, max_outage=0.01)
        replies = ask(make_lm(spec, api_base=url, options=options), QUESTION, OTHER)
        assert [reply.text for reply in replies] == ["Four.", "Four."]
    assert counts == {"refused": refusals, "answered": 3 if too_long else 2}
    notes = [record.message for record in caplog.records if record.name.startswith("debate_judge")]
    assert all(any(name.replace("_", "-") in note for note in notes) for name in refused if refusals)
