"""The seeded split of a corpus into train, dev and held-out by source, or into folds, and whether there are enough
ratings.

Groups are ordered by a hash of seed and source text and cut at the fractions. So the order of the file does not matter
(groups without a source are hashed with their ids, which may be row numbers), and adding or removing a group moves at
most one other group across each cut. Groups with nearly the same source (`near_duplicates`) are put where the first of
them is and stay in one part, so that no judge is measured on sources that it was tuned on; a cut that would divide them
moves to their nearer end.

A single split holds out two fifths of the sources, and with few sources the result depends on which. Folds measure on
all of them: every source is held out once, from a judge that was tuned and chosen on other sources. This is nested
cross-validation (Stone, Cross-validatory choice and assessment of statistical predictions, 1974; Varma and Simon, Bias
in error estimation when using cross-validation for model selection, 2006): it measures the procedure of tuning and
choosing, not one fixed judge.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, pairwise, repeat
from typing import NamedTuple

from debate_judge.data.errors import InputError
from debate_judge.data.schema import ALL, Corpus, Level, RatedGroup

logger = logging.getLogger(__name__)

PARTS = ("train", "dev", "held_out")

MIN_GROUPS = 2
"""Groups that every part needs per aspect, where candidates are ranked within groups."""

MIN_ITEMS = 8
"""Rated candidates that every part needs per aspect, where each source has one candidate."""

MIN_RATED = 20
"""Least number of rated candidates of an aspect to compile a judge for it. With 20, a correlation of .5 has the 95 %
interval .07 to .77 (Fisher's z); with 15 the interval contains 0, so that not even the sign would be known."""

MIN_SOURCES_FOR_SPLIT = 40
"""Number of sources from which on a single split is the default: with 40 sources, six seeds of one gave correlations
from .48 to .90."""

FOLDS = 6
"""Default number of folds. Each judge is then tuned and chosen on five sixths of the sources, nearly as many as the
final judge. More folds take hardly more LM calls, but one more search each."""

MIN_FOLDS = 4
"""Least number of folds: each half needs two, one to hold out and one as dev."""

Sets = Sequence[Sequence[RatedGroup]]
"""Groups in an order, as sets that must not be divided; most have one group."""


@dataclass(frozen=True, slots=True)
class Splits:
    """Three parts of a corpus that share no source."""

    train: Corpus
    dev: Corpus
    held_out: Corpus
    joined: tuple[tuple[str, ...], ...] = ()
    """The sets of groups of one source and of near-duplicates, by their ids, which were kept in one part."""

    @property
    def fingerprints(self) -> dict[str, str]:
        """Part -> digest of its texts and ratings."""
        return {name: getattr(self, name).digest for name in PARTS}

    def near_duplicates_note(self) -> str:
        """How many sources are near-duplicates, as a sentence; empty where none is."""
        keys = {group.id: group.source_key for part in (self.train, self.dev, self.held_out) for group in part.groups}
        # Several pairs of one source are no near-duplicates.
        sets = [{keys[group_id] for group_id in ids if group_id in keys} for ids in self.joined]
        sets = [sources for sources in sets if len(sources) > 1]
        if not sets:
            return ""
        return (
            f"{sum(map(len, sets))} of {len(set(keys.values()))} sources are near-duplicates of others (shared wording "
            f"or an equal context); each of their {len(sets)} sets was kept in one part of the split"
        )


class Folds(NamedTuple):
    """All folds of a corpus."""

    final: Splits
    """For the final judge, which uses all sources: train is the first half, dev the second, and held-out is empty."""
    halves: tuple[tuple[Splits, ...], ...]
    """For each half as train, the folds of the other half."""


def split(
    corpus: Corpus,
    *,
    aspects: Sequence[str],
    seed: int,
    fractions: tuple[float, float, float] = (0.3, 0.3, 0.4),
    sets: Sets | None = None,
) -> Splits:
    """Split a corpus by source.

    Args:
        corpus: Any corpus; every source text may occur in one group only.
        aspects: The aspects to judge; each must be measurable in each part.
        seed: Determines the order of the groups.
        fractions: Shares of the groups for train, dev and held-out.
        sets: Those of `ordered_sets`, if they are known.

    Raises:
        InputError: The fractions do not add up to 1, or a part has too few ratings to measure an aspect: fewer than
            `MIN_GROUPS` groups with unequal ratings, or, without groups of several candidates, fewer than `MIN_ITEMS`
            rated ones or only equal ratings.
    """
    if len(fractions) != 3 or min(fractions) <= 0 or not math.isclose(math.fsum(fractions), 1):
        expected = "three positive numbers that add up to 1"
        raise InputError("not fractions of the groups", expected=expected, found=fractions)
    sets = sets or ordered_sets(corpus, seed)
    return _splits(corpus, _consecutive_parts(corpus, sets, fractions), sets, aspects)


def split_with_held_out(corpus: Corpus, held_out: int, *, aspects: Sequence[str], seed: int) -> Splits:
    """Split all but the last `held_out` groups into train and dev of equal size; these groups are held out.

    Raises:
        InputError: As in `split`.
    """
    first = len(corpus.groups) - held_out
    others = replace(corpus, groups=corpus.groups[:first])
    sets = ordered_sets(others, seed)
    parts = [*_consecutive_parts(others, sets, (0.5, 0.5)), replace(corpus, groups=corpus.groups[first:])]
    return _splits(corpus, parts, sets, aspects)


def append_held_out(corpus: Corpus, held_out: Corpus) -> Corpus:
    """Both corpora as one, for a user's own held-out part; its groups come last.

    A held-out group whose id already exists gets another one.

    Raises:
        InputError: The two are rated for different tasks, or a source of one is nearly the same as one of the other.
    """
    location, field = held_out.origin.location, "--held-out"
    if held_out.task != corpus.task:
        raise InputError(
            "the held-out texts are rated for another task",
            file=location,
            field=field,
            expected=f"{corpus.task.name}, with the same aspects, scales and definitions",
            found=held_out.task.name,
            remedy="choose one task for both with --task",
        )
    taken, first = {group.id for group in corpus.groups}, len(corpus.groups)
    renamed = (replace(g, id=f"held-out {g.id}") if g.id in taken else g for g in held_out.groups)
    groups = (*corpus.groups, *renamed)
    ids = {_source_or_texts(group): group.id for group in corpus.groups}
    equal = [(ids[key], group.id) for group in held_out.groups if (key := _source_or_texts(group)) in ids]
    alike = [s for s in near_duplicates(groups) if min(s) < first <= max(s)]
    if overlap := equal or [(groups[min(s)].id, groups[max(s)].id) for s in alike]:
        raise InputError(
            "sources of --data also occur in the held-out data, so that the judge would be measured on sources that "
            "it learnt from",
            file=location,
            field=field,
            expected="no source of --data, nor one that is nearly the same",
            found="; ".join(f"{ours!r} is {theirs!r}" for ours, theirs in overlap[:5])
            + (f" and {len(overlap) - 5} more" if len(overlap) > 5 else ""),
            remedy="take these out of one of the two files",
        )
    return replace(corpus, groups=groups)


def _source_or_texts(group: RatedGroup) -> tuple[str, ...]:
    return (group.source,) if group.source else tuple(sorted(candidate.text for candidate in group.candidates))


def default_folds(corpus: Corpus) -> int:
    """The default number of folds; 1, a single split, from `MIN_SOURCES_FOR_SPLIT` sources on."""
    return 1 if corpus.sources >= MIN_SOURCES_FOR_SPLIT else max(MIN_FOLDS, min(FOLDS, corpus.sources))


def make_folds(corpus: Corpus, *, aspects: Sequence[str], seed: int, count: int, sets: Sets | None = None) -> Folds:
    """Cut a corpus into folds, by source.

    The folds form two halves. For a fold, train is the half that it is not in, and dev is the rest of its own half. All
    folds of a half thus share their train part: K folds take two tuning runs instead of K, each on half of the sources,
    as the final judge's tuning does. They differ in the choice on dev, which costs no LM calls, because it uses the
    same stored replies.

    Args:
        corpus: Any corpus; every source text may occur in one group only.
        aspects: The aspects to judge; each must be measurable in train and dev of each fold.
        seed: Determines the order of the groups.
        count: Number of folds, at least `MIN_FOLDS`.
        sets: Those of `ordered_sets`, if they are known.

    Raises:
        InputError: There are fewer sources than folds, or a fold's train or dev part has too few ratings to measure an
            aspect.
    """
    if count < MIN_FOLDS:
        raise InputError(
            "not a number of folds",
            field="--folds",
            expected=f"1 for a single split, or {MIN_FOLDS} or more: two folds to tune a judge on, one to choose "
            "it by, and one to hold out",
            found=count,
        )
    sets = sets or ordered_sets(corpus, seed)
    folds = _consecutive_parts(corpus, sets, [1 / count] * count)
    if not all(fold.groups for fold in folds):
        raise InputError(
            f"{len(corpus.groups)} sources cannot be cut into {count} folds"
            + (", because near-duplicates stay in one" if len(sets) < len(corpus.groups) else ""),
            file=corpus.origin.location,
            field="--folds",
            expected=f"at least {count} different sources",
            remedy=f"rate more sources, or choose fewer folds, {MIN_FOLDS} at least",
        )
    halves = folds[: (count + 1) // 2], folds[(count + 1) // 2 :]
    needed = {"train": MIN_GROUPS, "dev": 1} if corpus.grouped else {"train": MIN_ITEMS, "dev": MIN_ITEMS // 2}

    def splits(*parts: Sequence[Corpus]) -> Splits:
        whole = [replace(corpus, groups=tuple(g for fold in part for g in fold.groups)) for part in parts]
        return _splits(corpus, whole, sets, aspects, needed)

    def of_half(train: Sequence[Corpus], other: Sequence[Corpus]) -> tuple[Splits, ...]:
        return tuple(splits(train, [each for each in other if each is not fold], [fold]) for fold in other)

    return Folds(splits(*halves, ()), (of_half(*halves), of_half(*halves[::-1])))


def ordered_sets(corpus: Corpus, seed: int) -> Sets:
    """The groups in the order of the hashes of `seed` and their sources; those of one source and near-duplicates are a
    set, put where the first of them is."""
    keys = [hashlib.sha256(f"{seed}\n{group.source_key}".encode()).hexdigest() for group in corpus.groups]
    set_of = {i: number for number, members in enumerate(near_duplicates(corpus.groups)) for i in members}
    by_key: dict[object, list[RatedGroup]] = {}
    for key, i in sorted(zip(keys, range(len(keys)), strict=True)):
        # Groups of one source have one key.
        by_key.setdefault(set_of.get(i, key), []).append(corpus.groups[i])
    return list(by_key.values())


def _consecutive_parts(corpus: Corpus, sets: Sets, fractions: Sequence[float]) -> list[Corpus]:
    """Cut the groups into consecutive parts of about these fractions; sets are not divided."""
    ordered = [group for group_set in sets for group in group_set]
    targets = [math.floor(math.fsum(fractions[: i + 1]) * len(ordered) + 0.5) for i in range(len(fractions) - 1)]
    boundaries = [0, *accumulate(map(len, sets))]
    ends = [0, *(min(boundaries, key=lambda end: (abs(end - target), -end)) for target in targets), len(ordered)]
    return [replace(corpus, groups=tuple(ordered[start:end])) for start, end in pairwise(ends)]


def _splits(
    corpus: Corpus,
    parts: Sequence[Corpus],
    sets: Sets,
    aspects: Sequence[str],
    needed: Mapping[str, int] | None = None,
) -> Splits:
    """The parts, if each has enough ratings to measure an aspect on.

    Args:
        corpus: The corpus that was split.
        parts: Train, dev and held-out.
        sets: The sets that were kept in one part.
        aspects: The aspects to measure.
        needed: Name of a part -> the number of groups with unequal ratings that it needs; in a corpus without groups of
            several candidates, of rated candidates. By default as many in each.
    """
    needed = needed or dict.fromkeys(PARTS, MIN_GROUPS if corpus.grouped else MIN_ITEMS)
    by_name = dict(zip(PARTS, parts, strict=True))
    for aspect in map(corpus.task.aspect, aspects):
        counts, distinct = {}, {}
        for name, part in by_name.items():
            rated = [ratings for g in part.groups if (ratings := {*g.ratings(aspect.name)} - {None})]
            counts[name] = sum(len(ratings) > corpus.grouped for ratings in rated)
            distinct[name] = set().union(*rated)
        if any(counts[name] < least for name, least in needed.items()):
            what = "groups whose candidates are rated differently" if corpus.grouped else "rated candidates"
            raise InputError(
                f"too few ratings of {aspect.name} to tune, choose and evaluate a judge on separate sources",
                file=corpus.origin.location,
                field=aspect.name,
                expected="at least " + ", ".join(f"{least} {what} in {name}" for name, least in needed.items()),
                found=", ".join(f"{name} {count}" for name, count in counts.items())
                + f" (of {len(corpus.groups)} sources)",
                # The number of single candidates of a part does not depend on the seed.
                remedy="rate more sources, leave this aspect out with --aspects"
                + (", or try another --seed" if corpus.grouped else ""),
            )
        for name in needed:
            if len(distinct[name]) < 2:
                raise InputError(
                    f"all ratings of {aspect.name} in the part {name} are equal",
                    file=corpus.origin.location,
                    field=aspect.name,
                    expected="at least two different ratings in each part",
                    remedy="rate more sources, leave this aspect out with --aspects, or try another --seed",
                )
    joined = tuple(tuple(group.id for group in members) for members in sets if len(members) > 1)
    return Splits(**by_name, joined=joined)


# --- near-duplicates ---
#
# Two sources are near-duplicates if they share at least a third of the word 5-grams of the shorter one, or if they have
# the same context. Without a source the candidates' texts are compared. Case, punctuation and Unicode compatibility
# forms do not count.
#
# Why a third: in the public sets that the loaders know, unrelated sources share at most .18 of the shorter one's
# 5-grams (two questions of HaluEval with 2 of 11), articles at most .05. Two reports of one event in QAGS share .42,
# questions of FairEval that ask for the same program .54 to .62, a dialogue of Topical-Chat that another continues 1.

NGRAM_LENGTH = 5
"""Number of words of an n-gram. A shorter source is a single n-gram, so only equal ones are its near-duplicates."""

MIN_OVERLAP = 1 / 3
"""Least share of common 5-grams, relative to the source with fewer of them."""

_COMMON_COUNT, _COMMON_SHARE = 10, 0.1
"""5-grams in more sources than both this number and this share, such as the wording of an instruction, are left out."""

_MAX_SET_SHARE = 1 / 3
"""Largest share of all groups that may form one set. A larger one would not fit into a part of a split; its groups
share the background of the task and are not treated as near-duplicates."""

_MAX_ALL_PAIRS = 16
"""A 5-gram in at most this number of sources counts for every pair of them; one in more counts for neighbouring pairs
only, so that the work grows linearly with the number of sources."""

# In scripts without blanks between words, each character is a word.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")


def near_duplicates(groups: Sequence[RatedGroup]) -> list[tuple[int, ...]]:
    """The sets of two or more groups with nearly the same source, as indices into `groups`.

    The relation is transitive: if A and B are near-duplicates, and B and C, all three form a set. Sets of more than
    `_MAX_SET_SHARE` of all groups are left out, e.g. in a small corpus of questions made from one template.
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    with_context: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        if context := _words(group.context):
            with_context[context].append(i)
    equal_contexts = (pair for sources in with_context.values() for pair in pairwise(sources))
    edges = np.array([*_overlapping_sources(groups), *equal_contexts], dtype=np.intp).reshape(-1, 2).T
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
        words = _words(group.source or group.all_texts)
        # A text that is too short for a 5-gram is one shorter n-gram.
        starts = range(max(1, len(words) - NGRAM_LENGTH + 1) if words else 0)
        grams = {words[start : start + NGRAM_LENGTH] for start in starts}
        hashes.extend(map(hash, grams))
        holders.extend(repeat(i, len(grams)))
    by_hash = np.argsort(np.array(hashes), kind="stable")
    ordered, sources = np.array(hashes)[by_hash], np.array(holders)[by_hash]
    firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    counts = np.diff(firsts, append=len(ordered))
    informative = counts <= max(_COMMON_COUNT, _COMMON_SHARE * len(groups))
    gram_counts = np.bincount(sources[np.repeat(informative, counts)], minlength=len(groups))
    shared = informative & (counts > 1)
    shared_counts = Counter(
        pair
        for first, count in zip(firsts[shared].tolist(), counts[shared].tolist(), strict=True)
        for pair in _pairs(sources[first : first + count].tolist())
    )
    for (one, other), count in shared_counts.items():
        if count >= MIN_OVERLAP * min(gram_counts[one], gram_counts[other]):
            yield one, other


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _pairs(sources: Sequence[int]) -> Iterable[tuple[int, int]]:
    return combinations(sources, 2) if len(sources) <= _MAX_ALL_PAIRS else pairwise(sources)


# --- whether there are enough ratings ---


def aspects_to_judge(corpus: Corpus, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The aspects to judge, see `Corpus.select_aspects`; a warning names rated ones that the default leaves out.

    Raises:
        InputError: As `require_ratings`.
    """
    chosen = corpus.select_aspects(names)
    require_ratings(corpus, chosen)
    left_out = [name for name in corpus.rated_aspects() if name not in chosen]
    if left_out and not names:
        message = "%s: judging %s, as papers on this set do; --aspects %s adds %s"
        logger.warning(message, corpus.origin.name, ", ".join(chosen), ALL, ", ".join(left_out))
    return chosen


def require_ratings(corpus: Corpus, aspects: Sequence[str], least: int = 1) -> None:
    """Refuse a corpus whose ratings scores cannot be compared with.

    Args:
        corpus: Any corpus.
        aspects: The aspects.
        least: Number of rated candidates that each needs, e.g. `MIN_RATED`.

    Raises:
        InputError: There is no aspect, or one is unknown to the task, has too few ratings, or only equal ones.
    """
    where, rated = corpus.origin.location, corpus.rated_aspects()
    if not aspects:
        raise InputError(
            "no candidate has a rating",
            file=where,
            expected="ratings of " + ", ".join(aspect.name for aspect in corpus.task.aspects),
            remedy="see which columns are read with `debate check`, and name them with --columns ASPECT=COLUMN",
        )
    for name in aspects:
        corpus.task.aspect(name)
        values = [r for g in corpus.groups for r in g.ratings(name) if r is not None]
        if len(values) < least:
            raise InputError(
                f"too few ratings of {name}",
                file=where,
                field=name,
                expected=f"at least {least} rated candidates"
                + ("; with fewer not even the sign of a correlation of .5 is certain" if least > 1 else ""),
                found=f"{len(values)} rated candidates in {len(corpus.groups)} sources"
                + ("" if values else f"; ratings are of {', '.join(rated) or 'no aspect'}"),
                remedy=f"rate {least - len(values)} more candidates, preferably of new sources, or leave this aspect "
                "out with --aspects; a judge that was not compiled needs no ratings",
            )
        if len({*values}) == 1:
            problem = f"all ratings of {name} are equal, so all judges agree with them to the same degree"
            remedy = "add ratings that differ, or leave this aspect out"
            raise InputError(problem, file=where, field=name, found=f"only {values[0]:g}", remedy=remedy)


def require_level(corpus: Corpus, level: Level) -> None:
    """Refuse a level of agreement that is undefined for the corpus.

    Raises:
        InputError: Summary level without a group of several candidates, or system level where no two candidate
            ids occur in several groups.
    """
    where = corpus.origin.location
    if level == "summary" and not corpus.grouped:
        problem = "summary-level agreement compares the candidates of one source, and every source here has only one"
        remedy = "choose the level sample, or give sources with several candidates"
        raise InputError(problem, file=where, remedy=remedy)
    id_counts = Counter(c.id for g in corpus.groups for c in g.candidates)
    if level == "system" and sum(count > 1 for count in id_counts.values()) < 2:
        raise InputError(
            "system-level agreement needs at least two candidate ids that occur in several groups",
            file=where,
            field="candidates.id",
            found=f"{len(id_counts)} ids on {id_counts.total()} candidates",
            remedy="use the name of the system that wrote a candidate as its id, or choose the level sample",
        )
