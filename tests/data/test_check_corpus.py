"""The contract of data sets: a new set passes it with one file and one line, and what breaks it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.data.testing import check_corpus

ASPECT = Aspect("laughs", "0 is silence, 3 is roaring laughter.", Scale(0, 3))
QUIPS = Corpus(
    Task("quips", "topic", "quip", (ASPECT,)),
    (
        RatedGroup("1", "rain", (Candidate("a", "It rained.", {"laughs": (0.0, 1.0, 0.0)}),)),
        RatedGroup("2", "snow", (Candidate("a", "Snow way.", {"laughs": (2.0, 2.0, 1.0)}),)),
    ),
    Origin("toy", "quips.jsonl"),
)


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
    ("a blank candidate", with_candidate(" "), "candidate 'new': an id or a text is empty"),
    ("half a character", with_candidate("\ud83d"), "UTF-8"),
    ("an unknown aspect", with_candidate(tears=(1.0,)), "no aspect 'tears'"),
    ("outside the scale", with_candidate(laughs=(4.0,)), "4.0 is not a float on the scale"),
    ("raters averaged", averaged, "there are 3 raters"),
    ("no origin", lambda c: replace(c, origin=Origin("", "")), "origin is incomplete"),
]


@pytest.mark.parametrize(("change", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_check_corpus_names_the_violation(change: Callable[[Corpus], Corpus], words: str) -> None:
    check_corpus(QUIPS, QUIPS, raters=3)
    with pytest.raises(AssertionError, match=words):
        check_corpus(change(QUIPS), raters=3)


def test_a_second_load_must_be_equal() -> None:
    with pytest.raises(AssertionError, match="another digest"):
        check_corpus(QUIPS, replace(QUIPS, groups=QUIPS.groups[::-1]))
    with pytest.raises(AssertionError, match="differs in task, origin"):
        check_corpus(QUIPS, replace(QUIPS, origin=Origin("toy", "elsewhere")))
