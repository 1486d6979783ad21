"""The contract of data sets: a new set passes it with one file and one line, and what breaks it is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup
from debate_judge.data.testing import check_corpus
from tests.data import toy_set

ROWS = [
    {"topic": "rain", "quips": {"a": "It rained.", "b": "It poured cats."}, "laughs": {"a": [0, 1, 0], "b": [3, 2, 3]}},
    {"topic": "snow", "quips": {"a": "Snow way."}, "laughs": {"a": [2, 2, 1]}},
]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "quips.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_a_new_set_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch, toy: Path) -> None:
    monkeypatch.setitem(sys.modules, "debate_judge.data.sets.toy", toy_set)
    monkeypatch.setitem(data.LOADERS, "toy", data.public_set("toy"))
    check_corpus(data.load(f"toy={toy}"), data.load(f"toy={toy}"), raters=3)


def changed(change: Callable[[RatedGroup], RatedGroup]) -> Callable[[Corpus], Corpus]:
    return lambda corpus: replace(corpus, groups=(change(corpus.groups[0]), *corpus.groups[1:]))


def with_candidate(text: str = "x", **ratings: tuple[float, ...]) -> Callable[[Corpus], Corpus]:
    return changed(lambda group: replace(group, candidates=(Candidate("new", text, ratings),)))


def averaged(corpus: Corpus) -> Corpus:
    def means(group: RatedGroup) -> RatedGroup:
        rated = [replace(c, ratings={"laughs": (c.rating("laughs") or 0.0,)}) for c in group.candidates]
        return replace(group, candidates=tuple(rated))

    return replace(corpus, groups=tuple(means(group) for group in corpus.groups))


BROKEN: list[tuple[str, Callable[[Corpus], Corpus], str]] = [
    ("no groups", lambda c: replace(c, groups=()), "no groups"),
    ("an id twice", changed(lambda g: replace(g, id="2")), "group id occurs twice"),
    ("a source twice", changed(lambda g: replace(g, source=" snow\n")), "source text occurs twice"),
    ("a blank source", changed(lambda g: replace(g, source=" ")), "group '1': an id or a text is empty"),
    ("a blank context", changed(lambda g: replace(g, context=" ")), "is empty"),
    ("a blank candidate", with_candidate(" "), "candidate 'new': an id or a text is empty"),
    ("half a character", with_candidate("\ud83d"), "UTF-8"),
    ("an unknown aspect", with_candidate(tears=(1.0,)), "no aspect 'tears'"),
    ("outside the scale", with_candidate(laughs=(4.0,)), "4.0 is not a float on the scale"),
    ("not a float", with_candidate(laughs=(1,)), "1 is not a float"),
    ("an aspect without ratings", with_candidate(laughs=()), "left out"),
    ("raters averaged", averaged, "there are 3 raters"),
    ("no origin", lambda c: replace(c, origin=Origin("", "")), "origin is incomplete"),
]


@pytest.mark.parametrize(("change", "says"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_check_judge_names_the_violation(toy: Path, change: Callable[[Corpus], Corpus], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_corpus(change(toy_set.load(toy)), raters=3)


def test_a_second_load_must_be_equal(toy: Path) -> None:
    corpus = toy_set.load(toy)
    with pytest.raises(AssertionError, match="another digest"):
        check_corpus(corpus, replace(corpus, groups=corpus.groups[::-1]))
    with pytest.raises(AssertionError, match="differs in task, origin"):
        check_corpus(corpus, replace(corpus, origin=Origin("toy", "elsewhere")))
