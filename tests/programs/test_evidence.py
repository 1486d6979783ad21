"""From responses to claims and their evidence: in what is given, and on the web, with a stand-in of the provider."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.sets.factuality import CLAIMS
from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.programs.hallucination.baselines import HallucinationCheck
from debate_judge.programs.hallucination.evidence import (
    ANSWER_NOTE,
    MAX_SNIPPETS,
    MAX_WHOLE_KNOWLEDGE,
    SearchError,
    Serper,
    most_similar,
    parse_claims,
    sentences,
)
from debate_judge.programs.hallucination.judge import MAX_CLAIMS, MAX_SHORT_ANSWER, Hallucination
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import Unreadable
from tests.fakes import ScriptedLM, debater, hold, only, scripted_lm, section
from tests.hostile_server import HostileServer, sized
from tests.programs.test_hallucination import ASPECT, BARE, ITEM

ARTICLE = " ".join(f"Sentence number {n} says nothing of note." for n in range(45)) + " Robbers struck in the city."


def factual(claims: str = "Ann won.") -> ScriptedLM:
    queries = {"query_1": "robbery city", "query_2": "police appeal"}
    return scripted_lm(debater(claims=claims, factuality="True", severity="0", **queries))


ANSWER = Item("g", "c", BARE.task, ASPECT, "Who was he?", "He was a king. He died in 1066.", "Harold was king.")
LONG = replace(ANSWER, text="word " * (MAX_SHORT_ANSWER + 1))
LISTS: list[tuple[str, tuple[str, ...] | str]] = [
    ("Ann won.\n\nBob  lost.", ("Ann won.", "Bob lost.")),
    ("1. Ann won.\n2) Bob lost.\n(3) Cy slept.", ("Ann won.", "Bob lost.", "Cy slept.")),
    ("- Ann won.\n* Bob lost.\n• Cy slept.", ("Ann won.", "Bob lost.", "Cy slept.")),
    # A number that is part of the claim.
    ("Ann won.\n3. FC lost.\n1066 was a year.", ("Ann won.", "3. FC lost.", "1066 was a year.")),
    ('["Ann won.", {"claim": "Bob lost."}]', ("Ann won.", "Bob lost.")),
    ("**NONE.**", ()),
    ("None of them won.", ("None of them won.",)),
    ("\n", "no claims were given"),
    ('["Ann won."', "JSON list"),
    ("[1, 2]", "JSON list"),
    ("a\nb\nc\nd", "at most 3"),
]


@pytest.mark.parametrize(("text", "expected"), LISTS)
def test_lists_of_claims_are_read_or_refused(text: str, expected: tuple[str, ...] | str) -> None:
    claims = parse_claims(text, 3)
    assert expected in claims.problem if isinstance(claims, Unreadable) else claims == expected


def judged(item: Item, lm: ScriptedLM, **options: Any) -> Any:
    return hold(lm, only(Hallucination(0, **options).judge([item])))


def test_a_short_answer_is_joined_with_its_question_and_a_claim_is_judged_without_one() -> None:
    short, claim = factual("never asked"), factual("never asked")
    judged(replace(ANSWER, text=" ".join(["word"] * MAX_SHORT_ANSWER)), short)
    assert [section(prompt, "claim")[:16] for prompt in short.prompts] == ["Who was he? word"]
    judged(Item("g", "c", CLAIMS, CLAIMS.aspects[0], "Who was he?", "Harold died in 1066."), claim)
    assert [section(prompt, "claim") for prompt in claim.prompts] == ["Harold died in 1066."]
    assert "Who was he?" not in claim.prompts[0]


def test_the_agents_are_told_which_answer_is_checked() -> None:
    joined, apart, single = factual("never asked"), factual("Harold was a king."), factual("never asked")
    judged(ANSWER, joined)
    judged(LONG, apart)
    hold(single, only(HallucinationCheck().judge([ANSWER])))
    # Premises of the question and evasive answers have a rule where question and answer are read together; a claim
    # that was extracted from the answer is judged without the question.
    notes = [ANSWER_NOTE in section(lm.prompts[-1], "task") for lm in (joined, single, apart)]
    assert notes == [True, True, False]
    # Only answers have a question.
    summary = factual("Ann won.")
    judged(Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], "A long article.", "Ann won."), summary)
    assert not any("question" in section(prompt, "task") for prompt in summary.prompts)


def test_a_list_that_is_too_long_is_asked_for_again_and_never_cut() -> None:
    lm = factual("\n".join(f"claim {n}" for n in range(MAX_CLAIMS + 1)))
    assert f"give at most {MAX_CLAIMS}" in judged(LONG, lm).detail
    assert [section(prompt, "correction") != "" for prompt in lm.prompts] == [False, True]


def test_texts_are_split_into_sentences() -> None:
    text = 'In the 19th century.First for Women. The U.S.Army grew by 2.5 per cent.\n\nShe said "no." Twice. Twice.'
    parts = 'In the 19th century. | First for Women. | The U.S.Army grew by 2.5 per cent. | She said "no." | Twice.'
    assert " | ".join(sentences(text)) == parts


def test_a_sentence_that_begins_with_a_pronoun_comes_with_the_one_that_names_its_subject() -> None:
    text = ("Rain fell.", "Ann Ash was born in Elm.", "She moved to Oakham.", '"In 1931," she said.', "Thistles grow.")
    assert most_similar(text, ("moved to Oakham",), 1) == text[1:3]
    assert most_similar(text, ("was it in 1931?",), 1) == text[1:4]
    # A sentence that only begins like a pronoun is not joined; there is nothing before the first.
    assert most_similar(text, ("thistles",), 1) == text[4:]
    assert most_similar(("He won.", "Rain fell.", "Snow fell."), ("won",), 1) == ("He won.",)
    # The search for a name ends after a few sentences.
    many = ("Ann won.", *(f"She saw {thing}." for thing in ("cats", "dogs", "owls", "newts", "bees")))
    assert most_similar(many, ("bees",), 1) == many[2:]


@pytest.mark.parametrize("length", [MAX_WHOLE_KNOWLEDGE, MAX_WHOLE_KNOWLEDGE + 1])
def test_knowledge_up_to_the_limit_is_used_whole_and_longer_is_searched_by_two_queries(length: int) -> None:
    lm, article = factual(), ARTICLE[-length:].lstrip().rjust(length, "x")
    verdict = judged(Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], article, "Ann won."), lm)
    shown = section(lm.prompts[-1], "evidence")
    if length == MAX_WHOLE_KNOWLEDGE:
        assert (shown, verdict.calls) == (article, 2)
        return
    # Claims, queries, verification; and the transcript tells what was looked for and found.
    assert (len(shown.splitlines()), shown.splitlines()[-1]) == (MAX_SNIPPETS, "Robbers struck in the city.")
    assert (verdict.calls, section(lm.prompts[1], "claim")) == (3, "Ann won.")
    turn = verdict.transcript.turns[1]
    assert (turn.role, turn.calls) == ("evidence", 1)
    assert turn.text.startswith("claim 1: ranked for 'robbery city' and 'police appeal'\n")


def test_without_knowledge_and_search_the_agents_are_told_so() -> None:
    lm = factual()
    verdict = judged(BARE, lm)
    assert section(lm.prompts[0], "evidence") == ""
    assert "No evidence" in section(lm.prompts[0], "task")
    assert verdict.transcript.turns[1].text == "claim 1: nothing\n"


class Provider:
    """A stand-in for serper.dev that answers by `replies` (status, header, body) and keeps the requests."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, bytes, object]] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[bytes] = []

    def __call__(self, request: bytes) -> list[bytes]:
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /search ")
        self.requests.append(json.loads(body))
        self.keys += re.findall(rb"(?i)^x-api-key: (.*?)\r?$", head, re.MULTILINE)
        body = {"organic": [{"title": "t", "snippet": f"{self.requests[-1]['q']} {n}"} for n in (1, 2)]}
        status, header, content = self.replies.pop(0) if self.replies else (200, b"X: 1", body)
        text = content if isinstance(content, str) else json.dumps(content)
        return [sized(text.encode(), header, status=b"%d Said" % status)]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("SERPER_API_KEY", "secret-key")
    with HostileServer(fake := Provider()) as server:
        monkeypatch.setenv("SERPER_API_BASE", server.origin)
        yield fake


