"""Correlations of one aspect at each level, as a value and its values without each source.

Averages over aspects and differences between judges are those of both, so that every interval and test rests on the
same sources left out in turn. Correlations over systems have neither: a single source hardly moves such a correlation,
and noise in the means of the systems attenuates it, which no interval corrects. Undefined is NaN here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from debate_judge.data.agreement.correlations import Floats, Statistic, correlations
from debate_judge.data.agreement.intervals import Indices, Mask, bundle, standard_errors, without_each
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """The groups of all aspects, with the source and the unit of resampling of each."""

    number_of_group: Mapping[str, int]
    """Group id -> number."""
    source: Indices
    """Number of each group's source, shape (groups,): several pairs of texts may have the same source."""
    unit: Indices
    """Number of the unit that each group is left out with, shape (groups,)."""

    @classmethod
    def build(cls, aspects: Mapping[str, Sequence[GroupScores]], seed: int) -> GroupIndex:
        """Number the groups, their sources and units; `seed` determines the random bundles of many sources.

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
        source = np.unique(list(source_of.values()), return_inverse=True)[1]
        return cls({name: i for i, name in enumerate(source_of)}, source, bundle(source, seed))

    @property
    def units(self) -> int:
        return int(self.unit.max(initial=-1)) + 1


@dataclass(frozen=True, slots=True)
class RatingScorePairs:
    """The candidates of one aspect that have both rating and score; arrays have shape (pairs,)."""

    ratings: Floats
    scores: Floats
    group: Indices
    """Number of the pair's group."""
    system: Indices
    """Number of the pair's candidate id."""
    index: GroupIndex
    """Of all groups, including those without pairs."""

    @property
    def unit(self) -> Indices:
        return self.index.unit[self.group]

    @property
    def groups_with_pairs(self) -> Mask:
        """Mask of the groups that have pairs, shape (groups,)."""
        return np.bincount(self.group, minlength=len(self.index.source)) > 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Statistics of one aspect, or averaged over aspects."""

    values: Floats
    """Shape (statistics,)."""
    without: Floats
    """The values without each unit, shape (statistics, units); NaN without an interval."""
    included: Mask
    """Mask of the groups that the values are computed from, shape (groups,)."""
    index: GroupIndex
    constant: int = 0
    """Number of included groups whose scores are constant, summed over aspects."""

    @classmethod
    def mean(cls, aspects: Sequence[Estimate]) -> Estimate:
        """The mean over aspects."""
        values, without = (np.mean(v, axis=0) for v in ([e.values for e in aspects], [e.without for e in aspects]))
        included = np.logical_or.reduce([e.included for e in aspects])
        return cls(values, without, included, aspects[0].index, sum(e.constant for e in aspects))

    def __sub__(self, other: Estimate) -> Estimate:
        """The paired difference from an estimate of the same statistics from the same groups."""
        values, without = self.values - other.values, self.without - other.without
        return Estimate(values, without, self.included | other.included, self.index)

    @property
    def sources(self) -> int:
        """Number of sources that the values are computed from."""
        return len(np.unique(self.index.source[self.included]))

    @property
    def without_included(self) -> Floats:
        """`without` the units that the values are computed from alone."""
        return self.without[:, np.unique(self.index.unit[self.included])]

    @property
    def standard_errors(self) -> Floats:
        """Shape (statistics,); NaN without an interval, or with fewer than two sources."""
        return standard_errors(self.values, self.without_included)


def rated_pairs(
    groups: Sequence[GroupScores], index: GroupIndex, left_out: Set[tuple[str, str]] = frozenset()
) -> RatingScorePairs:
    """The candidates of one aspect that are both rated and scored, but those `left_out` (group and candidate id)."""
    systems: dict[str, int] = {}
    rows = [
        (rating, score, index.number_of_group[group.group], systems.setdefault(candidate, len(systems)))
        for group in groups
        for candidate, rating, score in zip(group.candidates, group.ratings, group.scores, strict=True)
        if rating is not None and score is not None and (group.group, candidate) not in left_out
    ]
    ratings, scores, group, system = np.array(rows, dtype=float).reshape(-1, 4).T
    return RatingScorePairs(ratings, scores, group.astype(np.intp), system.astype(np.intp), index)


def estimate_level(level: Level, pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> Estimate:
    """Compute the correlations of one aspect at a level; 0 where the scores are constant and the ratings are not."""
    by_level = {"summary": _summary_level, "sample": _sample_level, "system": _system_level}
    return by_level[level](pairs, statistics)


def _summary_level(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> Estimate:
    """The mean over groups of the correlation within the group.

    Groups in which all ratings are equal are left out; those in which only the scores are all equal count 0.
    """
    index = pairs.index
    by_group = _within_groups(pairs, statistics)
    lowest, highest = (np.full(len(index.source), end) for end in (np.inf, -np.inf))
    np.minimum.at(lowest, pairs.group, pairs.ratings)
    np.maximum.at(highest, pairs.group, pairs.ratings)
    ranked = highest > lowest
    constant = ranked & np.isnan(by_group[0])
    values = np.where(ranked & ~constant, by_group, 0.0)
    sums = np.stack([np.bincount(index.unit, row, minlength=index.units) for row in values])
    counts = np.bincount(index.unit, ranked, minlength=index.units)
    total = values.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        without = np.nan_to_num((total[:, None] - sums) / (ranked.sum() - counts))
        return Estimate(total / ranked.sum(), without, ranked, index, int(constant.sum()))


def _within_groups(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> Floats:
    """The correlations in each group, shape (statistics, groups); NaN where undefined."""
    groups = len(pairs.index.source)
    values = np.full((len(statistics), groups), np.nan)
    sizes = np.bincount(pairs.group, minlength=groups)
    order = np.argsort(pairs.group, kind="stable")
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[sizes > 1]):
        members = np.flatnonzero(sizes == size)
        cells = order[starts[members, None] + np.arange(size)]
        values[:, members] = correlations(pairs.ratings[cells], pairs.scores[cells], statistics)
    return values


def _sample_level(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> Estimate:
    """The correlation over all candidates of all groups."""
    estimate = _pooled(pairs, pairs.ratings, pairs.scores, pairs.groups_with_pairs, statistics)
    if not estimate.included.any():
        return estimate

    def of(kept: Mask) -> Floats:
        return correlations(pairs.ratings[None, kept], pairs.scores[None, kept], statistics)[:, 0]

    return replace(estimate, without=without_each(of, pairs.unit, pairs.index.units))


def _system_level(pairs: RatingScorePairs, statistics: Sequence[Statistic]) -> Estimate:
    """The correlation of mean ratings with mean scores over systems.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems the value is undefined.
    """
    recurring = np.bincount(pairs.system)[pairs.system] > 1
    system = np.unique(pairs.system[recurring], return_inverse=True)[1]
    counts = np.bincount(system)
    # Rounded, because equal means of different values may differ in their last digits and would not tie.
    ratings, scores = (
        np.round(np.bincount(system, values[recurring] / (np.abs(values).max(initial=0.0) or 1.0)) / counts, 13)
        for values in (pairs.ratings, pairs.scores)
    )
    included = np.bincount(pairs.group[recurring], minlength=len(pairs.index.source)) > 0
    return _pooled(pairs, ratings, scores, included & (len(counts) > 2), statistics)


def _pooled(
    pairs: RatingScorePairs, ratings: Floats, scores: Floats, included: Mask, statistics: Sequence[Statistic]
) -> Estimate:
    """One correlation of values from the `included` groups; NaN where these or their ratings are too few or equal, and
    0 where only the scores are equal."""
    included = included & (len(ratings) > 1 and np.ptp(ratings) > 0)
    values = np.full(len(statistics), np.nan)
    constant = False
    if included.any():
        values = correlations(ratings[None], scores[None], statistics)[:, 0]
        constant = bool(np.isnan(values).any())
        values = np.nan_to_num(values)
    without = np.full((len(statistics), pairs.index.units), np.nan)
    return Estimate(values, without, included, pairs.index, int(included.sum()) if constant else 0)
