"""The folds: a partition by source, what each may learn from and be chosen by, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debate_judge.data.folds import FOLDS, MIN_SOURCES_FOR_SPLIT, Folds, default_folds, make_folds
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.data.splits import Splits

TASK = Task("t", "source", "candidate", (Aspect("tone", "Kind?", Scale(1, 5)),))


def group(name: str, *tones: float | None) -> RatedGroup:
    rated = enumerate(tones)
    candidates = tuple(Candidate(str(i), "x", {} if tone is None else {"tone": (tone,)}) for i, tone in rated)
    return RatedGroup(name, f"source {name}", candidates)


def corpus(*groups: RatedGroup) -> Corpus:
    return Corpus(TASK, groups, Origin("made", "made.jsonl"))


def many(count: int) -> Corpus:
    return corpus(*(group(str(i), 1, 2 + i % 3) for i in range(count)))


def singles(count: int) -> Corpus:
    return corpus(*(group(str(i), 1 + i % 5) for i in range(count)))


def ids(part: Corpus) -> set[str]:
    return {group.id for group in part.groups}


def all_of(folds: Folds) -> list[Splits]:
    return [splits for half in folds.halves for splits in half]


@given(groups=st.integers(8, 50), count=st.integers(4, 8), seed=st.integers(0, 1000))
def test_every_source_is_held_out_once_and_no_fold_uses_its_own(groups: int, count: int, seed: int) -> None:
    whole = many(groups)
    folds = make_folds(whole, aspects=["tone"], seed=seed, count=count)
    held_out = [ids(splits.held_out) for splits in all_of(folds)]
    assert len(held_out) == count
    assert set().union(*held_out) == ids(whole)
    assert not any(one & other for one, other in combinations(held_out, 2))
    for splits in all_of(folds):
        parts = ids(splits.train), ids(splits.dev), ids(splits.held_out)
        assert not any(one & other for one, other in combinations(parts, 2))
        assert set().union(*parts) == ids(whole), "every other source is learnt from or chosen by"
    assert max(map(len, held_out)) - min(map(len, held_out)) <= 1


def test_folds_of_a_half_learn_from_the_same_sources_and_one_half_as_the_whole() -> None:
    folds = make_folds(many(24), aspects=["tone"], seed=3, count=6)
    first, second = folds.halves
    assert {splits.fingerprints["train"] for splits in first} == {folds.final.fingerprints["train"]}
    assert {splits.fingerprints["train"] for splits in second} == {folds.final.fingerprints["dev"]}
    assert [len(splits.train.groups) for splits in all_of(folds)] == [12] * 6
    assert (len(folds.final.train.groups), len(folds.final.dev.groups), folds.final.held_out.groups) == (12, 12, ())


def test_the_seed_draws_them_and_the_order_of_the_file_does_not() -> None:
    whole = many(24)
    turned = replace(whole, groups=whole.groups[::-1])

    def held_out(of: Corpus, seed: int) -> list[set[str]]:
        return [ids(splits.held_out) for splits in all_of(make_folds(of, aspects=["tone"], seed=seed, count=6))]

    assert held_out(whole, 1) == held_out(turned, 1)
    assert held_out(whole, 1) != held_out(whole, 2)


def test_near_duplicates_stay_in_one_fold() -> None:
    text = "The ferry over the lake takes twenty minutes in summer and an hour when the ice is thick."
    alike = [replace(group(f"ferry {i}", 1, 2), source=text + " Now." * i) for i in range(3)]
    folds = make_folds(corpus(*many(21).groups, *alike), aspects=["tone"], seed=0, count=4)
    assert sorted(len(ids(splits.held_out) & {one.id for one in alike}) for splits in all_of(folds)) == [0, 0, 0, 3]
    assert "3 of 24 sources" in folds.final.near_duplicates_note()


@pytest.mark.parametrize(
    ("sources", "expected"),
    [(4, 4), (5, 5), (24, FOLDS), (MIN_SOURCES_FOR_SPLIT - 1, FOLDS), (MIN_SOURCES_FOR_SPLIT, 1)],
)
def test_how_many_folds_a_corpus_has(sources: int, expected: int) -> None:
    assert default_folds(many(sources)) == expected
