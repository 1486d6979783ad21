"""P-values by flipping signs: if two judges are equally good, exchanging their scores in a group changes nothing.

Under that hypothesis the sign of each group's difference is a fair coin, whatever its size (Fisher 1935, chapter 3;
Pitman 1937). So the p-value is the share of all ways to flip the groups' signs that give a difference at least as large
as the one found. This assumes no normal distribution and keeps the error of the first kind with any number of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from debate_judge.data.agreement.bootstrap import Indices, bundle
from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.results import MIN_GROUPS

Key = TypeVar("Key")

EXACT = 16
"""Largest number of units for which all 2^16 = 65,536 ways to flip are computed."""

FLIPS = 100_000
"""Number of random ways with more units: a p-value of .05 then has a standard error of .0007."""

_MOST = 256
"""Most units that are flipped: more groups are flipped in bundles, which is as valid and hardly loses power."""

_CHUNK = 4096
"""Ways that are computed at once."""


def flip_units(groups: int, seed: int) -> Indices:
    """Index of the unit that each group is flipped with, shape (groups,)."""
    return bundle(groups, seed, most=_MOST)


def p_of_mean(contributions: Floats, seed: int) -> float | None:
    """The p-value of a sum of group contributions, e.g. of paired differences divided by their number.

    Args:
        contributions: Of each group, shape (groups,).
        seed: For random flips.

    Returns:
        Two-sided; None below `MIN_GROUPS`.
    """
    groups = len(contributions)
    unit = flip_units(groups, seed)
    summed = np.bincount(unit, weights=contributions) if groups > _MOST else contributions
    # Flipping 0 changes nothing, so units with 0 are left out, which makes more cases exact.
    summed = summed[summed != 0]
    return p_of_flips(lambda signs: summed @ signs, groups, len(summed), seed=seed)


def p_of_flips(
    statistic: Callable[[Floats], Floats], groups: int, units: int, *, seed: int, flips: int = FLIPS
) -> float | None:
    """The p-value of a statistic that is recomputed for flipped units.

    Args:
        statistic: Signs of shape (units, ways) -> values of shape (ways,); flipping all signs must negate the value.
        groups: Number of groups that it is computed from.
        units: Number of units that are flipped.
        seed: For random flips.
        flips: Number of random flips where there are more than `EXACT` units.

    Returns:
        Two-sided; None below `MIN_GROUPS`.
    """
    if groups < MIN_GROUPS:
        return None
    if units < 2:
        return 1.0  # A single unit is as large when it is flipped.
    from scipy.stats import permutation_test

    def rounded(signs: Floats, axis: int) -> Floats:
        # Rounded, so that the last digits do not decide whether a value equal to the one found counts.
        return np.round(statistic(np.atleast_2d(signs).T).reshape(signs.shape[:-1]), 12)

    found = permutation_test(
        (np.ones(units),),
        rounded,
        permutation_type="samples",
        vectorized=True,
        n_resamples=1 << EXACT if units <= EXACT else flips,
        batch=_CHUNK,
        axis=-1,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def correct(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of one family of comparisons by Holm's step-down procedure (Holm 1979), in the given order.

    Comparisons with too few groups for a p-value stay None and do not count for the family, because they can never be
    called significant.
    """
    known = [(p, i) for i, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(sorted(known)):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[i] = highest
    return adjusted


def correct_named(p_values: Mapping[Key, float | None]) -> dict[Key, float | None]:
    """`correct`, by name."""
    return dict(zip(p_values, correct(list(p_values.values())), strict=True))
