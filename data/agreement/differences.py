"""Compares two judges on the same candidates: the difference of their agreement, its interval, p-value and power.

The interval is that of the paired group differences, and the p-value that of a sign-flip permutation test (Fisher 1935,
chapter 3; Pitman 1937): if two judges are equally good, the sign of each group's difference is a fair coin whatever its
size, so the p-value is the share of all sign assignments whose difference is at least as large as the observed one.
This assumes no normal distribution and keeps the type I error with any number of groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from debate_judge.data.agreement.correlations import Floats, Statistic
from debate_judge.data.agreement.estimates import AgreementEstimate, GroupIndex, bundle, estimate_level, rated_pairs
from debate_judge.data.agreement.intervals import detectable_difference, groups_to_detect, t_interval
from debate_judge.data.agreement.results import MIN_GROUPS_FOR_P_VALUE, Difference, GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import ROUNDING_ERROR, Level

Key = TypeVar("Key")

MIN_EFFECT = 0.02
"""Smallest difference in correlation that is considered relevant."""

MAX_EXACT_UNITS = 16
"""Largest number of units for which all 2^16 = 65,536 sign assignments are computed."""

RANDOM_FLIPS = 100_000
"""Number of random sign assignments with more units: a p-value of .05 then has a standard error of .0007."""

_CHUNK = 4096
"""Sign assignments that are computed at once."""


def compare(
    a: Mapping[str, Sequence[GroupScores]],
    b: Mapping[str, Sequence[GroupScores]],
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    seed: int = 0,
    family_size: int = 1,
) -> Difference:
    """Agreement of judge `a` minus that of judge `b` on the same groups.

    Both are compared on the same candidates: one that either judge left unscored is left out for both, and so is a
    group (at the other levels an aspect) in which all ratings are equal. Where only a judge's scores are all equal, its
    correlation counts as 0.

    At summary level the interval is t on the paired group differences and the p-value flips their signs; at sample
    level the jackknife's pseudo-values take the place of group values. At system level
    there is neither.

    Args:
        a: Aspect name -> groups.
        b: The same aspects, groups, candidates and ratings with another judge's scores.
        statistic, level: The correlation, and where it is computed.
        seed: For the flips, and the bundles of many sources.
        family_size: Number of comparisons whose intervals are to hold together in 95 % of cases (Bonferroni).

    Raises:
        InputError: The two differ in aspects, groups, candidates or ratings, or there is no aspect.
    """
    if set(a) != set(b):
        raise InputError(
            "two judges can only be compared on the same aspects", expected=", ".join(a), found=", ".join(b)
        )
    index = GroupIndex.build(a, seed)
    differences: list[AgreementEstimate] = []
    for name in a:
        both = [rated_pairs(groups, index) for groups in _on_same_candidates(a[name], b[name])]
        first, second = (estimate_level(level, judge, [statistic]).estimate for judge in both)
        if not np.isnan(first.values[0]):
            differences.append(first - second)
    if not differences:
        return Difference(None, p_value=None, groups=0)
    mean = AgreementEstimate.mean(differences)
    value, error, groups = float(mean.values[0]), float(mean.standard_errors[0]), mean.sources
    if mean.contributions is None:
        return Difference(value, p_value=None, groups=groups)
    p_value = sign_flip_p_value(mean.contributions[0, mean.included_sources], seed)
    if math.isnan(error):
        return Difference(value, p_value=p_value, groups=groups)
    interval = t_interval(value, error, groups, family_size)
    low, high = np.array([interval.low, interval.high], dtype=float).clip(-2.0, 2.0).tolist()
    deviation = error * math.sqrt(groups)
    return Difference(value, low, high, interval.method, p_value=p_value, groups=groups, deviation=deviation)


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


def _on_same_candidates(
    a: Sequence[GroupScores], b: Sequence[GroupScores]
) -> tuple[list[GroupScores], list[GroupScores]]:
    """Both judges' groups in the order of `a`, without the scores of candidates that either left unscored."""
    group_of_b = {group.group: group for group in b}
    if len(a) != len(b) or any(group.group not in group_of_b for group in a):
        raise InputError("two judges can only be compared on the same groups")
    first, second = [], []
    for group in a:
        other = group_of_b[group.group]
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


def sign_flip_p_value(contributions: Floats, seed: int) -> float | None:
    """The two-sided p-value of a sum of contributions of groups, shape (groups,), e.g. of paired differences divided by
    their number; None below `MIN_GROUPS_FOR_P_VALUE`."""
    if len(contributions) < MIN_GROUPS_FOR_P_VALUE:
        return None
    summed = np.bincount(bundle(np.arange(len(contributions)), seed), weights=contributions)
    # Flipping a 0 changes nothing; without these units more cases are computed exactly.
    nonzero = summed[summed != 0]
    if len(nonzero) < 2:
        return 1.0  # Flipping a single unit leaves the absolute value as it is.
    from scipy.stats import permutation_test

    def rounded(signs: Floats, axis: int) -> Floats:
        # Rounded, so that the last digits do not decide whether a value equals the observed one.
        return np.round(signs @ nonzero, 12)

    test = permutation_test(
        (np.ones(len(nonzero)),),
        rounded,
        permutation_type="samples",
        vectorized=True,
        n_resamples=1 << MAX_EXACT_UNITS if len(nonzero) <= MAX_EXACT_UNITS else RANDOM_FLIPS,
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
