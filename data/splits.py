"""The seeded split of a corpus into train, dev and held-out, by source.

Groups are ordered by a hash of seed and source text and cut at the fractions. So the order of the file does not matter
(groups without a source are hashed with their ids, which may be row numbers), and adding or removing a group moves at
most one other group across each cut. Groups with nearly the same source (`near_duplicates`) are put where the
first of them is and stay in one part, so that no judge is measured on sources that it was tuned on; a cut that would
divide them moves to their nearer end.
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

from debate_judge.data.errors import InputError
from debate_judge.data.schema import ALL, Corpus, Level, RatedGroup

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


logger = logging.getLogger(__name__)

MIN_RATED = 20
"""Least number of rated candidates of an aspect to compile a judge for it. With 20, a correlation of .5 has the 95 %
interval .07 to .77 (Fisher's z); with 15 the interval contains 0, so that not even the sign would be known."""


def require_enough_rated(corpus: Corpus, aspects: Sequence[str]) -> None:
    """Raise `InputError` if an aspect has fewer than `MIN_RATED` rated candidates to compile a judge on."""
    for name in aspects:
        rated = sum(c.rating(name) is not None for group in corpus.groups for c in group.candidates)
        if rated < MIN_RATED:
            raise InputError(
                f"too few ratings of {name} to start: they are divided for tuning, choosing and measuring, and with "
                f"fewer than {MIN_RATED} not even the sign of a correlation of .5 is certain",
                file=corpus.origin.location,
                field=name,
                found=f"{rated} rated candidates in {len(corpus.groups)} sources",
                remedy=f"rate {MIN_RATED - rated} more candidates, preferably of new sources, or leave this aspect out "
                "with --aspects; a judge that was not compiled needs no ratings",
            )


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


def require_ratings(corpus: Corpus, aspects: Sequence[str]) -> None:
    """Refuse a corpus whose ratings scores cannot be compared with.

    Raises:
        InputError: There is no aspect, or one is unknown to the task, has no rating, or has only equal ones.
    """
    if not aspects:
        raise InputError(
            "no candidate has a rating",
            file=corpus.origin.location,
            expected="ratings of " + ", ".join(aspect.name for aspect in corpus.task.aspects),
            remedy="see which columns are read with `debate check`, and name them with --columns ASPECT=COLUMN",
        )
    for name in aspects:
        corpus.task.aspect(name)
        values = {r for g in corpus.groups for r in g.ratings(name) if r is not None}
        if not values:
            rated = corpus.rated_aspects()
            raise InputError(
                f"no candidate has a rating of {name}",
                file=corpus.origin.location,
                field=name,
                found="ratings of " + ", ".join(rated) if rated else "no ratings at all",
                remedy=f'add "ratings": {{"{name}": …}} to candidates (CSV: a column {name}), or choose other aspects',
            )
        if len(values) == 1:
            raise InputError(
                f"all ratings of {name} are equal, so all judges agree with them to the same degree",
                file=corpus.origin.location,
                field=name,
                found=f"only {min(values):g}",
                remedy="add ratings that differ, or leave this aspect out",
            )


def require_level(corpus: Corpus, level: Level) -> None:
    """Refuse a level of agreement that is undefined for the corpus.

    Raises:
        InputError: Summary level without a group of several candidates, or system level where no two candidate
            ids occur in several groups.
    """
    if level == "summary" and not corpus.grouped:
        raise InputError(
            "summary-level agreement compares the candidates of one source, and every source here has only one",
            file=corpus.origin.location,
            remedy="choose the level sample, or give sources with several candidates",
        )
    if level == "system":
        id_counts = Counter(c.id for g in corpus.groups for c in g.candidates)
        if sum(count > 1 for count in id_counts.values()) < 2:
            raise InputError(
                "system-level agreement needs at least two candidate ids that occur in several groups",
                file=corpus.origin.location,
                field="candidates.id",
                found=f"{len(id_counts)} ids on {id_counts.total()} candidates",
                remedy="use the name of the system that wrote a candidate as its id, or choose the level sample",
            )


PARTS = ("train", "dev", "held_out")

MIN_GROUPS = 2
"""Groups that every part needs per aspect, where candidates are ranked within groups."""

MIN_ITEMS = 8
"""Rated candidates that every part needs per aspect, where each source has one candidate."""


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


def split(
    corpus: Corpus, *, aspects: Sequence[str], seed: int, fractions: tuple[float, float, float] = (0.3, 0.3, 0.4)
) -> Splits:
    """Split a corpus by source.

    Args:
        corpus: Any corpus; every source text may occur in one group only.
        aspects: The aspects to judge; each must be measurable in each part.
        seed: Determines the order of the groups.
        fractions: Shares of the groups for train, dev and held-out.

    Raises:
        InputError: A source text is in two groups, the fractions do not add up to 1, or a part has too few ratings to
            measure an aspect: fewer than `MIN_GROUPS` groups with unequal ratings, or, without groups of several
            candidates, fewer than `MIN_ITEMS` rated ones or only equal ratings.
    """
    if len(fractions) != 3 or min(fractions) <= 0 or not math.isclose(math.fsum(fractions), 1):
        raise InputError(
            "not fractions of the groups", expected="three positive numbers that add up to 1", found=fractions
        )
    sets = ordered_sets(corpus, seed)
    parts = dict(zip(PARTS, consecutive_parts(corpus, sets, fractions), strict=True))
    require_measurable(corpus, parts, aspects, dict.fromkeys(PARTS, MIN_GROUPS if corpus.grouped else MIN_ITEMS))
    return Splits(**parts, joined=joined_groups(sets))


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
    taken = {group.id for group in corpus.groups}
    renamed = (replace(g, id=f"held-out {g.id}") if g.id in taken else g for g in held_out.groups)
    groups = (*corpus.groups, *renamed)
    first = len(corpus.groups)
    shared = [s for s in near_duplicates(groups) if min(s) < first <= max(s)]
    ids = {_source_or_texts(group): group.id for group in corpus.groups}
    equal = [(ids[_source_or_texts(group)], group.id) for group in held_out.groups if _source_or_texts(group) in ids]
    overlap = equal or [(groups[min(s)].id, groups[max(s)].id) for s in shared]
    if overlap:
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
    """The key of overlap between --data and --held-out: the source, or without one the texts."""
    return (group.source,) if group.source else tuple(sorted(candidate.text for candidate in group.candidates))


def split_with_held_out(corpus: Corpus, held_out: int, *, aspects: Sequence[str], seed: int) -> Splits:
    """Split all but the last `held_out` groups into train and dev of equal size; these groups are held out.

    Raises:
        InputError: As in `split`.
    """
    first = len(corpus.groups) - held_out
    others = replace(corpus, groups=corpus.groups[:first])
    sets = ordered_sets(others, seed)
    train, dev = consecutive_parts(others, sets, (0.5, 0.5))
    parts = {"train": train, "dev": dev, "held_out": replace(corpus, groups=corpus.groups[first:])}
    require_measurable(corpus, parts, aspects, dict.fromkeys(PARTS, MIN_GROUPS if corpus.grouped else MIN_ITEMS))
    return Splits(**parts, joined=joined_groups(sets))


def joined_groups(sets: Sequence[Sequence[RatedGroup]]) -> tuple[tuple[str, ...], ...]:
    """The ids of the groups of each set that has several."""
    return tuple(tuple(group.id for group in members) for members in sets if len(members) > 1)


def consecutive_parts(corpus: Corpus, sets: Sequence[Sequence[RatedGroup]], fractions: Sequence[float]) -> list[Corpus]:
    """Cut the groups into consecutive parts of about these fractions; sets are not divided."""
    ordered = [group for group_set in sets for group in group_set]
    targets = [math.floor(math.fsum(fractions[: i + 1]) * len(ordered) + 0.5) for i in range(len(fractions) - 1)]
    boundaries = [0, *accumulate(map(len, sets))]
    ends = [0, *(min(boundaries, key=lambda end: (abs(end - target), -end)) for target in targets), len(ordered)]
    return [replace(corpus, groups=tuple(ordered[start:end])) for start, end in pairwise(ends)]


def ordered_sets(corpus: Corpus, seed: int) -> list[list[RatedGroup]]:
    """The groups in the order of the hashes of `seed` and their sources, as sets that must not be divided: those of one
    source and near-duplicates, put where the first of them is. Most have one group.
    """
    keys = [hashlib.sha256(f"{seed}\n{group.source_key}".encode()).hexdigest() for group in corpus.groups]
    set_of = {i: number for number, members in enumerate(near_duplicates(corpus.groups)) for i in members}
    by_key: dict[object, list[RatedGroup]] = {}
    for key, i in sorted(zip(keys, range(len(keys)), strict=True)):
        # Groups of one source have one key.
        by_key.setdefault(set_of.get(i, key), []).append(corpus.groups[i])
    return list(by_key.values())


def require_measurable(
    corpus: Corpus, parts: Mapping[str, Corpus], aspects: Sequence[str], needed: Mapping[str, int]
) -> None:
    """Refuse parts with too few ratings to measure an aspect on.

    Args:
        corpus: The corpus that was split.
        parts: Name of a part -> its groups.
        aspects: The aspects to measure.
        needed: Name of a part -> the number of groups with unequal ratings that it needs; in a corpus without groups of
            several candidates, of rated candidates. Other parts need none.

    Raises:
        InputError: A part has fewer, or, in a corpus without groups of several candidates, only equal ratings.
    """
    for aspect in map(corpus.task.aspect, aspects):
        counts = {name: _count_measurable(part, aspect.name, corpus.grouped) for name, part in parts.items()}
        if any(counts[name] < least for name, least in needed.items()):
            raise _too_few_ratings(corpus, aspect.name, counts, needed)
        if corpus.grouped:
            continue
        for name in needed:
            if len({g.candidates[0].rating(aspect.name) for g in parts[name].groups} - {None}) < 2:
                raise InputError(
                    f"all ratings of {aspect.name} in the part {name} are equal",
                    file=corpus.origin.location,
                    field=aspect.name,
                    expected="at least two different ratings in each part",
                    remedy="rate more sources, leave this aspect out with --aspects, or try another --seed",
                )


def _count_measurable(part: Corpus, aspect: str, grouped: bool) -> int:
    """The number of groups with unequal ratings; if not `grouped`, of groups with a rating."""
    if grouped:
        return sum(group.has_distinct_ratings(aspect) for group in part.groups)
    return sum(group.candidates[0].rating(aspect) is not None for group in part.groups)


def _too_few_ratings(corpus: Corpus, aspect: str, counts: Mapping[str, int], needed: Mapping[str, int]) -> InputError:
    what = "groups whose candidates are rated differently" if corpus.grouped else "rated candidates"
    expected = f"at least {min(needed.values())} {what} in each part"
    if len(set(needed.values())) > 1:
        expected = f"{what}: at least " + ", ".join(f"{least} in {name}" for name, least in needed.items())
    return InputError(
        f"too few ratings of {aspect} to tune, choose and evaluate a judge on separate sources",
        file=corpus.origin.location,
        field=aspect,
        expected=expected,
        found=", ".join(f"{name} {count}" for name, count in counts.items()) + f" (of {len(corpus.groups)} sources)",
        # The number of single candidates of a part does not depend on the seed.
        remedy="rate more sources, or leave this aspect out with --aspects"
        + (", or try another --seed" if corpus.grouped else ""),
    )


MIN_SOURCES_FOR_SPLIT = 40
"""Number of sources from which on a single split is the default: with 40 sources, six seeds of one gave correlations
from .48 to .90."""

FOLDS = 6
"""Default number of folds. Each judge is then tuned and chosen on five sixths of the sources, nearly as many as the
final judge. More folds take hardly more LM calls, but one more search each."""

MIN_FOLDS = 4
"""Least number of folds: each half needs two, one to hold out and one as dev."""


@dataclass(frozen=True, slots=True)
class Folds:
    """All folds of a corpus."""

    final: Splits
    """For the final judge, which uses all sources: train is the first half, dev the second, and held-out is empty."""
    halves: tuple[tuple[Splits, ...], ...]
    """For each half as train, the folds of the other half."""

    @property
    def folds(self) -> list[Splits]:
        """The folds of both halves."""
        return [splits for half in self.halves for splits in half]


def default_folds(corpus: Corpus) -> int:
    """The default number of folds; 1, a single split, from `MIN_SOURCES_FOR_SPLIT` sources on."""
    if corpus.sources >= MIN_SOURCES_FOR_SPLIT:
        return 1
    return max(MIN_FOLDS, min(FOLDS, corpus.sources))


def make_folds(corpus: Corpus, *, aspects: Sequence[str], seed: int, count: int) -> Folds:
    """Cut a corpus into folds, by source.

    Args:
        corpus: Any corpus; every source text may occur in one group only.
        aspects: The aspects to judge; each must be measurable in train and dev of each fold.
        seed: Determines the order of the groups.
        count: Number of folds, at least `MIN_FOLDS`.

    Raises:
        InputError: A source text is in two groups, there are fewer sources than folds, or a fold's train or dev part
            has too few ratings to measure an aspect.
    """
    if count < MIN_FOLDS:
        raise InputError(
            "not a number of folds",
            field="--folds",
            expected=f"1 for a single split, or {MIN_FOLDS} or more: two folds to tune a judge on, one to choose "
            "it by, and one to hold out",
            found=count,
        )
    sets = ordered_sets(corpus, seed)
    folds = consecutive_parts(corpus, sets, [1 / count] * count)
    if not all(fold.groups for fold in folds):
        raise InputError(
            f"{len(corpus.groups)} sources cannot be cut into {count} folds"
            + (", because near-duplicates stay in one" if len(sets) < len(corpus.groups) else ""),
            file=corpus.origin.location,
            field="--folds",
            expected=f"at least {count} different sources",
            remedy="rate more sources"
            + (f", or choose fewer folds, {MIN_FOLDS} at least" if count > MIN_FOLDS else ""),
        )
    half = (count + 1) // 2
    halves = folds[:half], folds[half:]

    def make_splits(train: Sequence[Corpus], dev: Sequence[Corpus], held_out: Sequence[Corpus]) -> Splits:
        parts = {"train": _concatenate(corpus, train), "dev": _concatenate(corpus, dev)}
        parts["held_out"] = _concatenate(corpus, held_out)
        needed = {"train": MIN_GROUPS, "dev": 1} if corpus.grouped else {"train": MIN_ITEMS, "dev": MIN_ITEMS // 2}
        require_measurable(corpus, parts, aspects, needed)
        return Splits(**parts, joined=joined_groups(sets))

    return Folds(
        make_splits(halves[0], halves[1], ()),
        tuple(
            tuple(
                make_splits(train, [other for other in other_half if other is not fold], [fold]) for fold in other_half
            )
            for train, other_half in (halves, halves[::-1])
        ),
    )


def _concatenate(corpus: Corpus, folds: Sequence[Corpus]) -> Corpus:
    return replace(corpus, groups=tuple(group for fold in folds for group in fold.groups))
