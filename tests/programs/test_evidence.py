"""Evidence for claims: as given, ranked, or from the web by a local stand-in of the provider."""

from __future__ import annotations

import asyncio
import copy
import http.server
import importlib.util
import json
import threading
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

import dspy
import numpy as np
import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.programs.hallucination.evidence import Dense, TfIdf, best, make_ranker, sentences
from debate_judge.programs.hallucination.judge import Hallucination, Options
from debate_judge.programs.hallucination.web_search import SearchError, Serper, make_search
from debate_judge.programs.judge import DebateConfig, Item, Unscored
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("factuality", "Is all of it factual?", Scale(0, 1))
QA = Task("questions", "question", "answer", (ASPECT,))
BARE = Item("g", "c", QA, ASPECT, "Which city?", "Lima.")


def run(lm: ScriptedLM, work: Awaitable[Any]) -> Any:
    async def under_lm() -> Any:
        with dspy.context(lm=lm, trace=None):
            return await work

    return asyncio.run(under_lm())


def checker() -> ScriptedLM:
    fields = {"query_1": "robbery city", "query_2": "police appeal", "claims": "Ann won.", "factuality": "True"}
    return scripted_lm(debater(severity="0", **fields))


def judge(**options: Any) -> Hallucination:
    return Hallucination(Options(**options), DebateConfig(rounds=0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rained. We went home! Why?", ("It rained.", "We went home!", "Why?")),
        ("In the 19th century.First for Women is new.", ("In the 19th century.", "First for Women is new.")),
        ("The U.S.Army won.", ("The U.S.Army won.",)),
        ('She said "no." He went (home.) So?', ('She said "no."', "He went (home.)", "So?")),
        ("One line\n\nanother", ("One line", "another")),
        ("It grew by 2.5 per cent.", ("It grew by 2.5 per cent.",)),
        ("Twice. Twice. Once.", ("Twice.", "Once.")),
        ("  \n", ()),
    ],
)
def test_texts_are_split_into_sentences(text: str, expected: tuple[str, ...]) -> None:
    assert sentences(text) == expected


PASSAGES = (
    "The weather was fine in May.",
    "Robbers took the money in Glasgow.",
    "A cat sat on a mat.",
    "Officers appealed for witnesses.",
)


def test_each_query_finds_its_sentence_and_the_order_of_the_text_stays() -> None:
    found = best(PASSAGES, ("who appealed for a witness", "the robbery in Glasgow"), 2, TfIdf())
    assert found == (PASSAGES[1], PASSAGES[3])


def test_a_sentence_that_begins_with_a_pronoun_comes_with_the_one_that_names_its_subject() -> None:
    text = (
        "Rain fell in Elm.",
        "Ann Ash was born in Elm.",
        "She moved to Oakham.",
        '"It was in 1931," she said.',
        "Then she opened a bakery.",
        "Thistles grow in Elm.",
    )
    assert best(text, ("moved to Oakham",), 1, TfIdf()) == text[1:3]
    assert best(text, ("was it in 1931?",), 1, TfIdf()) == text[1:4]
    # A sentence that names its subject, or only begins like a pronoun, stands by itself.
    assert best(text, ("bakery",), 1, TfIdf()) == (text[4],)
    assert best(text, ("thistles",), 1, TfIdf()) == (text[5],)
    # There is nothing before the first, and the search for a name ends after a few sentences.
    assert best(("He won.", "Rain fell.", "Snow fell."), ("won",), 1, TfIdf()) == ("He won.",)
    many = ("Ann won.", *(f"She saw {thing}." for thing in ("cats", "dogs", "owls", "newts", "bees")))
    assert best(many, ("bees",), 1, TfIdf()) == many[2:]


def test_passages_that_no_query_touches_are_taken_from_the_top() -> None:
    assert best(PASSAGES, ("zzz",), 2, TfIdf()) == PASSAGES[:2]


def test_few_passages_need_no_ranking() -> None:
    class Never:
        def similarities(self, passages: tuple[str, ...], queries: Sequence[str]) -> Any:
            raise AssertionError("nothing is to be ranked")

    assert best(PASSAGES, ("x",), 4, Never()) == PASSAGES


def test_a_dense_ranker_compares_embeddings_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = {"q": (1.0, 0.0), "a": (0.6, 0.8), "b": (1.0, 0.0), "c": (0.0, 1.0)}

    class Encoder:
        def encode(self, texts: list[str], normalize_embeddings: bool) -> Any:
            assert normalize_embeddings
            return np.array([vectors[text] for text in texts])

    ranker = Dense("some/model")
    monkeypatch.setattr(ranker, "_load", Encoder)
    assert ranker.similarities(("a", "b", "c"), ("q",)).tolist() == [[0.6, 1.0, 0.0]]
    assert best(("a", "b", "c"), ("q",), 1, ranker) == ("b",)
    assert copy.deepcopy(ranker) is ranker


