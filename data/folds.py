"""Folds: every source is held out once, from a judge that was tuned and chosen on other sources.

The sources are put in the order of a split (`data/splits.py`) and cut into K folds, which form two halves. For a fold,
train is the half that it is not in, and dev is the rest of its own half. All folds of a half thus share their train
part: K folds take two tuning runs instead of K, each on half of the sources, as the final judge's tuning does. They
differ in the choice on dev, which costs no LM calls, because it uses the same stored replies.

A single split holds out two fifths of the sources, and with few sources the result depends on which. Folds measure on
all of them. This is nested cross-validation (Stone, Cross-validatory choice and assessment of statistical predictions,
1974; Varma and Simon, Bias in error estimation when using cross-validation for model selection, 2006): it measures the
procedure of tuning and choosing, not one fixed judge. Sources that were selected for rating are never held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus
from debate_judge.data.splits import (
    MIN_GROUPS,
    MIN_ITEMS,
    Splits,
    consecutive_parts,
    joined_groups,
    ordered_sets,
    require_measurable,
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
