"""Folds: every source is held out once, from a judge that has learnt from other sources and was chosen by other ones.

The sources are put in the order of a split (`data/splits.py`) and cut into K folds; the first folds are one half, the
rest the other. A fold of one half is judged by what was learnt from the other half and chosen by all sources but its
own: train is the other half, dev the rest of its own half. So K folds take two learnings and not K, each from half of
the sources, as many as the judge of the whole learns from; folds of one half differ in what is chosen, which the same
replies tell. With few sources this is the most that can be measured: a single split holds out two fifths of them, and
its figure hangs on which.

This is nested cross-validation (Stone, Cross-validatory choice and assessment of statistical predictions, 1974; Varma
and Simon, Bias in error estimation when using cross-validation for model selection, 2006): what is measured is the
procedure, tuning and choosing included, and not one judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from debate_judge.data.errors import InputError
from debate_judge.data.near_duplicates import near_duplicates
from debate_judge.data.schema import Corpus
from debate_judge.data.splits import MIN_GROUPS, MIN_ITEMS, Splits, cut, ordered_sets, require_enough, splits_of

SMALL = 40
"""Sources below which a single split decides by luck: six seeds on 40 items gave correlations from .48 to .90."""

FOLDS = 6
"""For a small corpus. Each is chosen for by five sixths of the sources, nearly as many as the judge of the whole; both
halves are of three folds; and more folds ask the LM for hardly more, but search once more each."""

FEWEST = 4
"""Folds, two in each half: one is held out and one is dev."""


@dataclass(frozen=True, slots=True)
class Folds:
    """All folds of a corpus."""

    whole: Splits
    """Of the judge that uses all sources: train is the first half, dev the other, and held-out is empty."""
    halves: tuple[tuple[Splits, ...], ...]
    """For each half that is learnt from, the folds of the other one: they have the same train."""


def usual_folds(corpus: Corpus, repeats: int = 1) -> int:
    """The number of folds for a corpus: 1, a single split, from `SMALL` sources on unless repeats are wanted."""
    if len(corpus.groups) >= SMALL and repeats == 1:
        return 1
    return max(FEWEST, min(FOLDS, len(corpus.groups)))


def fold(corpus: Corpus, *, aspects: Sequence[str], seed: int, count: int) -> Folds:
    """Cut a corpus into folds, by source.

    Args:
        corpus: Any corpus; every source text may occur in one group only.
        aspects: The aspects that are going to be judged; each must be measurable in train and dev of each fold.
        seed: Of the order of the groups.
        count: Number of folds, at least `FEWEST`.

    Raises:
        InputError: A source text in two groups, fewer sources than folds, or a fold whose train or dev has too little
            to measure an aspect.
    """
    if count < FEWEST:
        raise InputError(
            "not a number of folds",
            field="--folds",
            expected=f"1 for a single split, or {FEWEST} or more: a judge learns from two folds at least, is chosen by "
            "one, and another is held out",
            found=count,
        )
    together = near_duplicates(corpus.groups)
    parts = cut(corpus, ordered_sets(corpus, seed, together), [1 / count] * count)
    if not all(part.groups for part in parts):
        raise InputError(
            f"{len(corpus.groups)} sources cannot be cut into {count} folds"
            + (", for near-duplicates stay in one" if together else ""),
            file=corpus.origin.location,
            field="--folds",
            expected=f"at least {count} different sources",
            remedy="rate more sources" + (f", or choose fewer folds, {FEWEST} at least" if count > FEWEST else ""),
        )
    middle = (count + 1) // 2
    halves = parts[:middle], parts[middle:]

    def made(train: Sequence[Corpus], dev: Sequence[Corpus], held_out: Sequence[Corpus]) -> Splits:
        named = {"train": _joined(corpus, train), "dev": _joined(corpus, dev), "held_out": _joined(corpus, held_out)}
        least = {"train": MIN_GROUPS, "dev": 1} if corpus.grouped else {"train": MIN_ITEMS, "dev": MIN_ITEMS // 2}
        for aspect in aspects:
            require_enough(corpus, named, aspect, least)
        return splits_of(corpus, named, aspects, together)

    return Folds(
        made(halves[0], halves[1], ()),
        tuple(
            tuple(made(train, [part for part in own if part is not one], [one]) for one in own)
            for train, own in ((halves[0], halves[1]), (halves[1], halves[0]))
        ),
    )


def _joined(corpus: Corpus, parts: Sequence[Corpus]) -> Corpus:
    return replace(corpus, groups=tuple(group for part in parts for group in part.groups))
