"""Estimates with the influence of each source on them, from which intervals and tests are computed.

The influences of sources on a mean over groups are known; those on other smooth statistics come from the jackknife.
Correlations over systems are not smooth; they are recomputed for resampled sources, the bootstrap
(`levels.system_level`). The unit of both is a source, or a random bundle of sources where there are many (the
delete-a-group jackknife, Kott 2001). Undefined is NaN here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.intervals import standard_error
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError

Indices = NDArray[np.intp]

_MAX_UNITS = 512
"""Maximum number of units; more sources are put into this many random bundles. The width of an interval then has a
standard error of 3.1 % (1 / sqrt(2 x 511))."""

_CHUNK_ENTRIES = 2**20
"""Maximum size of an array (rows x pairs) that a statistic is computed of at once."""


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """The groups of all aspects, with the source and the unit of resampling of each."""

    number_of_group: Mapping[str, int]
    """Group id -> number."""
    source_of_group: Indices
    """Number of each group's source, shape (groups,): several pairs of texts may have the same source."""
    unit_of_group: Indices
    """Number of the unit that each group is drawn with, shape (groups,)."""

    @classmethod
    def build(cls, aspects: Mapping[str, Sequence[GroupScores]], seed: int) -> GroupIndex:
        """Number the groups, their sources and units; `seed` determines the random bundles of sources.

        Raises:
            InputError: No aspect, or a group id twice in one aspect.
        """
        if not aspects:
            raise InputError("there is no aspect to compare ratings and scores in")
        source_of: dict[str, str] = {}
        for name, groups in aspects.items():
            ids = [group.group for group in groups]
            if len(set(ids)) < len(ids):
                repeated = next(group_id for group_id in ids if ids.count(group_id) > 1)
                raise InputError(f"group {repeated!r} occurs twice in aspect {name!r}", field="group")
            for group in groups:
                source_of.setdefault(group.group, group.source_id)
        source = number_in_order(list(source_of.values()))
        return cls({name: i for i, name in enumerate(source_of)}, source, bundle(source, seed))

    def sum_by_source(self, values: Floats) -> Floats:
        """Sum values over the groups of each source, shape (rows, groups) -> (rows, sources)."""
        return np.stack([np.bincount(self.source_of_group, weights=row) for row in values])


@dataclass(frozen=True, slots=True)
class RatingScorePairs:
    """The candidates of one aspect that have both rating and score; arrays have shape (pairs,)."""

    ratings: Floats
    scores: Floats
    group: Indices
    """Index of the pair's group."""
    system: Indices
    """Index of the pair's candidate id."""
    index: GroupIndex
    """Of all groups, including those without pairs."""

    @property
    def groups(self) -> int:
        return len(self.index.unit_of_group)

    @property
    def groups_with_pairs(self) -> NDArray[np.bool_]:
        """Mask of the groups that have pairs, shape (groups,)."""
        return np.bincount(self.group, minlength=self.groups) > 0

    def jackknife(self, statistic: Callable[[Floats, Floats], Floats]) -> Floats:
        """The pseudo-values of a statistic of all pairs, see `pseudo_values`: shape (values, groups), where the first
        group of a unit has the unit's, and the other groups have NaN."""
        _, first, unit = np.unique(self.index.unit_of_group[self.group], return_index=True, return_inverse=True)
        values = pseudo_values(statistic, self.ratings, self.scores, unit, len(first))
        by_group = np.full((len(values), self.groups), np.nan)
        by_group[:, self.group[first]] = values
        return by_group


