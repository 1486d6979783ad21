"""Every defect of the shipped sample is measured again, on the texts alone and by other means than those
that made it; the level found that way must give the shipped ratings.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from tests.sample import build
from tests.sample.defects import DIALOGUE_TABLE, KIND_REPLIES, SHORT_REPLIES, SUMMARY_TABLE, Table
from tests.sample.dialogue_sources import DIALOGUES
from tests.sample.news_sources import NEWS
from tests.sample.texts import flat, sentences

Group = dict[str, Any]

ARTICLES = {article.id: article for article in NEWS}
TALKS = {talk.id: talk for talk in DIALOGUES}
NUMBER = re.compile(r"\d[\d.,]*\d|\d")


def shipped(task: str) -> list[Group]:
    return [json.loads(line) for line in (build.FOLDER / f"{task}.jsonl").read_text().splitlines()]


SUMMARIZATION, DIALOGUE = shipped("summarization"), shipped("dialogue")
BOTH = pytest.mark.parametrize(
    ("groups", "table"), [(SUMMARIZATION, SUMMARY_TABLE), (DIALOGUE, DIALOGUE_TABLE)], ids=["summaries", "replies"]
)


def texts_of(groups: list[Group], defect: str) -> list[tuple[str, str, dict[str, int]]]:
    """Group id, text and ratings of every candidate with exactly this defect."""
    found = [(g["group"], c["text"], c["ratings"]) for g in groups for c in g["candidates"] if c["id"] == defect]
    assert len(found) >= 5, f"{defect} hardly occurs"
    return found


def row(table: Table, defect: str, level: int) -> dict[str, int]:
    return dict(zip(table.aspects, table.rows[defect][level - 1], strict=True))


def test_good_is_the_text_written_by_hand() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "good"):
        assert text == flat(ARTICLES[name].summary)
        assert set(ratings.values()) == {5}
    for name, text, ratings in texts_of(DIALOGUE, "good"):
        assert text == TALKS[name].reply
        assert list(ratings.values()) == [3, 3, 3, 1, 1, 5]


# Defects of summaries


def test_brief_is_the_first_sentence() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "brief"):
        assert [text] == list(sentences(ARTICLES[name].summary)[:1])
        assert ratings == row(SUMMARY_TABLE, "brief", 1)


def test_copied_leads_open_the_article_and_are_complete() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "copied_lead"):
        assert flat(ARTICLES[name].text).startswith(text + " ")
        assert text.endswith((".", '."'))
        assert ratings == row(SUMMARY_TABLE, "copied_lead", {3: 1, 2: 2}[len(sentences(text))])


def test_details_are_later_sentences_of_the_article() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "details"):
        article = sentences(ARTICLES[name].text)
        places = [article.index(line) for line in sentences(text)]
        assert places == sorted(places)
        assert places[0] >= 2
        assert ratings == row(SUMMARY_TABLE, "details", {2: 1, 3: 2}[len(places)])


def test_shuffled_sentences_contradict_the_order() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "shuffled"):
        right = sentences(ARTICLES[name].summary)
        order = [right.index(line) for line in sentences(text)]
        assert sorted(order) == [0, 1, 2]
        turned = sum(a > b for a, b in combinations(order, 2))
        assert ratings == row(SUMMARY_TABLE, "shuffled", {1: 1, 2: 2, 3: 2}[turned])


def test_wrong_numbers_are_not_in_the_article() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "wrong_number"):
        foreign = set(NUMBER.findall(text)) - set(NUMBER.findall(ARTICLES[name].text))
        assert ratings == row(SUMMARY_TABLE, "wrong_number", len(foreign))
        assert NUMBER.sub("#", text) == NUMBER.sub("#", flat(ARTICLES[name].summary))


def test_unsupported_claims_are_added_to_the_good_summary() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "unsupported"):
        added = [line for line in sentences(text) if line not in sentences(ARTICLES[name].summary)]
        assert set(added) <= set(ARTICLES[name].unsupported)
        assert len(sentences(text)) == 3 + len(added)
        assert ratings == row(SUMMARY_TABLE, "unsupported", len(added))


def test_an_off_topic_summary_is_about_another_article() -> None:
    origins: list[str] = []
    for name, text, ratings in texts_of(SUMMARIZATION, "off_topic"):
        foreign = [line for line in sentences(text) if line not in sentences(ARTICLES[name].summary)]
        origin = {a.id for a in NEWS for line in foreign if line in sentences(a.summary)}
        assert len(origin) == 1
        origins += origin
        assert ratings == row(SUMMARY_TABLE, "off_topic", {2: 1, 3: 2}[len(foreign)])
    assert len(set(origins)) == len(origins)


def test_combined_defects_are_both_there() -> None:
    for name, text, ratings in texts_of(SUMMARIZATION, "shuffled+wrong_number"):
        assert set(NUMBER.findall(text)) - set(NUMBER.findall(ARTICLES[name].text))
        assert ratings["coherence"] <= 3
        assert ratings["consistency"] <= 3
    for name, text, ratings in texts_of(SUMMARIZATION, "copied_lead+cut_off"):
        assert flat(ARTICLES[name].text).startswith(text)
        assert text[-1].isalnum()
        assert ratings["fluency"] <= 3
    for name, text, ratings in texts_of(SUMMARIZATION, "repetition+unsupported"):
        assert any(claim in text for claim in ARTICLES[name].unsupported)
        assert max(Counter(sentences(text.replace("Again: ", ""))).values()) == 2
        assert ratings["coherence"] <= 3
        assert ratings["consistency"] <= 3


# Defects of replies


def test_replies_that_stand_in_the_sources() -> None:
    for name, text, ratings in texts_of(DIALOGUE, "ungrounded"):
        assert text == TALKS[name].ungrounded
        assert ratings == row(DIALOGUE_TABLE, "ungrounded", 1)
    for name, text, ratings in texts_of(DIALOGUE, "copied_fact"):
        assert text == TALKS[name].fact
        assert ratings == row(DIALOGUE_TABLE, "copied_fact", 1)
    for name, text, ratings in texts_of(DIALOGUE, "off_topic"):
        assert text in {talk.reply for talk in DIALOGUES if talk.id != name}
        assert ratings == row(DIALOGUE_TABLE, "off_topic", 1)


def test_a_wrong_fact_contradicts_the_right_one() -> None:
    for name, text, ratings in texts_of(DIALOGUE, "wrong_fact"):
        right, wrong = TALKS[name].wrong
        assert text.replace(wrong, right) == TALKS[name].reply
        assert right not in text
        assert ratings == row(DIALOGUE_TABLE, "wrong_fact", 1)


def test_generic_replies_fit_anywhere() -> None:
    for _, text, ratings in texts_of(DIALOGUE, "generic"):
        assert text in KIND_REPLIES + SHORT_REPLIES
        assert ratings == row(DIALOGUE_TABLE, "generic", {2: 1, 1: 2}[len(sentences(text))])


def test_an_echo_opens_with_the_last_turn() -> None:
    for name, text, ratings in texts_of(DIALOGUE, "echo"):
        turn = TALKS[name].turns[-1]
        assert text.startswith(turn)
        assert ratings == row(DIALOGUE_TABLE, "echo", 2 if text == turn else 1)


# Defects of both


@BOTH
def test_repetitions_say_whole_sentences_twice(groups: list[Group], table: Table) -> None:
    for name, text, ratings in texts_of(groups, "repetition"):
        counts = Counter(sentences(text.replace("Again: ", "")))
        assert set(counts) == set(sentences(_good(name)))
        twice = [line for line, count in counts.items() if count == 2]
        assert max(counts.values()) == 2
        assert ratings == row(table, "repetition", len(twice))


@BOTH
def test_cut_off_texts_end_inside_a_sentence(groups: list[Group], table: Table) -> None:
    for name, text, ratings in texts_of(groups, "cut_off"):
        good = _good(name)
        assert good.startswith(text)
        assert text[-1].isalnum()
        if name in TALKS:
            level = 1 if TALKS[name].wrong[0] in text else 2
        else:
            level = 1 if len(text.split()) > 2 / 3 * len(good.split()) else 2
        assert ratings == row(table, "cut_off", level)


@BOTH
def test_broken_grammar_is_as_broken_as_rated(groups: list[Group], table: Table) -> None:
    levels = {tuple(row(table, "broken_grammar", level).values()): level for level in (1, 2, 3)}
    for name, text, ratings in texts_of(groups, "broken_grammar"):
        good = _good(name).split()
        assert set(text.split()) <= set(good)
        # A word dropped or doubled is one edit, two words swapped are two at most: so many words at least
        # and at most were damaged.
        edits = _edits(good, text.split())
        least, most = edits / 2 / len(good), edits / len(good)
        low, high = {1: (0.0, 0.12), 2: (0.12, 0.21), 3: (0.21, 0.5)}[levels[tuple(ratings.values())]]
        assert edits > 0
        assert most >= low
        assert least < high


def _good(name: str) -> str:
    return flat(ARTICLES[name].summary) if name in ARTICLES else TALKS[name].reply


def _edits(before: list[str], after: list[str]) -> int:
    """Levenshtein distance in words."""
    line = list(range(len(after) + 1))
    for i, word in enumerate(before, start=1):
        above, line = line, [i]
        for j, other in enumerate(after, start=1):
            line.append(min(above[j] + 1, line[-1] + 1, above[j - 1] + (word != other)))
    return line[-1]
