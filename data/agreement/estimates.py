"""Correlations at each level as estimates: a value with the influence of each source on it, from which intervals and
tests are computed.

The influences of sources on a mean over groups are known; those on a correlation over all candidates come from the
jackknife over sources, or over random bundles of sources where there are many (the delete-a-group jackknife, Kott
2001). Correlations over systems have neither: a single source hardly moves such a correlation, and noise in the means
of the systems attenuates it, which no interval corrects. Undefined is NaN here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import Floats, Statistic, correlations
from debate_judge.data.agreement.intervals import standard_error
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level

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
    """Statistics of one aspect, or averaged over aspects, with the contributions of sources to them."""

    index: GroupIndex
    values: Floats
    """Shape (statistics,)."""
    included_groups: NDArray[np.bool_]
    """Mask of the groups that the values are computed from, shape (groups,)."""
    contributions: Floats | None = None
    """Summands of the values by source, shape (statistics, sources); None without an interval."""
    influences: Floats | None = None
    """The same, centred: each group of an aspect contributes (value - mean) / groups instead of value / groups."""

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
        )

    @property
    def included_sources(self) -> NDArray[np.bool_]:
        """Mask of the sources that the values are computed from, shape (sources,)."""
        return np.bincount(self.index.source_of_group, weights=self.included_groups) > 0

    @property
    def sources(self) -> int:
        return int(self.included_sources.sum())

    @property
    def standard_errors(self) -> Floats:
        """Shape (statistics,); NaN without influences, or with fewer than two sources."""
        if self.influences is None:
            return np.full(len(self.values), np.nan)
        return np.array([standard_error(row[self.included_sources]) for row in self.influences])


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


@dataclass(frozen=True, slots=True)
class LevelEstimate:
    """Correlations of one aspect at one level."""

    estimate: AgreementEstimate
    """Values are 0 where the scores are constant and the ratings are not."""
    constant: NDArray[np.bool_]
    """Mask of the groups with constant scores, shape (groups,)."""
    without_constant: Floats
    """The values without these groups, shape (statistics,)."""


def estimate_level(
    level: Level, pairs: RatingScorePairs, statistics: Sequence[Statistic], *, intervals: bool = True
) -> LevelEstimate:
    """Compute the correlations of one aspect at a level.

    Without `intervals`, the sample level has no influences, which take a correlation without each source.
    """
    if level == "summary":
        return _summary_level(pairs, statistics)
    if level == "sample":
        return _sample_level(pairs, statistics, intervals)
    return _system_level(pairs, statistics)


def _summary_level(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> LevelEstimate:
    """The mean over groups of the correlation within the group.

    Groups in which all ratings are equal are left out; those in which only the scores are all equal count 0.
    """
    values = _within_groups(pairs.ratings, pairs.scores, pairs, statistics)
    ranked = ~np.isnan(_within_groups(pairs.ratings, pairs.ratings, pairs, ["pearson"])[0])
    constant = ranked & np.isnan(values[0])
    without_constant = AgreementEstimate.of_groups(pairs.index, values, ranked & ~constant).values
    values[:, constant] = 0.0
    return LevelEstimate(AgreementEstimate.of_groups(pairs.index, values, ranked), constant, without_constant)


def _sample_level(pairs: RatingScorePairs, statistics: Sequence[Statistic], jackknife: bool) -> LevelEstimate:
    """The correlation over all candidates of all groups; 0 where the ratings differ and the scores do not."""
    if len(pairs.ratings) < 2 or np.ptp(pairs.ratings) == 0:
        return _undefined_estimate(pairs, statistics)
    values = correlations(pairs.ratings[None], pairs.scores[None], statistics)[:, 0]
    constant = pairs.groups_with_pairs & bool(np.isnan(values).any())
    estimate = AgreementEstimate(pairs.index, np.nan_to_num(values), pairs.groups_with_pairs)
    if jackknife:
        by_group = pairs.jackknife(lambda x, y: correlations(x, y, statistics))
        estimate = replace(
            AgreementEstimate.of_groups(pairs.index, by_group, pairs.groups_with_pairs), values=estimate.values
        )
    return LevelEstimate(estimate, constant, values)


def _system_level(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> LevelEstimate:
    """The correlation of mean ratings with mean scores over systems; 0 where only the mean scores do not differ.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems the value is undefined.
    """
    recurring = np.bincount(pairs.system)[pairs.system] > 1
    system = np.unique(pairs.system[recurring], return_inverse=True)[1]
    counts = np.bincount(system)
    if len(counts) < 3:
        return _undefined_estimate(pairs, statistics)
    # Rounded, because equal means of different values may differ in their last digits and would not tie.
    ratings, scores = (
        np.round(np.bincount(system, weights=_standardized(values[recurring])) / counts, 13)
        for values in (pairs.ratings, pairs.scores)
    )
    values = correlations(ratings[None], scores[None], statistics)[:, 0]
    if np.isnan(values).any():
        return _undefined_estimate(pairs, statistics, constant=bool(np.ptp(ratings) > 0))
    included_groups = np.bincount(pairs.group[recurring], minlength=pairs.groups) > 0
    estimate = AgreementEstimate(pairs.index, values, included_groups)
    return LevelEstimate(estimate, np.zeros(pairs.groups, dtype=bool), values)


def _standardized(values: Floats) -> Floats:
    """Deviations from the mean in units of the standard deviation; 0 where all values are equal."""
    if not len(values) or np.ptp(values) == 0:
        return np.zeros(len(values))
    deviations = values / np.abs(values).max()
    deviations = deviations - deviations.mean()
    return np.asarray(deviations / deviations.std())


def _undefined_estimate(
    pairs: RatingScorePairs, statistics: Sequence[Statistic], *, constant: bool = False
) -> LevelEstimate:
    """The estimate without a correlation: undefined, or 0 on all groups with pairs if only the scores are constant."""
    included_groups = pairs.groups_with_pairs & constant
    estimate = AgreementEstimate(pairs.index, np.full(len(statistics), 0.0 if constant else math.nan), included_groups)
    return LevelEstimate(estimate, included_groups, np.full(len(statistics), math.nan))


def _within_groups(x: Floats, y: Floats, pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> Floats:
    """The correlations of `x` with `y` in each group, shape (statistics, groups)."""
    values = np.full((len(statistics), pairs.groups), np.nan)
    sizes = np.bincount(pairs.group, minlength=pairs.groups)
    order = np.argsort(pairs.group, kind="stable")
    starts = np.cumsum(sizes) - sizes
    # Groups of similar size share one padded matrix, for one vectorised call.
    widths = np.where(sizes > 1, 2.0 ** np.ceil(np.log2(np.maximum(sizes, 1))), 0).astype(np.intp)
    for width in np.unique(widths[widths > 0]):
        columns = np.arange(width)
        members = np.flatnonzero(widths == width)
        for chunk in np.array_split(members, math.ceil(len(members) * width / 2**20)):
            filled = columns < sizes[chunk, None]
            pair_of_cell = order[np.where(filled, starts[chunk, None] + columns, 0)]
            values[:, chunk] = correlations(
                np.where(filled, x[pair_of_cell], np.nan), np.where(filled, y[pair_of_cell], np.nan), statistics
            )
    return values