@dataclass(frozen=True, slots=True)
class AgreementEstimate:
    """Statistics of one aspect, or averaged over aspects, with the data for their intervals: influences, or at system
    level replicates."""

    index: GroupIndex
    values: Floats
    """Shape (statistics,)."""
    included_groups: NDArray[np.bool_]
    """Mask of the groups that the values are computed from, shape (groups,)."""
    contributions: Floats | None = None
    """Summands of the values by source, shape (statistics, sources)."""
    influences: Floats | None = None
    """The same, centred: each group of an aspect contributes (value - mean) / groups instead of value / groups."""
    replicates: Floats | None = None
    """The values of resampled groups, shape (statistics, resamples), NaN where undefined."""
    resampled_sources: int = 0
    """At system level the number of sources, of the aspect with the fewest."""
    observations: int = 0
    """At system level the number of pairs of systems whose order is compared, likewise."""

    @classmethod
    def of_groups(cls, index: GroupIndex, by_group: Floats, included_groups: NDArray[np.bool_]) -> AgreementEstimate:
        """Means over groups, from values of shape (statistics, groups), NaN for groups without a value."""
        defined = ~np.isnan(by_group)
        counts = defined.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.nansum(by_group, axis=1, keepdims=True) / counts
        contributions, influences = (
            index.sum_by_source(np.where(defined, values, 0.0) / np.maximum(counts, 1))
            for values in (by_group, by_group - means)
        )
        return cls(index, means[:, 0], included_groups, contributions, influences)

    @classmethod
    def of_replicates(
        cls,
        index: GroupIndex,
        values: Floats,
        included_groups: NDArray[np.bool_],
        replicates: Floats,
        observations: int,
    ) -> AgreementEstimate:
        """Statistics at system level."""
        sources = len(np.unique(index.source_of_group[included_groups]))
        return cls(index, values, included_groups, None, None, replicates, sources, observations)

    @classmethod
    def mean(cls, aspects: Sequence[AgreementEstimate]) -> AgreementEstimate:
        """The mean over aspects."""
        return cls._combined(aspects, np.full(len(aspects), 1 / len(aspects)))

    def __sub__(self, other: AgreementEstimate) -> AgreementEstimate:
        """The paired difference from an estimate of the same statistics from the same groups."""
        return self._combined([self, other], np.array([1.0, -1.0]))

    @classmethod
    def _combined(cls, estimates: Sequence[AgreementEstimate], weights: Floats) -> AgreementEstimate:
        """The weighted sum of estimates; all of its parts are linear in them."""

        def weighted_sum(arrays: Sequence[Floats | None]) -> Floats | None:
            defined = [array for array in arrays if array is not None]
            return np.tensordot(weights, np.array(defined), 1) if len(defined) == len(arrays) else None

        return cls(
            estimates[0].index,
            np.tensordot(weights, np.array([e.values for e in estimates]), 1),
            np.logical_or.reduce([e.included_groups for e in estimates]),
            weighted_sum([e.contributions for e in estimates]),
            weighted_sum([e.influences for e in estimates]),
            weighted_sum([e.replicates for e in estimates]),
            min(e.resampled_sources for e in estimates),
            min(e.observations for e in estimates),
        )

    @property
    def included_sources(self) -> NDArray[np.bool_]:
        """Mask of the sources that the values are computed from, shape (sources,)."""
        return np.bincount(self.index.source_of_group, weights=self.included_groups) > 0

    @property
    def sources(self) -> int:
        return int(self.included_sources.sum())

    @property
    def independent_sources(self) -> int:
        """Number of sources that the standard errors are computed from."""
        return self.sources if self.replicates is None else self.resampled_sources

    @property
    def standard_errors(self) -> Floats:
        """Shape (statistics,); NaN without influences and replicates, or with fewer than two sources."""
        if self.influences is not None:
            return np.array([standard_error(row[self.included_sources]) for row in self.influences])
        sources = self.independent_sources
        if self.replicates is None or self.replicates.shape[1] < 2 or sources < 2:
            return np.full(len(self.values), np.nan)
        return np.asarray(math.sqrt(sources / (sources - 1)) * np.nanstd(self.replicates, axis=1, ddof=1))


def rated_pairs(groups: Sequence[GroupScores], index: GroupIndex) -> RatingScorePairs:
    """The candidates of one aspect that are both rated and scored."""
    systems: dict[str, int] = {}
    rows = [
        (rating, score, index.number_of_group[group.group], systems.setdefault(candidate, len(systems)))
        for group in groups
        for candidate, rating, score in zip(group.candidates, group.ratings, group.scores, strict=True)
        if rating is not None and score is not None
    ]
    ratings, scores, group, system = zip(*rows, strict=True) if rows else ((), (), (), ())
    return RatingScorePairs(
        np.array(ratings, dtype=float),
        np.array(scores, dtype=float),
        np.array(group, dtype=np.intp),
        np.array(system, dtype=np.intp),
        index,
    )


def number_in_order(names: Sequence[str]) -> Indices:
    """The number of each name, in the order of their first occurrence."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.intp)


def bundle(source: Indices, seed: int) -> Indices:
    """The unit of resampling of each source number: its own, or with more than `_MAX_UNITS` sources a random bundle.

    Because bundles are random, the variance of their sums estimates that of the sources.
    """
    sources = int(source.max(initial=-1)) + 1
    if sources <= _MAX_UNITS:
        return source
    return (np.random.default_rng(seed).permutation(sources) % _MAX_UNITS)[source]


def pseudo_values(
    statistic: Callable[[Floats, Floats], Floats], x: Floats, y: Floats, unit: Indices, units: int
) -> Floats:
    """The pseudo-values of the jackknife, from leaving out each unit (Tukey 1958; Efron and Tibshirani 1993, chapter
    11), shifted so that their mean is the value of the statistic on all pairs.

    Args:
        statistic: Two arrays of shape (rows, pairs), NaN for pairs that are left out -> values of shape (values, rows);
            undefined ones count 0.
        x, y: The two sides of the pairs, shape (pairs,).
        unit: Number of each pair's unit.
        units: Number of units.

    Returns:
        Shape (values, units).
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