@pytest.mark.integration
def test_a_claim_without_knowledge_is_looked_up_on_the_web(provider: Provider) -> None:
    lm = factual()
    judged(ITEM, lm, search="serper")
    assert provider.requests == []
    verdict = judged(BARE, lm, search="serper")
    assert sorted(request["q"] for request in provider.requests) == ["police appeal", "robbery city"]
    assert {request["num"] for request in provider.requests} == {MAX_SNIPPETS}
    assert provider.keys == [b"secret-key"] * 2
    prompt = lm.prompts[-1]
    assert "found on the web" in section(prompt, "task")
    # By turns over both queries.
    assert [line[-1] for line in section(prompt, "evidence").splitlines()] == ["1", "1", "2", "2"]
    assert verdict.calls == 2
    assert "secret-key" not in "".join(turn.text for turn in verdict.transcript.turns) + "".join(lm.prompts)


@pytest.mark.integration
def test_the_same_search_is_made_once_for_a_store(provider: Provider) -> None:
    lm = factual()

    async def both() -> list[object]:
        judges = [Hallucination(0, search="serper") for _ in range(2)]
        return await asyncio.gather(*(only(judge.judge([BARE])) for judge in judges))

    first = hold(lm, both())
    assert hold(lm, both()) == first
    assert len(provider.requests) == 2


@pytest.mark.integration
def test_direct_answers_and_facts_come_before_pages_and_a_busy_provider_is_retried(provider: Provider) -> None:
    body = {
        "answerBox": {"answer": "Lima"},
        "knowledgeGraph": {"description": "Capital of Peru", "attributes": {"Founded": "1535"}},
        "organic": [{"snippet": "A page. "}, {"title": "none"}, {"snippet": "Lima"}],
    }
    provider.replies = [(429, b"Retry-After: 0", ""), (503, b"X: 1", ""), (200, b"X: 1", body)]
    snippets = asyncio.run(Serper(pause=0.0).snippets("q", 10))
    assert snippets == ["Lima", "Capital of Peru", "Founded: 1535", "A page."]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ([(503, b"X: 1", "")] * 3, "HTTP 503"),
        ([(400, b"X: 1", "")], "HTTP 400"),
        ([(200, b"X: 1", "<html>")], "usual form"),
        ([(200, b"X: 1", [])], "usual form"),
    ],
)
def test_a_search_that_fails_names_the_reason_and_leaves_the_item_unscored(
    provider: Provider, replies: list[tuple[int, bytes, object]], words: str
) -> None:
    provider.replies = list(replies)
    with pytest.raises(SearchError, match=words):
        asyncio.run(Serper(pause=0.0).snippets("q", 1))
    assert len(provider.requests) == len(replies)
    provider.replies = [(400, b"X: 1", "")] * 2
    unscored = judged(BARE, factual(), search="serper")
    assert (unscored.reason, unscored.calls) == ("search error", 1)
    provider.replies = [(403, b"X: 1", "bad key secret-key")]
    with pytest.raises(InputError, match="refuses the key") as caught:
        asyncio.run(Serper().snippets("q", 1))
    assert "secret-key" not in str(caught.value)
