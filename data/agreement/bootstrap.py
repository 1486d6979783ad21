"""Resamples sources, for the intervals of figures that are not means over groups: leaves each out, or draws as many.

The unit is a source, or a bundle of sources where there are many. A figure that every source moves a little is computed
again without each unit (the jackknife, `pseudo_values`). Correlations over systems are not smooth in this way; they are
computed again for units drawn with replacement (the bootstrap, `draws`). A resample is represented by how often it
drew each unit, so figures are recomputed from draw counts of shape (units, resamples). Undefined is NaN here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError

Resampled = Callable[[Floats], Floats]
"""Draw counts, shape (units, resamples) -> recomputed values, with resamples in the last dimension."""

Indices = NDArray[np.intp]

_MAX_UNITS = 512
"""Most units that are drawn or left out; more groups are bundled."""

_CHUNK = 512
"""Resamples that are computed at once."""

_CHUNK_ENTRIES = 2**20
"""Pairs that figures are computed of at once, counting each as often as it is in a row."""


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """The groups of all aspects, and which of them are not independent of each other."""

    numbers: Mapping[str, int]
    """Group id -> number."""
    source_of_group: Indices
    """Number of each group's source, shape (groups,): several pairs of texts may be of one."""
    unit_of_group: Indices
    """Number of the unit that each group is drawn with, shape (groups,)."""

    @classmethod
    def build(cls, aspects: Mapping[str, Sequence[GroupScores]], seed: int) -> GroupIndex:
        """Number the groups; `seed` is for the bundles where there are many.

        Raises:
            InputError: No aspect, or a group id twice in one aspect.
        """
        if not aspects:
            raise InputError("there is no aspect to compare ratings and scores in")
        source_of: dict[str, str] = {}
        for name, groups in aspects.items():
            ids = [group.group for group in groups]
            if len(set(ids)) < len(ids):
                twice = next(aspect_ids for aspect_ids in ids if ids.count(aspect_ids) > 1)
                raise InputError(f"group {twice!r} occurs twice in aspect {name!r}", field="group")
            for group in groups:
                source_of.setdefault(group.group, group.cluster)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(source_of.values()))}
        source = np.array([numbers[name] for name in source_of.values()], dtype=np.intp)
        return cls({name: i for i, name in enumerate(source_of)}, source, bundle(len(numbers), seed)[source])

    @property
    def units(self) -> int:
        return count_units(self.unit_of_group)

    def count_sources(self, groups: NDArray[np.bool_]) -> int:
        """Number of sources of these groups, shape (groups,)."""
        return len(np.unique(self.source_of_group[groups]))

    def sum_by_source(self, values: Floats, groups: NDArray[np.bool_]) -> Floats:
        """The sums of values over these groups of each source: shape (rows, groups) -> (rows, sources)."""
        number = np.unique(self.source_of_group[groups], return_inverse=True)[1]
        return np.stack([np.bincount(number, weights=row) for row in values[:, groups]])


@dataclass(frozen=True, slots=True)
class Pairs:
    """The candidates of one aspect that have both rating and score; arrays have shape (pairs,)."""

    ratings: Floats
    scores: Floats
    group: Indices
    """Index of the pair's group."""
    system: Indices
    """Index of the pair's candidate id."""
    index: GroupIndex
    """Of all groups; a group need not have pairs."""

    @property
    def groups(self) -> int:
        return len(self.index.unit_of_group)

    @property
    def unit(self) -> Indices:
        """Index of the pair's unit."""
        return self.index.unit_of_group[self.group]

    @property
    def units(self) -> int:
        return self.index.units

    @property
    def groups_with_pairs(self) -> NDArray[np.bool_]:
        """Which groups have pairs, shape (groups,)."""
        return np.bincount(self.group, minlength=self.groups) > 0


@dataclass(frozen=True, slots=True)
class LevelEstimate:
    """Values at one level, and what their intervals are computed from: `by_group` or `replicates`."""

    values: Floats
    """Shape (statistics,); 0 where the scores are constant and the ratings are not."""
    included_groups: NDArray[np.bool_]
    """Which groups the values are computed from, shape (groups,)."""
    constant: NDArray[np.bool_]
    """Which of these groups have constant scores, shape (groups,)."""
    without_constant: Floats
    """The values without these groups, shape (statistics,)."""
    by_group: Floats | None = None
    """Values of which `values` is the mean, shape (statistics, groups), NaN for other groups; None at system level."""
    replicates: Floats | None = None
    """At system level the values of resampled groups, shape (statistics, resamples), NaN where undefined."""
    units: int = 0
    """Number of independent units: sources, or systems where these are drawn as well and are fewer."""
    observations: int = 0
    """Pairs of candidates or of systems that can be in order or not."""


