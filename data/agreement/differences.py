"""Compares two judges on the same candidates: the difference of their agreement, its interval, p-value and power.

The interval is that of the paired group differences, and the p-value that of a sign-flip permutation test (Fisher 1935,
chapter 3; Pitman 1937): if two judges are equally good, the sign of each group's difference is a fair coin whatever its
size, so the p-value is the share of all sign assignments whose difference is at least as large as the observed one.
This assumes no normal distribution and keeps the type I error with any number of groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import (
    GroupIndex,
    Indices,
    LevelEstimate,
    RatingScorePairs,
    bundle,
    count_units,
    rated_pairs,
)
from debate_judge.data.agreement.correlations import Floats, Statistic, correlations
from debate_judge.data.agreement.intervals import (
    bootstrap_difference_interval,
    bootstrap_standard_error,
    detectable_difference,
    groups_to_detect,
    mean_influences,
    standard_error,
    t_interval,
)
from debate_judge.data.agreement.levels import sample_level, summary_level, system_level
from debate_judge.data.agreement.results import MIN_GROUPS_FOR_P_VALUE, Difference, GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import ROUNDING_ERROR, Level

Key = TypeVar("Key")

LevelFunction = Callable[[RatingScorePairs, Sequence[Statistic]], LevelEstimate]

_Estimates = tuple[LevelEstimate, LevelEstimate]
"""Both judges' estimates in one aspect."""


def level_function(level: Level, *, intervals: bool = True, **system_options: Any) -> LevelFunction:
    """The function that computes correlations at a level; `system_options` are arguments of `levels.system_level`."""
    if level == "system":
        return partial(system_level, **system_options)
    return summary_level if level == "summary" else partial(sample_level, intervals=intervals)


MIN_EFFECT = 0.02
"""Smallest difference in correlation that is considered relevant."""

MAX_EXACT_UNITS = 16
"""Largest number of units for which all 2^16 = 65,536 sign assignments are computed."""

RANDOM_FLIPS = 100_000
"""Number of random sign assignments with more units: a p-value of .05 then has a standard error of .0007."""

_MAX_UNITS = 256
"""Maximum number of units; more groups are flipped in random bundles, which is as valid and hardly loses power."""

_CHUNK = 4096
"""Sign assignments that are computed at once."""

_SYSTEM_FLIPS = 10_000
"""Random sign assignments at system level, where each has to rank all systems again."""


def compare(
    a: Mapping[str, Sequence[GroupScores]],
    b: Mapping[str, Sequence[GroupScores]],
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    resamples: int = 10_000,
    seed: int = 0,
    draw_systems: bool = False,
    family_size: int = 1,
) -> Difference:
    """Agreement of judge `a` minus that of judge `b` on the same groups.

    Both are compared on the same candidates: one that either judge left unscored is left out for both, and so is a
    group (at the other levels an aspect) in which all ratings are equal. Where only a judge's scores are all equal, its
    correlation counts as 0.

    At summary level the interval is t on the paired group differences and the p-value flips their signs; at sample
    level the jackknife's pseudo-values take the place of group values. At system level the interval is t with the
    bootstrap's standard error, and a flip exchanges the two judges' standardized scores within a group.

    Args:
        a: Aspect name -> groups.
        b: The same aspects, groups, candidates and ratings with another judge's scores.
        statistic: What to compare.
        level: Where it is computed.
        resamples: Number of times that the groups are resampled, jointly for all aspects, at system level; 0 for no
            interval at any level.
        seed: For the resampling and the flips.
        draw_systems: At system level, resample the systems too, so that the interval generalises to similar systems.
        family_size: Number of comparisons whose intervals are to hold together in 95 % of cases (Bonferroni).

    Raises:
        InputError: the two differ in aspects, groups, candidates or ratings, or there is no aspect.
    """
    if set(a) != set(b):
        raise InputError(
            "two judges can only be compared on the same aspects", expected=", ".join(a), found=", ".join(b)
        )
    index = GroupIndex.build(a, seed)
    estimate = level_function(level, resamples=resamples, seed=seed, draw_systems=draw_systems)
    pairs: list[tuple[RatingScorePairs, RatingScorePairs]] = []
    estimates: list[_Estimates] = []
    for name in a:
        first, second = (rated_pairs(g, index) for g in _on_same_candidates(a[name], b[name]))
        both = estimate(first, [statistic]), estimate(second, [statistic])
        if not np.isnan(both[0].values[0]):
            estimates.append(both)
            pairs.append((first, second))
    if not estimates:
        return Difference(None, None, None, None, 0)
    value = math.fsum(x.values[0] - y.values[0] for x, y in estimates) / len(pairs)
    if level != "system":
        return _difference_of_means(value, estimates, index, seed, family_size if resamples else None)
    groups = index.count_sources(_included_groups(estimates))
    p_value = _system_level_p_value(pairs, statistic, groups, seed)
    difference = Difference(value, None, None, p_value, groups)
    if not resamples or groups < 2:
        return difference
    return _with_bootstrap_interval(difference, value, estimates, family_size)


