"""From responses to claims and their evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from debate_judge.data.schema import Task
from debate_judge.data.sets.factuality import CLAIMS
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.programs.hallucination.baselines import HallucinationCheck
from debate_judge.programs.hallucination.evidence import (
    ANSWER_NOTE,
    MAX_SNIPPETS,
    MAX_WHOLE_KNOWLEDGE,
    most_similar,
    parse_claims,
    response_type_of,
    sentences,
)
from debate_judge.programs.hallucination.judge import MAX_CLAIMS, MAX_SHORT_ANSWER, Hallucination
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import Unreadable
from tests.fakes import ScriptedLM, debater, hold, only, scripted_lm, section
from tests.programs.hallucination_scripts import ARTICLE, ASPECT, BARE, checker, judge

QA = Task("questions", "question", "answer", (ASPECT,))
ITEM = Item("g", "c", QA, ASPECT, "Who was he?", "He was a king. He died in 1066.", "Harold was king.")
LONG = replace(ITEM, text="word " * (MAX_SHORT_ANSWER + 1))

LISTS: list[tuple[str, str, tuple[str, ...] | str]] = [
    ("lines", "Ann won.\n\nBob  lost.", ("Ann won.", "Bob lost.")),
    ("numbers", "1. Ann won.\n2) Bob lost.\n(3) Cy slept.", ("Ann won.", "Bob lost.", "Cy slept.")),
    ("bullets", "- Ann won.\n* Bob lost.\n• Cy slept.", ("Ann won.", "Bob lost.", "Cy slept.")),
    ("a number that is part of the claim", "Ann won.\n3. FC lost.", ("Ann won.", "3. FC lost.")),
    ("a year", "1066 was a year.", ("1066 was a year.",)),
    ("json", '["Ann won.", {"claim": "Bob lost."}]', ("Ann won.", "Bob lost.")),
    ("twice", "Ann won.\nAnn won.", ("Ann won.",)),
    ("none", "**NONE.**", ()),
    ("no claims", "No claims.", ()),
    ("none as a word", "None of them won.", ("None of them won.",)),
    ("empty", "\n", "no claims were given"),
    ("broken json", '["Ann won."', "JSON list"),
    ("json of numbers", "[1, 2]", "JSON list"),
    ("too many", "a\nb\nc\nd", "there were 4 claims; give at most 3"),
]


@pytest.mark.parametrize(("name", "text", "expected"), LISTS, ids=[row[0] for row in LISTS])
def test_lists_of_claims_are_read_or_refused(name: str, text: str, expected: tuple[str, ...] | str) -> None:
    found = parse_claims(text, 3)
    if isinstance(found, Unreadable):
        assert isinstance(expected, str)
        assert expected in found.problem
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("task", "form"),
    [
        (SUMMARIZATION, "document"),
        (DIALOGUE, "dialogue"),
        (QA, "answer"),
        (replace(QA, source_label="Chat"), "dialogue"),
        (CLAIMS, "claim"),
    ],
)
def test_the_form_of_a_response_is_read_off_its_source(task: Task, form: str) -> None:
    assert response_type_of(task) == form


def asked(item: Item, lm: ScriptedLM) -> Any:
    return hold(lm, only(Hallucination(0).judge([item])))


def factual(claims: str) -> ScriptedLM:
    return scripted_lm(debater(claims=claims, factuality="True", severity="0"))


def test_a_short_answer_is_joined_with_its_question() -> None:
    lm = factual("never asked")
    asked(replace(ITEM, text=" ".join(["word"] * MAX_SHORT_ANSWER)), lm)
    assert [section(prompt, "claim")[:16] for prompt in lm.prompts] == ["Who was he? word"]


def test_a_claim_is_judged_without_the_prompt_of_its_text() -> None:
    lm = factual("never asked")
    asked(Item("g", "c", CLAIMS, CLAIMS.aspects[0], "Who was he?", "Harold died in 1066."), lm)
    assert [section(prompt, "claim") for prompt in lm.prompts] == ["Harold died in 1066."]
    assert "Who was he?" not in lm.prompts[0]


def test_the_agents_are_told_which_answer_is_checked() -> None:
    joined, apart, single = factual("never asked"), factual("Harold was a king."), factual("never asked")
    asked(ITEM, joined)
    asked(LONG, apart)
    hold(single, only(HallucinationCheck().judge([ITEM])))
    # Premises of the question and evasive answers have a rule where question and answer are read together; a claim
    # that was extracted from the answer is judged without the question.
    told = [section(lm.prompts[-1], "task") for lm in (joined, single, apart)]
    assert [ANSWER_NOTE in text for text in told] == [True, True, False]
    assert "a question with its answer" in told[0]
    assert "kind of text: answer" in told[2]
    # Only answers have a question.
    summary = factual("Ann won.")
    asked(Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], "A long article.", "Ann won."), summary)
    assert not any("question" in section(prompt, "task") for prompt in summary.prompts)


def test_a_list_that_is_too_long_is_asked_for_again_and_never_cut() -> None:
    lm = factual("\n".join(f"claim {n}" for n in range(MAX_CLAIMS + 1)))
    found = asked(LONG, lm)
    assert f"give at most {MAX_CLAIMS}" in found.detail
    assert [section(prompt, "correction") != "" for prompt in lm.prompts] == [False, True]


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
    found = most_similar(PASSAGES, ("who appealed for a witness", "the robbery in Glasgow"), 2)
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
    assert most_similar(text, ("moved to Oakham",), 1) == text[1:3]
    assert most_similar(text, ("was it in 1931?",), 1) == text[1:4]
    # A sentence that names its subject, or only begins like a pronoun, is not joined.
    assert most_similar(text, ("bakery",), 1) == (text[4],)
    assert most_similar(text, ("thistles",), 1) == (text[5],)
    # There is nothing before the first, and the search for a name ends after a few sentences.
    assert most_similar(("He won.", "Rain fell.", "Snow fell."), ("won",), 1) == ("He won.",)
    many = ("Ann won.", *(f"She saw {thing}." for thing in ("cats", "dogs", "owls", "newts", "bees")))
    assert most_similar(many, ("bees",), 1) == many[2:]


def test_long_knowledge_is_searched_by_two_queries() -> None:
    lm = checker()
    item = Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], ARTICLE, "Ann won.")
    verdict = hold(lm, only(judge(0).judge([item])))
    _, querying, checking = lm.prompts
    assert section(querying, "claim") == "Ann won."
    shown = section(checking, "evidence").splitlines()
    assert len(shown) == MAX_SNIPPETS
    assert shown[-1] == "Robbers struck in the city."
    # Claims, queries, verification; and the transcript tells what was looked for and found.
    assert verdict.calls == 3
    turn = verdict.transcript.turns[1]
    assert (turn.role, turn.calls) == ("evidence", 1)
    assert turn.text.startswith("claim 1: ranked for 'robbery city' and 'police appeal'\n")


@pytest.mark.parametrize(("length", "calls"), [(MAX_WHOLE_KNOWLEDGE, 2), (MAX_WHOLE_KNOWLEDGE + 1, 3)])
def test_knowledge_up_to_the_limit_is_used_whole(length: int, calls: int) -> None:
    lm, article = checker(), ARTICLE[-length:].lstrip().rjust(length, "x")
    item = Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], article, "Ann won.")
    assert hold(lm, only(judge(0).judge([item]))).calls == calls
    assert (section(lm.prompts[-1], "evidence") == article) == (calls == 2)


def test_without_knowledge_and_search_the_agents_are_told_so() -> None:
    lm = checker()
    verdict = hold(lm, only(judge(0).judge([BARE])))
    assert section(lm.prompts[0], "evidence") == ""
    assert "No evidence" in section(lm.prompts[0], "task")
    assert verdict.transcript.turns[1].text == "claim 1: nothing\n"
