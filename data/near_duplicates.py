"""Which groups of a corpus have nearly the same source, so that a split must not part them.

Two sources belong together if one shares at least a third of its 5-grams of words with the other, if one contains the
other, or if they have the same context; without a source the candidates' texts are compared. Case, punctuation and
marks do not count. What is common to a tenth of all
sources, such as the wording of an instruction, says nothing about any two of them and is left out.

Why a third: in the public sets that the loaders know, unrelated sources share at most .18 of the shorter one's
5-grams (two questions of HaluEval with 2 of 11), articles at most .05. Two reports of one event in QAGS share .42,
questions of FairEval that ask for the same program .54 to .62, a dialogue of Topical-Chat that another continues 1.00.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise

from debate_judge.data.schema import RatedGroup

LENGTH = 5
"""Words of an n-gram; sources with fewer words belong together only if these are equal."""

SHARE = 1 / 3
"""Of the 5-grams of the source with fewer of them."""

_COMMON, _COMMON_SHARE = 10, 0.1
"""A 5-gram in more sources than this, and than this share of them, is wording that all of them have."""

_COMMON_TO_ALL = 1 / 3
"""What more than this share of the sources has in common is background of the whole task."""

_FEW = 16
"""Up to so many sources of a 5-gram all pairs are counted, beyond it each with the next: the work stays linear."""

# Scripts without blanks between words: there each character is a word.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")

Gram = tuple[str, ...]


def near_duplicates(groups: Sequence[RatedGroup]) -> list[tuple[int, ...]]:
    """The sets of groups that belong together, each with at least two, by their places in `groups`.

    Belonging together is passed on: where the first belongs to the second and that to the third, all three do. A set of
    more than a third of all groups fits into no part of a split; what these share, e.g. in a small set of questions
    made from one template, is taken for the wording of the task, and they are left apart.
    """
    parent = list(range(len(groups)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for one, other in [*_alike_sources(groups), *_equal_contexts(groups)]:
        parent[root(one)] = root(other)
    found: dict[int, list[int]] = defaultdict(list)
    for i in range(len(groups)):
        found[root(i)].append(i)
    most = max(2, _COMMON_TO_ALL * len(groups))
    return [tuple(members) for members in found.values() if 1 < len(members) <= most]


def _alike_sources(groups: Sequence[RatedGroup]) -> Iterator[tuple[int, int]]:
    where: dict[Gram, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        for gram in _grams(words(group.source or group.judged)):
            where[gram].append(i)
    most = max(_COMMON, _COMMON_SHARE * len(groups))
    telling = [sources for sources in where.values() if len(sources) <= most]
    grams = Counter(i for sources in telling for i in sources)
    shared = Counter(pair for sources in telling for pair in _pairs(sources))
    for (one, other), count in shared.items():
        if count >= SHARE * min(grams[one], grams[other]):
            yield one, other


def _equal_contexts(groups: Sequence[RatedGroup]) -> Iterator[tuple[int, int]]:
    where: dict[Gram, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        if context := words(group.context):
            where[context].append(i)
    for sources in where.values():
        yield from pairwise(sources)


def words(text: str) -> Gram:
    """The words of a text as they are compared."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _grams(text: Gram) -> set[Gram]:
    # A text that is too short for a 5-gram is one gram, as is a text of five words: the whole.
    return {text[i : i + LENGTH] for i in range(max(1, len(text) - LENGTH + 1))} if text else set()


def _pairs(sources: Sequence[int]) -> Iterable[tuple[int, int]]:
    return combinations(sources, 2) if len(sources) <= _FEW else pairwise(sources)