def test_a_dense_ranker_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="sentence-transformers"):
        make_ranker("dense:some/model")


@pytest.mark.parametrize("name", ["bm26", "dense", "dense:"])
def test_an_unknown_ranker_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="unknown ranker"):
        make_ranker(name)


ARTICLE = " ".join(f"Sentence number {n} says nothing of note." for n in range(30)) + " Robbers struck in the city."


def test_long_knowledge_is_searched_by_two_queries() -> None:
    lm = checker()
    item = Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], ARTICLE, "Ann won.")
    verdict = run(lm, judge(whole=100, snippets=2).judge(item))
    _, querying, checking = lm.prompts
    assert section(querying, "claim") == "Ann won."
    shown = section(checking, "evidence").splitlines()
    assert len(shown) == 2
    assert shown[-1] == "Robbers struck in the city."
    # Claims, queries, verification; and the transcript tells what was looked for and found.
    assert verdict.calls == 3
    turn = verdict.transcript.turns[1]
    assert (turn.role, turn.calls) == ("evidence", 1)
    assert turn.text.startswith("claim 1: ranked for 'robbery city' and 'police appeal'\n")


@pytest.mark.parametrize(("whole", "calls"), [(len(ARTICLE), 2), (len(ARTICLE) - 1, 3)])
def test_knowledge_up_to_the_limit_is_evidence_as_it_stands(whole: int, calls: int) -> None:
    lm = checker()
    item = Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], ARTICLE, "Ann won.")
    assert run(lm, judge(whole=whole).judge(item)).calls == calls
    assert (section(lm.prompts[-1], "evidence") == ARTICLE) == (calls == 2)


def test_without_knowledge_and_search_the_agents_are_told_so() -> None:
    lm = checker()
    verdict = run(lm, judge().judge(BARE))
    assert section(lm.prompts[0], "evidence") == ""
    assert "No evidence could be had" in section(lm.prompts[0], "task")
    assert verdict.transcript.turns[1].text == "claim 1: nothing\n"


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
    verdict = run(lm, judge(search="serper", snippets=3).judge(BARE))
    assert sorted(asked["q"] for asked in provider.asked) == ["police appeal", "robbery city"]
    assert {asked["num"] for asked in provider.asked} == {3}
    assert provider.keys == ["secret-key"] * 2
    prompt = lm.prompts[-1]
    assert "found on the web" in section(prompt, "task")
    lines = section(prompt, "evidence").splitlines()
    # By turns over both queries, three in all.
    assert len(lines) == 3
    assert [line[-1] for line in lines] == ["1", "1", "2"]
    assert verdict.calls == 2
    assert "secret-key" not in "".join(turn.text for turn in verdict.transcript.turns) + "".join(lm.prompts)


def test_the_same_search_is_made_once_for_a_store(provider: Provider) -> None:
    lm = checker()
    first = run(lm, judge(search="serper").judge(BARE))
    again = run(lm, judge(search="serper").judge(BARE))
    assert first == again
    assert len(provider.asked) == 2


def test_given_knowledge_is_not_looked_up(provider: Provider) -> None:
    item = Item("g", "c", QA, ASPECT, "Which city?", "Lima.", "Lima is the capital.")
    run(checker(), judge(search="serper").judge(item))
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
    found = run(checker(), judge(search="serper").judge(BARE))
    assert isinstance(found, Unscored)
    assert found.detail == "evidence, round 0: claim 1: the web search failed (HTTP 400)"
    assert found.calls == 1


def test_a_refused_key_ends_the_run(provider: Provider) -> None:
    provider.replies = [(403, {}, "bad key secret-key")] * 2
    with pytest.raises(InputError, match="refuses the key") as caught:
        asyncio.run(Serper().snippets("q", 1))
    assert "secret-key" not in str(caught.value)


def test_nobody_at_the_address_is_a_failed_search(monkeypatch: pytest.MonkeyPatch) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    port = server.server_port
    server.server_close()
    with pytest.raises(SearchError, match="ClientConnectorError"):
        asyncio.run(Serper("k", f"http://127.0.0.1:{port}", pause=0.0).snippets("q", 1))


def test_a_missing_key_is_told_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(InputError, match="SERPER_API_KEY"):
        make_search("serper")
    assert make_search("none") is None
