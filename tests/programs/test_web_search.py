"""Evidence from web search, with a local stand-in of the provider."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.hallucination.evidence import MAX_SNIPPETS, SearchError, Serper
from tests.fakes import hold, only, section
from tests.hostile_server import HostileServer, sized
from tests.programs.hallucination_scripts import BARE, ITEM, checker, judge

pytestmark = pytest.mark.integration


class Provider:
    """A stand-in for serper.dev that answers by `replies` (status, header, body) and keeps what it was asked."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, bytes, object]] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: list[bytes] = []

    def __call__(self, request: bytes) -> list[bytes]:
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /search ")
        self.asked.append(json.loads(body))
        self.keys += re.findall(rb"(?i)^x-api-key: (.*?)\r?$", head, re.MULTILINE)
        found = {"organic": [{"title": "t", "snippet": f"{self.asked[-1]['q']} {n}"} for n in (1, 2)]}
        status, header, said = self.replies.pop(0) if self.replies else (200, b"X: 1", found)
        text = said if isinstance(said, str) else json.dumps(said)
        return [sized(text.encode(), header, status=b"%d Said" % status)]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("SERPER_API_KEY", "secret-key")
    with HostileServer(fake := Provider()) as server:
        monkeypatch.setenv("SERPER_API_BASE", server.origin)
        yield fake


def test_a_claim_without_knowledge_is_looked_up_on_the_web(provider: Provider) -> None:
    lm = checker()
    verdict = hold(lm, only(judge(0, search="serper").judge([BARE])))
    assert sorted(asked["q"] for asked in provider.asked) == ["police appeal", "robbery city"]
    assert {asked["num"] for asked in provider.asked} == {MAX_SNIPPETS}
    assert provider.keys == [b"secret-key"] * 2
    prompt = lm.prompts[-1]
    assert "found on the web" in section(prompt, "task")
    lines = section(prompt, "evidence").splitlines()
    # By turns over both queries.
    assert [line[-1] for line in lines] == ["1", "1", "2", "2"]
    assert verdict.calls == 2
    assert "secret-key" not in "".join(turn.text for turn in verdict.transcript.turns) + "".join(lm.prompts)


def test_the_same_search_is_made_once_for_a_store(provider: Provider) -> None:
    lm = checker()

    async def both() -> list[object]:
        return await asyncio.gather(*(only(judge(0, search="serper").judge([BARE])) for _ in range(2)))

    first = hold(lm, both())
    assert hold(lm, both()) == first
    assert len(provider.asked) == 2


def test_given_knowledge_is_not_looked_up(provider: Provider) -> None:
    hold(checker(), only(judge(0, search="serper").judge([ITEM])))
    assert provider.asked == []


def test_direct_answers_and_facts_come_before_pages(provider: Provider) -> None:
    body = {
        "answerBox": {"answer": "Lima"},
        "knowledgeGraph": {"description": "Capital of Peru", "attributes": {"Founded": "1535"}},
        "organic": [{"snippet": "A page. "}, {"title": "none"}, {"snippet": "Lima"}],
    }
    provider.replies = [(200, b"X: 1", body)]
    found = asyncio.run(Serper().snippets("q", 10))
    assert found == ["Lima", "Capital of Peru", "Founded: 1535", "A page."]


def test_a_busy_provider_is_retried(provider: Provider) -> None:
    provider.replies = [(429, b"Retry-After: 0", ""), (503, b"X: 1", "")]
    assert asyncio.run(Serper(pause=0.0).snippets("q", 1)) == ["q 1"]
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("replies", "asked", "words"),
    [
        ([(503, b"X: 1", "")] * 3, 3, "HTTP 503"),
        ([(400, b"X: 1", "")], 1, "HTTP 400"),
        ([(200, b"X: 1", "<html>")], 1, "usual form"),
        ([(200, b"X: 1", [])], 1, "usual form"),
    ],
)
def test_the_error_of_a_failed_search_names_the_reason(
    provider: Provider, replies: list[tuple[int, bytes, object]], asked: int, words: str
) -> None:
    provider.replies = list(replies)
    with pytest.raises(SearchError, match=words):
        asyncio.run(Serper(pause=0.0).snippets("q", 1))
    assert len(provider.asked) == asked


def test_a_search_that_fails_leaves_the_item_unscored(provider: Provider) -> None:
    provider.replies = [(400, b"X: 1", "")] * 2
    found = hold(checker(), only(judge(0, search="serper").judge([BARE])))
    assert found.reason == "search error"
    assert "(HTTP 400)" in found.detail
    assert found.calls == 1


def test_a_refused_key_ends_the_run_and_is_not_shown(provider: Provider) -> None:
    provider.replies = [(403, b"X: 1", "bad key secret-key")]
    with pytest.raises(InputError, match="refuses the key") as caught:
        asyncio.run(Serper().snippets("q", 1))
    assert "secret-key" not in str(caught.value)
    assert len(provider.asked) == 1
