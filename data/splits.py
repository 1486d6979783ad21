"""The seeded split of a corpus into train, dev and held-out, by source.

Groups are ordered by a hash of seed and source text and cut at the fractions. So the order of the file does not matter
(groups without a source are hashed with their ids, which may be row numbers), and adding or removing a group moves at
most one other group across each cut. Groups with nearly the same source (`data/near_duplicates.py`) are put where the
first of them is and stay in one part, so that no judge is measured on sources that it was tuned on; a cut that would
divide them moves to their nearer end.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from debate_judge.data.errors import InputError
from debate_judge.data.near_duplicates import near_duplicates
from debate_judge.data.schema import Corpus, RatedGroup

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
