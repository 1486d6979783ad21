"""Evidence from the web, by a local stand-in of the provider."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.hallucination.evidence import SNIPPETS, SearchError, Serper
from debate_judge.programs.judge import Unscored
from tests.fakes import only, section
from tests.programs.hallucination_talks import BARE, ITEM, checker, judge, run

pytestmark = pytest.mark.integration


class Provider:
    """A stand-in for serper.dev that answers by `replies` (status, headers, body) and keeps what it was asked."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, str], object]] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                provider.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                provider.keys.append(self.headers["X-API-KEY"])
                assert self.path == "/search"
                status, headers, body = provider.replies.pop(0) if provider.replies else (200, {}, provider.found())
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def found(self) -> dict[str, Any]:
        query = self.asked[-1]["q"]
        return {"organic": [{"title": "t", "snippet": f"{query} {n}"} for n in (1, 2)]}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    fake = Provider()
    thread = threading.Thread(target=fake.server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("SERPER_API_KEY", "secret-key")
    monkeypatch.setenv("SERPER_API_BASE", fake.url)
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join()


def test_a_claim_without_knowledge_is_looked_up_on_the_web(provider: Provider) -> None:
    lm = checker()
    verdict = run(lm, only(judge(0, search="serper").judge([BARE])))
    assert sorted(asked["q"] for asked in provider.asked) == ["police appeal", "robbery city"]
    assert {asked["num"] for asked in provider.asked} == {SNIPPETS}
    assert provider.keys == ["secret-key"] * 2
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

    first = run(lm, both())
    assert run(lm, both()) == first
    assert len(provider.asked) == 2


def test_given_knowledge_is_not_looked_up(provider: Provider) -> None:
    run(checker(), only(judge(0, search="serper").judge([ITEM])))
    assert provider.asked == []


def test_direct_answers_and_facts_come_before_pages(provider: Provider) -> None:
    body = {
        "answerBox": {"answer": "Lima"},
        "knowledgeGraph": {"description": "Capital of Peru", "attributes": {"Founded": "1535"}},
        "organic": [{"snippet": "A page. "}, {"title": "none"}, {"snippet": "Lima"}],
    }
    provider.replies = [(200, {}, body)]
    found = asyncio.run(Serper().snippets("q", 10))
    assert found == ["Lima", "Capital of Peru", "Founded: 1535", "A page."]


def test_a_provider_that_is_busy_is_asked_again(provider: Provider) -> None:
    provider.replies = [(429, {"Retry-After": "0"}, ""), (503, {}, "")]
    assert asyncio.run(Serper(pause=0.0).snippets("q", 1)) == ["q 1"]
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("replies", "asked", "words"),
    [
        ([(503, {}, "")] * 3, 3, "HTTP 503"),
        ([(400, {}, "")], 1, "HTTP 400"),
        ([(200, {}, "<html>")], 1, "usual form"),
        ([(200, {}, [])], 1, "usual form"),
    ],
)
def test_a_search_that_fails_says_why(
    provider: Provider, replies: list[tuple[int, dict[str, str], object]], asked: int, words: str
) -> None:
    provider.replies = list(replies)
    with pytest.raises(SearchError, match=words):
        asyncio.run(Serper(pause=0.0).snippets("q", 1))
    assert len(provider.asked) == asked


def test_a_search_that_fails_leaves_the_item_unscored(provider: Provider) -> None:
    provider.replies = [(400, {}, "")] * 2
    found = run(checker(), only(judge(0, search="serper").judge([BARE])))
    assert isinstance(found, Unscored)
    assert found.reason == "search error"
    assert found.detail == "evidence, round 0: claim 1: the web search failed (HTTP 400)"
    assert found.calls == 1


def test_a_refused_key_ends_the_run_and_is_not_shown(provider: Provider) -> None:
    provider.replies = [(403, {}, "bad key secret-key")]
    with pytest.raises(InputError, match="refuses the key") as caught:
        asyncio.run(Serper().snippets("q", 1))
    assert "secret-key" not in str(caught.value)
    assert len(provider.asked) == 1