def rated_pairs(groups: Sequence[GroupScores], index: GroupIndex) -> Pairs:
    """The candidates of one aspect that are both rated and scored."""
    systems: dict[str, int] = {}
    rows = [
        (rating, score, index.numbers[group.group], systems.setdefault(candidate, len(systems)))
        for group in groups
        for candidate, rating, score in zip(group.candidates, group.ratings, group.scores, strict=True)
        if rating is not None and score is not None
    ]
    ratings, scores, group, system = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Pairs(
        np.array(ratings, dtype=float),
        np.array(scores, dtype=float),
        np.array(group, dtype=np.intp),
        np.array(system, dtype=np.intp),
        index,
    )


def bundle(groups: int, seed: int, max_units: int = _MAX_UNITS) -> Indices:
    """Assign groups to the units of resampling: a unit each, or with more than `most` groups random bundles of them.

    Because bundles are random, the variance of their sums estimates that of the groups. 512 bundles give the width of
    an interval a standard error of 3.1 % (1 / sqrt(2 x 511)).

    Returns:
        Index of each group's unit, shape (groups,).
    """
    if groups <= max_units:
        return np.arange(groups)
    return np.random.default_rng(seed).permutation(groups) % max_units


def count_units(unit_of_group: Indices) -> int:
    return int(unit_of_group.max(initial=-1)) + 1


def sums_by_row(values: Floats, row: Indices, unit: Indices, shape: tuple[int, int]) -> Resampled:
    """A function from draw counts to the sums of `values` by row over the drawn units.

    Args:
        values: Shape (entries,).
        row: Row of each entry.
        unit: Unit of each entry.
        shape: Numbers of rows and units; the sums have shape (rows, resamples).
    """
    from scipy.sparse import csr_array

    # Sparse even where nothing is 0: the threads of a dense product cost more than it saves where cores are shared.
    matrix = csr_array((values, (row, unit)), shape=shape)
    return lambda counts: np.asarray(matrix @ counts)


def pseudo_values(
    statistic: Callable[[Floats, Floats], Floats], x: Floats, y: Floats, unit: Indices, units: int
) -> Floats:
    """What each unit contributes to figures of all pairs, by leaving it out: the pseudo-values of the jackknife (Tukey
    1958; Efron and Tibshirani 1993, chapter 11), moved to the mean that they must have, which is the figure.

    Args:
        of_rows: Two arrays of shape (rows, pairs), NaN for what is left out -> figures of shape (figures, rows). One
            that is undefined counts 0.
        x: Ratings, shape (pairs,).
        y: Scores, likewise.
        unit: Number of each pair's unit.
        units: How many there are.

    Returns:
        Shape (figures, units).
    """
    full = np.nan_to_num(statistic(x[None], y[None]))
    without = np.empty((len(full), units))
    if not units:
        return without
    for chunk in np.array_split(np.arange(units), 1 + units * len(unit) // _CHUNK_ENTRIES):
        omitted = unit == chunk[:, None]
        without[:, chunk] = np.nan_to_num(statistic(np.where(omitted, np.nan, x), np.where(omitted, np.nan, y)))
    pseudo = units * full - (units - 1) * without
    return np.asarray(pseudo - pseudo.mean(axis=1, keepdims=True) + full)


def resample_counts(units: int, resamples: int, seed: int) -> Iterator[tuple[slice, Floats]]:
    """How often each unit is drawn, shape (units, resamples), for some resamples at a time; with their places.

    Args:
        units: Number of units; each resample draws as many, with replacement.
        resamples: Number of resamples.
        seed: Equal ones draw the same.
    """
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _CHUNK):
        counts = np.empty((units, min(_CHUNK, resamples - start)))
        for i, drawn in enumerate(rng.integers(units, size=counts.T.shape)):
            counts[:, i] = np.bincount(drawn, minlength=units)
        yield slice(start, start + counts.shape[1]), counts
