"""Compares two judges on the same candidates: the difference of their agreement, its interval, p-value and power.

The interval is that of the paired group differences, and the p-value comes from flipping their signs
(`data/agreement/sign_flips.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from debate_judge.data.agreement.bootstrap import (
    GroupIndex,
    Indices,
    LevelEstimate,
    Pairs,
    count_units,
    pairs_of_groups,
    resample,
)
from debate_judge.data.agreement.correlations import Floats, Statistic, correlations
from debate_judge.data.agreement.intervals import (
    bootstrap_error,
    detectable_difference,
    groups_to_detect,
    mean_influences,
    of_differences,
    of_group_differences,
    standard_error,
)
from debate_judge.data.agreement.levels import sample_level, summary_level, system_level
from debate_judge.data.agreement.results import Difference, GroupScores
from debate_judge.data.agreement.sign_flips import flip_units, p_of_flips, p_of_mean
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level

T = TypeVar("T")

LevelFunction = Callable[[Pairs, Sequence[Statistic]], LevelEstimate]


def level_function(level: Level, *, draw_systems: bool, seed: int, intervals: bool = True) -> LevelFunction:
    """The function that computes the values at a level; see `data/agreement/levels.py` for the other arguments."""
    if level == "system":
        return partial(system_level, draw_systems=draw_systems, seed=seed)
    return summary_level if level == "summary" else partial(sample_level, intervals=intervals)


SMALL = 0.02
"""Smallest difference in correlation that is considered relevant."""

_FLIPS = 10_000
"""Random flips at system level, where every flip has to rank all systems again."""


def compare(
    a: Mapping[str, Sequence[GroupScores]],
    b: Mapping[str, Sequence[GroupScores]],
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    resamples: int = 10_000,
    seed: int = 0,
    draw_systems: bool = False,
    family: int = 1,
) -> Difference:
    """Agreement of judge `a` minus that of judge `b` on the same groups.

    Both are compared on the same candidates and groups: a candidate that either left unscored is left out for
    both, and so is a group (at the other levels an aspect) in which the ratings do not differ. Where only a judge's
    scores do not differ, its correlation counts as 0.

    At summary level the interval is t on the paired group differences and the p-value flips their signs; at sample
    level the jackknife's pseudo-values take the place of group values. At system level the interval is t with the
    bootstrap's deviation, and a flip exchanges the two judges' scores, in units of the deviation, within a group.

    Args:
        a: Aspect name -> groups.
        b: The same aspects, groups, candidates and ratings with another judge's scores.
        statistic: What to compare.
        level: Where it is computed.
        resamples: Number of times that the groups are resampled, jointly for all aspects, at system level; 0 for no
            interval at any level.
        seed: For the resampling and the flips.
        draw_systems: At system level, resample the systems too: the interval (not the p-value) is about all like these.
        family: Number of comparisons whose intervals are to hold together in 95 % of cases (Bonferroni).

    Raises:
        InputError: the two differ in aspects, groups, candidates or ratings, or there is no aspect.
    """
    if set(a) != set(b):
        raise InputError(
            "two judges can only be compared on the same aspects", expected=", ".join(a), found=", ".join(b)
        )
    index = GroupIndex.of(a, seed)
    estimate = level_function(level, draw_systems=draw_systems, seed=seed)
    pairs: list[tuple[Pairs, Pairs]] = []
    both: list[LevelEstimate] = []
    for name in a:
        first, second = (pairs_of_groups(g, index) for g in _on_same_candidates(a[name], b[name]))
        estimates = [estimate(p, [statistic]) for p in (first, second)]
        if not np.isnan(estimates[0].values[0]):
            both += estimates
            pairs.append((first, second))
    if not both:
        return Difference(None, None, None, None, 0)
    value = math.fsum(x.values[0] - y.values[0] for x, y in _couples(both)) / len(pairs)
    if level != "system":
        return _of_means(value, both, index, intervals=resamples > 0, seed=seed, family=family)
    groups = index.sources(np.logical_or.reduce([e.rests_on for e in both]))
    p_value = _p_of_swaps(pairs, statistic, groups, seed)
    plain = Difference(value, None, None, p_value, groups)
    return _resampled(plain, both, index.units, resamples=resamples, seed=seed, family=family)


def _resampled(
    found: Difference,
    both: Sequence[LevelEstimate],
    drawn: int,
    *,
    resamples: int,
    seed: int,
    family: int,
) -> Difference:
    """The difference with its interval from resampled groups."""
    value, groups = found.value, found.groups
    if value is None or not resamples or groups < 2:
        return found
    replicates = resample(both, drawn, resamples=resamples, seed=seed)
    differences = np.mean([x[0] - y[0] for x, y in _couples(replicates)], axis=0)
    units = min(e.units for e in both)
    low, high, method = of_differences(value, differences, units, family)
    deviation = bootstrap_error(differences, units) * math.sqrt(groups)
    return replace(found, low=low, high=high, method=method, deviation=deviation)


@dataclass(frozen=True, slots=True)
class Power:
    """The true difference that a comparison was able to detect, see `intervals.detectable_difference`."""

    groups: int
    """Number of groups compared on."""
    detectable: float
    """The least true difference that a comparison like this one calls significant in 80 % of cases."""
    more_for_small: int
    """How many more groups it would take to detect a difference of `SMALL`; 0 if these are enough."""


def power_of(found: Difference) -> Power | None:
    """The power of a comparison, from the standard deviation of group differences that it found; None without one."""
    if found.deviation is None or found.deviation < 1e-9:
        return None
    needed = groups_to_detect(SMALL, found.deviation)
    return Power(found.groups, detectable_difference(found.deviation, found.groups), max(0, needed - found.groups))


def _of_means(
    value: float, both: Sequence[LevelEstimate], index: GroupIndex, *, intervals: bool, seed: int, family: int
) -> Difference:
    rests_on = np.logical_or.reduce([e.rests_on for e in both])
    by_group = [x.by_group - y.by_group for x, y in _couples(both) if x.by_group is not None and y.by_group is not None]
    shares = [np.nan_to_num(d) / np.count_nonzero(~np.isnan(d)) / len(by_group) for d in by_group]
    p_value = p_of_mean(index.by_source(np.sum(shares, axis=0), rests_on)[0], seed)
    influences = index.by_source(mean_influences(by_group), rests_on)[0]
    groups = len(influences)
    if not intervals or groups < 2:
        return Difference(value, None, None, p_value, groups)
    low, high, method = of_group_differences(value, influences, family)
    return Difference(value, low, high, p_value, groups, method, standard_error(influences) * math.sqrt(groups))


def _p_of_swaps(pairs: Sequence[tuple[Pairs, Pairs]], statistic: Statistic, groups: int, seed: int) -> float | None:
    """The p-value at system level by exchanging the judges' scores within groups, in all aspects at once."""
    source = pairs[0][0].index.source
    unit_of_group = flip_units(count_units(source), seed)[source]
    units = count_units(unit_of_group)
    parts = [_systems_by_flips(*two, unit_of_group, units, statistic) for two in pairs]

    def difference(signs: Floats) -> Floats:
        total: Floats = np.sum([part(signs) for part in parts], axis=0)
        return total

    return p_of_flips(difference, groups, units, seed=seed, flips=_FLIPS)