def _included_groups(estimates: Sequence[_Estimates]) -> NDArray[np.bool_]:
    return np.asarray(np.logical_or.reduce([e.included_groups for both in estimates for e in both]))


def _with_bootstrap_interval(
    difference: Difference, value: float, estimates: Sequence[_Estimates], family_size: int
) -> Difference:
    """The difference with its interval from resampled groups."""
    replicates = [
        x.replicates[0] - y.replicates[0] for x, y in estimates if x.replicates is not None and y.replicates is not None
    ]
    differences = np.mean(replicates, axis=0)
    units = min(e.units for both in estimates for e in both)
    low, high, method = bootstrap_difference_interval(value, differences, units, family_size)
    deviation = bootstrap_standard_error(differences, units) * math.sqrt(difference.groups)
    return replace(difference, low=low, high=high, method=method, deviation=deviation)


@dataclass(frozen=True, slots=True)
class Power:
    """The true difference that a comparison could detect, see `intervals.detectable_difference`."""

    groups: int
    """Number of groups compared on."""
    detectable: float
    """Smallest true difference that a comparison like this one finds significant in 80 % of cases."""
    more_for_small: int
    """Number of further groups needed to detect a difference of `MIN_EFFECT`; 0 if these are enough."""


def statistical_power(difference: Difference) -> Power | None:
    """The power of a comparison, from the standard deviation of its group differences; None without one."""
    if difference.deviation is None or difference.deviation < ROUNDING_ERROR:
        return None
    needed = groups_to_detect(MIN_EFFECT, difference.deviation)
    return Power(
        difference.groups,
        detectable_difference(difference.deviation, difference.groups),
        max(0, needed - difference.groups),
    )


def _difference_of_means(
    value: float, estimates: Sequence[_Estimates], index: GroupIndex, seed: int, family_size: int | None
) -> Difference:
    """The difference of means over groups; without an interval where `family_size` is None."""
    included_groups = _included_groups(estimates)
    by_group = [x.by_group - y.by_group for x, y in estimates if x.by_group is not None and y.by_group is not None]
    shares = [np.nan_to_num(d) / np.count_nonzero(~np.isnan(d)) / len(by_group) for d in by_group]
    p_value = sign_flip_p_value(index.sum_by_source(np.sum(shares, axis=0), included_groups)[0], seed)
    influences = index.sum_by_source(mean_influences(by_group), included_groups)[0]
    groups = len(influences)
    if family_size is None or groups < 2:
        return Difference(value, None, None, p_value, groups)
    low, high, method = t_interval(value, influences, family_size)
    return Difference(value, low, high, p_value, groups, method, standard_error(influences) * math.sqrt(groups))


def _system_level_p_value(
    pairs: Sequence[tuple[RatingScorePairs, RatingScorePairs]], statistic: Statistic, groups: int, seed: int
) -> float | None:
    """The p-value at system level by exchanging the judges' scores within groups, in all aspects at once."""
    source = pairs[0][0].index.source_of_group
    unit_of_group = flip_units(count_units(source), seed)[source]
    units = count_units(unit_of_group)
    of_aspects = [_flipped_system_difference(*judges, unit_of_group, units, statistic) for judges in pairs]

    def difference(signs: Floats) -> Floats:
        total: Floats = np.sum([of_aspect(signs) for of_aspect in of_aspects], axis=0)
        return total

    return permutation_p_value(difference, groups, units, seed=seed, flips=_SYSTEM_FLIPS)


