"""Evidence for claims: as given, or ranked."""

from __future__ import annotations

import pytest

from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.programs.hallucination.evidence import SNIPPETS, WHOLE, best, sentences
from debate_judge.programs.judge import Item
from tests.fakes import only, section
from tests.programs.hallucination_talks import ARTICLE, BARE, checker, judge, run


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
    found = best(PASSAGES, ("who appealed for a witness", "the robbery in Glasgow"), 2)
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
    assert best(text, ("moved to Oakham",), 1) == text[1:3]
    assert best(text, ("was it in 1931?",), 1) == text[1:4]
    # A sentence that names its subject, or only begins like a pronoun, stands by itself.
    assert best(text, ("bakery",), 1) == (text[4],)
    assert best(text, ("thistles",), 1) == (text[5],)
    # There is nothing before the first, and the search for a name ends after a few sentences.
    assert best(("He won.", "Rain fell.", "Snow fell."), ("won",), 1) == ("He won.",)
    many = ("Ann won.", *(f"She saw {thing}." for thing in ("cats", "dogs", "owls", "newts", "bees")))
    assert best(many, ("bees",), 1) == many[2:]


def test_long_knowledge_is_searched_by_two_queries() -> None:
    lm = checker()
    item = Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], ARTICLE, "Ann won.")
    verdict = run(lm, only(judge(0).judge([item])))
    _, querying, checking = lm.prompts
    assert section(querying, "claim") == "Ann won."
    shown = section(checking, "evidence").splitlines()
    assert len(shown) == SNIPPETS
    assert shown[-1] == "Robbers struck in the city."
    # Claims, queries, verification; and the transcript tells what was looked for and found.
    assert verdict.calls == 3
    turn = verdict.transcript.turns[1]
    assert (turn.role, turn.calls) == ("evidence", 1)
    assert turn.text.startswith("claim 1: ranked for 'robbery city' and 'police appeal'\n")


@pytest.mark.parametrize(("length", "calls"), [(WHOLE, 2), (WHOLE + 1, 3)])
def test_knowledge_up_to_the_limit_is_evidence_as_it_stands(length: int, calls: int) -> None:
    lm, article = checker(), ARTICLE[-length:].lstrip().rjust(length, "x")
    item = Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspects[1], article, "Ann won.")
    assert run(lm, only(judge(0).judge([item]))).calls == calls
    assert (section(lm.prompts[-1], "evidence") == article) == (calls == 2)


def test_without_knowledge_and_search_the_agents_are_told_so() -> None:
    lm = checker()
    verdict = run(lm, only(judge(0).judge([BARE])))
    assert section(lm.prompts[0], "evidence") == ""
    assert "No evidence could be had" in section(lm.prompts[0], "task")
    assert verdict.transcript.turns[1].text == "claim 1: nothing\n"
