"""Finds groups with nearly the same source, which a split must keep in one part.

Two sources are near-duplicates if they share at least a third of the word 5-grams of the shorter one, or if they have
the same context. Without a source the candidates' texts are compared. Case, punctuation and Unicode compatibility forms
do not count. 5-grams that occur in more than a tenth of all sources, such as the wording of an instruction, are left
out.

Why a third: in the public sets that the loaders know, unrelated sources share at most .18 of the shorter one's
5-grams (two questions of HaluEval with 2 of 11), articles at most .05. Two reports of one event in QAGS share .42,
questions of FairEval that ask for the same program .54 to .62, a dialogue of Topical-Chat that another continues 1.00.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise, repeat

from debate_judge.data.schema import RatedGroup

NGRAM_LENGTH = 5
"""Number of words of an n-gram. A shorter source is a single n-gram, so only equal ones are its near-duplicates."""

MIN_OVERLAP = 1 / 3
"""Least share of common 5-grams, relative to the source with fewer of them."""

_COMMON_COUNT, _COMMON_SHARE = 10, 0.1
"""5-grams in more sources than both this number and this share are left out."""

_MAX_SET_SHARE = 1 / 3
"""Largest share of all groups that may form one set. A larger one would not fit into a part of a split; its groups
share the background of the task and are not treated as near-duplicates."""

_MAX_ALL_PAIRS = 16
"""A 5-gram in at most this number of sources counts for every pair of them; one in more counts for neighbouring pairs
only, so that the work grows linearly with the number of sources."""

# In scripts without blanks between words, each character is a word.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")

NGram = tuple[str, ...]


def near_duplicates(groups: Sequence[RatedGroup]) -> list[tuple[int, ...]]:
    """The sets of two or more near-duplicates, as indices into `groups`.

    The relation is transitive: if A and B are near-duplicates, and B and C, all three form a set. Sets of more than
    `_MAX_SET_SHARE` of all groups are left out, e.g. in a small corpus of questions made from one template.
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = np.array([*_overlapping_sources(groups), *_equal_contexts(groups)], dtype=np.intp).reshape(-1, 2).T
    graph = coo_array((np.ones(edges.shape[1]), tuple(edges)), shape=(len(groups), len(groups)))
    sets: dict[int, list[int]] = defaultdict(list)
    for i, component in enumerate(connected_components(graph, directed=False)[1].tolist()):
        sets[component].append(i)
    max_size = max(2, _MAX_SET_SHARE * len(groups))
    return [tuple(members) for members in sets.values() if 1 < len(members) <= max_size]


def _overlapping_sources(groups: Sequence[RatedGroup]) -> Iterator[tuple[int, int]]:
    import numpy as np

    # By the hash of an n-gram, in arrays, so that the words of all texts are not held in memory.
    hashes, holders = array("q"), array("i")
    for i, group in enumerate(groups):
        grams = _ngrams(words(group.source or group.all_texts))
        hashes.extend(map(hash, grams))
        holders.extend(repeat(i, len(grams)))
    by_hash = np.argsort(np.array(hashes), kind="stable")
    ordered, sources = np.array(hashes)[by_hash], np.array(holders)[by_hash]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    counts = np.diff(starts, append=len(ordered))
    informative = counts <= max(_COMMON_COUNT, _COMMON_SHARE * len(groups))
    gram_counts = np.bincount(sources[np.repeat(informative, counts)], minlength=len(groups))
    shared = informative & (counts > 1)
    shared_counts = Counter(
        pair
        for start, count in zip(starts[shared].tolist(), counts[shared].tolist(), strict=True)
        for pair in _pairs(sources[start : start + count].tolist())
    )
    for (first, second), count in shared_counts.items():
        if count >= MIN_OVERLAP * min(gram_counts[first], gram_counts[second]):
            yield first, second


def _equal_contexts(groups: Sequence[RatedGroup]) -> Iterator[tuple[int, int]]:
    groups_with: dict[NGram, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        if context := words(group.context):
            groups_with[context].append(i)
    for sources in groups_with.values():
        yield from pairwise(sources)


def words(text: str) -> NGram:
    """The words of a text, normalized for comparison."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _ngrams(text: NGram) -> set[NGram]:
    # A text that is too short for a 5-gram is one shorter n-gram.
    return {text[i : i + NGRAM_LENGTH] for i in range(max(1, len(text) - NGRAM_LENGTH + 1))} if text else set()


def _pairs(sources: Sequence[int]) -> Iterable[tuple[int, int]]:
    return combinations(sources, 2) if len(sources) <= _MAX_ALL_PAIRS else pairwise(sources)