def _systems_by_flips(
    a: Pairs, b: Pairs, unit_of_group: Indices, units: int, statistic: Statistic
) -> Callable[[Floats], Floats]:
    """The difference of system-level correlations for flipped units."""
    recurring = np.bincount(a.system)[a.system] > 1
    systems, system = np.unique(a.system[recurring], return_inverse=True)
    unit = unit_of_group[a.group[recurring]]
    sizes = np.bincount(system)
    rated = np.bincount(system, weights=a.ratings[recurring]) / sizes
    sums = []
    for scores in (a.scores, b.scores):
        table = np.zeros((len(systems), units))
        np.add.at(table, (system, unit), _in_deviations(scores[recurring]))
        sums.append(table / sizes[:, None])
    ratings = np.round(rated, 12)

    def correlation(own: Floats) -> Floats:
        means = np.round(sums[0] @ own + sums[1] @ (1 - own), 12).T
        return np.nan_to_num(correlations(np.broadcast_to(ratings, means.shape), means, [statistic])[0])

    def difference(signs: Floats) -> Floats:
        own = (1 + signs) / 2
        return correlation(own) - correlation(1 - own)

    return difference


def _in_deviations(values: Floats) -> Floats:
    """The values minus their mean and in units of their deviation; 0 where they do not differ."""
    if np.ptp(values) == 0:
        return np.zeros(len(values))
    found = values / np.abs(values).max()
    found = found - found.mean()
    return np.asarray(found / found.std())


def _on_same_candidates(
    a: Sequence[GroupScores], b: Sequence[GroupScores]
) -> tuple[list[GroupScores], list[GroupScores]]:
    """Both judges' groups in the order of `a`, unscored wherever either is."""
    others = {group.group: group for group in b}
    if len(a) != len(b) or any(group.group not in others for group in a):
        raise InputError("two judges can only be compared on the same groups")
    first, second = [], []
    for group in a:
        other = others[group.group]
        rows = {c: (r, s) for c, r, s in zip(other.candidates, other.ratings, other.scores, strict=True)}
        if {c: r for c, (r, _) in rows.items()} != dict(zip(group.candidates, group.ratings, strict=True)):
            raise InputError(f"the two judges have different candidates or ratings in group {group.group!r}")
        scores = [rows[c][1] for c in group.candidates]
        scored = [
            (x, y) if x is not None and y is not None else (None, None)
            for x, y in zip(group.scores, scores, strict=True)
        ]
        first.append(replace(group, scores=tuple(x for x, _ in scored)))
        second.append(replace(group, scores=tuple(y for _, y in scored)))
    return first, second


def _couples(values: Sequence[T]) -> Iterator[tuple[T, T]]:
    return zip(values[::2], values[1::2], strict=True)
