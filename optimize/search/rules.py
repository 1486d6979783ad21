"""How the point of an aspect is chosen from what all points did: partial pooling, and simpler rules to compare it with.

Arrays in, indices out; the same functions choose in a compile and in `tests/bench/selection.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from debate_judge.data.agreement.correlations import Floats
from debate_judge.optimize.search.pooling import pooled_means

MANY_GROUPS = 20
"""Groups of the choice from which on what is nearly the best is taken where it is cheaper."""

NEARLY = 0.005
"""Posterior agreement that is given up for fewer calls where there are `MANY_GROUPS`."""


SAME_COST = 0.05
"""Share of the calls by which points may differ and still cost the same; the plainer is taken then."""

_EQUAL = 1e-12
"""What rounding can make of equal agreements."""


@dataclass(frozen=True)
class Evaluated:
    """What all points did on the data of a choice. Points stand in the order of plainness, the plainest first."""

    values: Sequence[Floats]
    """For each aspect, of shape (points, groups): agreement in each group."""
    calls: Floats
    """LM calls per item, of shape (aspects, points)."""
    units: Sequence[Sequence[int]]
    """The aspects that get one judge together, by number."""
    tolerance: float = 0.02
    """For the one-standard-error rule: most agreement that is given up for fewer calls."""

    @property
    def means(self) -> Floats:
        """Agreement, of shape (aspects, points)."""
        return np.array([v.mean(axis=1) for v in self.values])


Rule = Callable[[Evaluated], list[int]]
"""From what the points did to the chosen point of each unit."""


def pooled(found: Evaluated) -> list[int]:
    """Partial pooling over aspects: the cheapest of those that are nearly the best, or with few groups the best."""
    posterior = pooled_means(found.values)
    chosen = []
    for unit in found.units:
        enough = min(found.values[a].shape[1] for a in unit) >= MANY_GROUPS
        chosen.append(
            _cheapest(posterior[unit].mean(axis=0), found.calls[unit].mean(axis=0), NEARLY if enough else 0.0)
        )
    return chosen


def best(found: Evaluated) -> list[int]:
    """The largest mean."""
    means = found.means
    return [_cheapest(means[unit].mean(axis=0), found.calls[unit].mean(axis=0), 0.0) for unit in found.units]


def together(found: Evaluated) -> list[int]:
    """One point for all aspects: the largest mean over all of them."""
    chosen = _cheapest(found.means.mean(axis=0), found.calls.mean(axis=0), 0.0)
    return [chosen for _ in found.units]


def one_standard_error(found: Evaluated) -> list[int]:
    """The cheapest within one standard error of the best (Breiman et al., Classification and Regression Trees, 1984,
    section 3.4.3), by the paired differences of groups, and never by more than the tolerance."""
    chosen = []
    for unit in found.units:
        means, calls = found.means[unit].mean(axis=0), found.calls[unit].mean(axis=0)
        top = _cheapest(means, calls, 0.0)
        # Of the mean over aspects, which rest on the same groups only in part: errors of aspects are taken to add up.
        errors = np.mean([_error(found.values[a][top] - found.values[a]) for a in unit], axis=0)
        chosen.append(_cheapest(means, calls, np.minimum(found.tolerance, errors)))
    return chosen


def _error(differences: Floats) -> Floats:
    deviations: Floats = differences.std(axis=1)
    return deviations / np.sqrt(differences.shape[1])


def _cheapest(worth: Floats, calls: Floats, within: float | Floats) -> int:
    """The plainest of the cheapest among the points that are worth the most, or by no more than `within` less."""
    good = np.flatnonzero(worth >= worth.max() - np.maximum(within, _EQUAL))
    least = calls[good].min()
    # Without a tolerance equal points are left, which cost what they cost; with one, a few calls are no reason.
    spared = SAME_COST * least if np.any(np.greater(within, 0.0)) else 0.0
    return int(good[calls[good] <= least + spared][0])


@dataclass(frozen=True)
class ChoiceRule:
    """A rule, and the part of the data that it looks at."""

    choose: Rule
    part: Literal["train+dev", "dev"]


RULES: Mapping[str, ChoiceRule] = MappingProxyType(
    {
        "pooled": ChoiceRule(pooled, "train+dev"),
        "best": ChoiceRule(best, "train+dev"),
        "together": ChoiceRule(together, "train+dev"),
        "dev-best": ChoiceRule(best, "dev"),
        "dev-1se": ChoiceRule(one_standard_error, "dev"),
    }
)
"""Name -> rule, the usual one first."""
