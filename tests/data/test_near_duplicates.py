"""Sources that are nearly the same are found, and stay in one part of every split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from debate_judge.data.near_duplicates import near_duplicates
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.data.splits import PARTS, split

TASK = Task("t", "source", "candidate", (Aspect("tone", "Kind?", Scale(1, 5)),))


def text(seed: int, length: int = 60) -> str:
    """Words that no other seed has."""
    return " ".join(f"w{seed}x{n}" for n in np.random.default_rng(seed).permutation(length))


def group(name: str, source: str, context: str = "") -> RatedGroup:
    return RatedGroup(name, source, (Candidate("1", "x", {"tone": (1,)}), Candidate("2", "y", {"tone": (4,)})), context)


def joined(*groups: RatedGroup) -> set[frozenset[str]]:
    return {frozenset(groups[i].id for i in members) for members in near_duplicates(groups)}


OTHERS = [group(f"other{i}", text(100 + i)) for i in range(12)]


@pytest.mark.parametrize(
    "altered",
    [
        text(1) + ".",
        "(CNN) " + text(1),
        "\ufeff" + text(1).upper(),
        text(1).replace("w1x7 ", "w1x7b "),
        text(1) + " " + text(2),
        " ".join(text(1).split()[10:40]),
        " ".join(text(1).split()[:30]) + " " + text(2, 50),
    ],
    ids=["full stop", "dateline", "mark and case", "one letter", "continued", "contained", "half in common"],
)
def test_sources_that_differ_by_little_belong_together(altered: str) -> None:
    assert joined(group("a", text(1)), *OTHERS, group("b", altered)) == {frozenset("ab")}


def test_what_all_sources_begin_with_does_not_join_them() -> None:
    header = text(9, 100)
    groups = [group(str(i), f"{header} {text(i, 20)}") for i in range(10, 40)]
    assert joined(*groups) == set()
    assert joined(*groups, group("again", f"{header} {text(10, 20)} indeed")) == {frozenset({"10", "again"})}


def test_equal_contexts_join_unless_they_are_the_whole_tasks() -> None:
    fact = "Bats are mammals."
    a, b = group("a", text(1), fact), group("b", text(2), "bats are  MAMMALS")
    assert joined(a, b, *OTHERS) == {frozenset("ab")}
    assert joined(*(group(str(i), text(i), fact) for i in range(20))) == set()


@pytest.mark.parametrize(
    ("sources", "together"),
    [
        # Short sources need equal words.
        (("How are you?", "how are YOU", "And how are you?"), {frozenset("ab")}),
        # Characters are the words of scripts without blanks.
        ([f"今日は天気がとても良いので公園へ行きました{more}" for more in ("", "昨日は雨でした")], {frozenset("ab")}),
        # Belonging together is passed on.
        ((text(1), f"{text(1)} {text(2)}", text(2)), {frozenset("abc")}),
        # A sentence in common does not join.
        ([" ".join(text(9).split()[:12]) + f" {text(i)}" for i in (1, 2)], set()),
    ],
    ids=["short", "Japanese", "chain", "sentence"],
)  # fmt: skip
def test_which_sources_belong_together(sources: Sequence[str], together: set[frozenset[str]]) -> None:
    assert joined(*map(group, "abc", sources), *OTHERS) == together


def test_a_large_set_of_copies_is_found_with_linear_work() -> None:
    copies = [group(f"copy{i}", f"{text(1)} {text(1000 + i, 8)}") for i in range(40)]
    others = [group(f"o{i}", text(5000 + i)) for i in range(400)]
    assert joined(*copies, *others) == {frozenset(f"copy{i}" for i in range(40))}


def test_near_duplicates_stay_in_one_part_whatever_the_seed() -> None:
    groups = [group(str(i), text(i)) for i in range(20)]
    groups += [group(f"{i}b", text(i) + " indeed") for i in range(6)]
    corpus = Corpus(TASK, tuple(groups), Origin("made", "made.jsonl"))
    for seed in range(20):
        splits = split(corpus, aspects=["tone"], seed=seed)
        parts = {g.id: name for name in PARTS for g in getattr(splits, name).groups}
        assert all(parts[str(i)] == parts[f"{i}b"] for i in range(6))
        # 26 groups are cut at 8 and 16; a pair moves a cut by no more than one.
        sizes = [len(getattr(splits, name).groups) for name in PARTS]
        assert [abs(size - n) <= 2 for size, n in zip(sizes, (8, 8, 10), strict=True)] == [True] * 3
    assert len(splits.joined) == 6
    assert splits.near_duplicates_note().startswith("12 of 26 sources")