def _flipped_system_difference(
    a: RatingScorePairs, b: RatingScorePairs, unit_of_group: Indices, units: int, statistic: Statistic
) -> Callable[[Floats], Floats]:
    """A function from signs, shape (units, assignments), to differences of system-level correlations."""
    recurring = np.bincount(a.system)[a.system] > 1
    systems, system = np.unique(a.system[recurring], return_inverse=True)
    unit = unit_of_group[a.group[recurring]]
    sizes = np.bincount(system)
    rating_means = np.bincount(system, weights=a.ratings[recurring]) / sizes
    sums = []
    for scores in (a.scores, b.scores):
        table = np.zeros((len(systems), units))
        np.add.at(table, (system, unit), _standardized(scores[recurring]))
        sums.append(table / sizes[:, None])
    ratings = np.round(rating_means, 12)

    def correlation(weights: Floats) -> Floats:
        means = np.round(sums[0] @ weights + sums[1] @ (1 - weights), 12).T
        return np.nan_to_num(correlations(np.broadcast_to(ratings, means.shape), means, [statistic])[0])

    def difference(signs: Floats) -> Floats:
        share = (1 + signs) / 2
        return correlation(share) - correlation(1 - share)

    return difference


def _standardized(values: Floats) -> Floats:
    """Deviations from the mean in units of the standard deviation; 0 where all values are equal."""
    if np.ptp(values) == 0:
        return np.zeros(len(values))
    deviations = values / np.abs(values).max()
    deviations = deviations - deviations.mean()
    return np.asarray(deviations / deviations.std())


def _on_same_candidates(
    a: Sequence[GroupScores], b: Sequence[GroupScores]
) -> tuple[list[GroupScores], list[GroupScores]]:
    """Both judges' groups in the order of `a`, without the scores of candidates that either left unscored."""
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


# --- p-values by flipping signs, and their correction ---


def flip_units(groups: int, seed: int) -> Indices:
    """Index of the unit that each group is flipped with, shape (groups,)."""
    return bundle(groups, seed, max_units=_MAX_UNITS)


def sign_flip_p_value(contributions: Floats, seed: int) -> float | None:
    """The p-value of a sum of group contributions, e.g. of paired differences divided by their number.

    Args:
        contributions: One per group, shape (groups,).
        seed: For random flips.

    Returns:
        Two-sided; None below `MIN_GROUPS_FOR_P_VALUE`.
    """
    groups = len(contributions)
    unit = flip_units(groups, seed)
    summed = np.bincount(unit, weights=contributions) if groups > _MAX_UNITS else contributions
    # Flipping a 0 changes nothing; without these units more cases are computed exactly.
    summed = summed[summed != 0]
    return permutation_p_value(lambda signs: summed @ signs, groups, len(summed), seed=seed)


def permutation_p_value(
    statistic: Callable[[Floats], Floats], groups: int, units: int, *, seed: int, flips: int = RANDOM_FLIPS
) -> float | None:
    """The p-value of a statistic that is recomputed for flipped units.

    Args:
        statistic: Signs of shape (units, assignments) -> values of shape (assignments,), odd in the signs.
        groups: Number of groups that it is computed from.
        units: Number of units that are flipped.
        seed: For random sign assignments.
        flips: Number of random sign assignments where there are more than `MAX_EXACT_UNITS` units.

    Returns:
        Two-sided; None below `MIN_GROUPS_FOR_P_VALUE`.
    """
    if groups < MIN_GROUPS_FOR_P_VALUE:
        return None
    if units < 2:
        return 1.0  # Flipping a single unit leaves the absolute value as it is.
    from scipy.stats import permutation_test

    def rounded(signs: Floats, axis: int) -> Floats:
        # Rounded, so that the last digits do not decide whether a value equals the observed one.
        return np.round(statistic(np.atleast_2d(signs).T).reshape(signs.shape[:-1]), 12)

    test = permutation_test(
        (np.ones(units),),
        rounded,
        permutation_type="samples",
        vectorized=True,
        n_resamples=1 << MAX_EXACT_UNITS if units <= MAX_EXACT_UNITS else flips,
        batch=_CHUNK,
        axis=-1,
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)


def holm_adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """The p-values of one family of comparisons, adjusted by Holm's step-down procedure (Holm 1979), in the same order.

    Comparisons with too few groups for a p-value stay None and do not count, because they can never be significant.
    """
    defined = [(p, i) for i, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(sorted(defined)):
        highest = max(highest, min(1.0, (len(defined) - rank) * p))
        adjusted[i] = highest
    return adjusted


def holm_adjusted_by_name(p_values: Mapping[Key, float | None]) -> dict[Key, float | None]:
    """`holm_adjusted`, by name."""
    return dict(zip(p_values, holm_adjusted(list(p_values.values())), strict=True))
