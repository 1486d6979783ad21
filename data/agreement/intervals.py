"""95 % intervals for figures computed from groups, each by a method whose coverage is near 95 % with few groups, too.

The percentile bootstrap covers the truth in 82 % of cases with five groups and in 88 % with ten
(`tests/bench/coverage.py` compares it with the methods here). So each kind of figure has its own method:

- `t`: paired differences of group values. Value +- t(G - 1) standard errors, the classical interval (Student 1908).
  Where aspects have different groups, the standard error is that of a linearised ratio (Binder 1983).
- `t-fisher-z`: means of group correlations. The same on Fisher's z of the mean, with the standard error divided by
  1 - mean^2 (the delta method): correlations crowd towards 1 with a long tail below, and the plain interval, which is
  symmetric, then covers .92 instead of .94 with five groups, and .80 where agreement is high.
  For a correlation over the candidates of all groups, the jackknife's pseudo-values are the group values.
- `fisher-z`: correlations over systems, which a single group hardly moves, so that the jackknife fails. On Fisher's z
  (Fisher 1915), which is nearly normal, value +- t(G - 1) sqrt(G / (G - 1)) s, with s the bootstrap's standard
  deviation. The root corrects that the variance over resamples of G groups is too small by (G - 1) / G (Efron and
  Tibshirani 1993, chapter 6); t allows for the error of s. The coverage is near 95 % only with enough groups for
  precise means of the systems: with few groups, noise in these means pulls the correlation towards 0, the more the
  higher it is, which no interval makes up for.
- `logit`: shares such as accuracy, F1 or AUROC, and kappa: as `t-fisher-z`, with the jackknife's influences, on the
  logit of the place in their range.
- `t-bootstrap`: paired differences of correlations over systems: as `fisher-z`, on the scale of the difference itself.
- `dirichlet`: decisions where each group has one. Draws from the posterior of the table of labels and decisions
  under Jeffreys' prior, Dirichlet(counts + 1/2) (Brown, Cai and DasGupta 2001 for two cells). A bootstrap never draws
  a cell that happens to be empty, so its intervals of kappa and recall have no width where they should be widest.
- `exact`: figures at an end of their range in every group. Nothing varies, so the methods above have no width; the
  bound on the share of groups that are different has (Clopper and Pearson 1934).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from debate_judge.data.agreement.correlations import Floats

Method = Literal["t", "t-fisher-z", "fisher-z", "logit", "t-bootstrap", "dirichlet", "exact"]

METHODS: dict[Method, str] = {
    "t-fisher-z": "t on the group values, laid off on Fisher's z",
    "t": "t on the paired group differences",
    "fisher-z": "t on Fisher's z with the bootstrap's deviation",
    "logit": "t on the jackknife's influences, laid off on the logit",
    "t-bootstrap": "t with the bootstrap's deviation",
    "dirichlet": "draws from Dirichlet(counts + 1/2)",
    "exact": "Clopper-Pearson, for all groups are at one end",
}
"""Method -> how a legend names it."""

CORRELATION = (-1.0, 1.0)
SHARE = (0.0, 1.0)

POWER = 0.8
"""Share of cases in which a detectable difference is found."""

_TAIL = 0.025
"""Probability outside the interval at each end."""

_ROUNDING = 1e-9
"""Smaller differences than this are rounding errors."""


class Interval(NamedTuple):
    """The ends of a 95 % interval and how it was made; all None without an interval."""

    low: float | None
    high: float | None
    method: Method | None


NONE = Interval(None, None, None)


def mean_influences(by_group: Sequence[Floats]) -> Floats:
    """The influence of each group on the mean over aspects of the means over groups.

    An aspect with values v in n groups contributes (v - mean) / n / aspects for each of these groups.

    Args:
        by_group: For each aspect values of shape (statistics, groups), NaN for groups without a value.

    Returns:
        Shape (statistics, groups), 0 for groups without a value in any aspect.
    """
    influences = np.zeros(by_group[0].shape)
    for values in by_group:
        defined = ~np.isnan(values)
        counts = np.maximum(defined.sum(axis=1, keepdims=True), 1)
        mean = np.nansum(values, axis=1, keepdims=True) / counts
        influences += np.where(defined, values - mean, 0.0) / counts / len(by_group)
    return influences


def critical(groups: float, family: int = 1) -> float:
    """The 97.5 % point of Student's t with `groups` - 1 degrees of freedom.

    For a `family` of several intervals that are to hold together in 95 % of cases it is the point of 1 - .025 / family
    (Bonferroni, see Dunn, Multiple comparisons among means, 1961).
    """
    from scipy.special import stdtrit

    return float(stdtrit(groups - 1, 1 - _TAIL / family))


def standard_error(influences: Floats) -> float:
    """The standard error of an estimate.

    Args:
        influences: The influence of each group on it, shape (groups,); for a mean (value - mean) / groups.
    """
    groups = len(influences)
    return math.sqrt(groups / (groups - 1) * math.fsum(influences**2))


def of_group_correlations(
    value: float,
    influences: Floats,
    ends: tuple[float, float] = CORRELATION,
    nearest: float = _ROUNDING,
    method: Method = "t-fisher-z",
) -> Interval:
    """The interval `t-fisher-z` of a mean of group correlations, or `logit` of another figure.

    Both are one transformation: Fisher's z of r is half the logit of (r + 1) / 2.

    Args:
        value: The figure.
        influences: Influence on it of each group that it is computed from, see `mean_influences`.
        ends: Of the range of the value.
        nearest: The least share of the range between the value and an end, which has no logit.
        method: The name to give to the interval.
    """
    groups = len(influences)
    if groups < 2 or math.isnan(value):
        return NONE
    error = standard_error(influences)
    if error < _ROUNDING:
        return _without_spread(value, groups, ends, method)
    low, width = ends[0], ends[1] - ends[0]
    place = (value - low) / width
    inside = min(max(place, nearest), 1 - nearest)
    return _laid_off(value, inside, critical(groups) * error / width / (inside * (1 - inside)), ends, method)


def of_group_differences(value: float, influences: Floats, family: int = 1) -> Interval:
    """The interval `t` of a mean of paired differences of group values; see `of_group_correlations`, and `critical` for
    the family."""
    groups = len(influences)
    if groups < 2 or math.isnan(value):
        return NONE
    half = critical(groups, family) * standard_error(influences)
    return Interval(value - half, value + half, "t")


def of_replicates(value: float, replicates: Floats, groups: int, observations: int) -> Interval:
    """The interval `fisher-z` of a correlation over systems, from its bootstrap replicates.

    Args:
        value: The correlation.
        replicates: Shape (resamples,), NaN where undefined.
        groups: Number of resampled groups that the value is computed from.
        observations: Number of pairs of systems. A replicate at an end of the range, which has no z, is moved half a
            pair inwards.
    """
    defined = replicates[~np.isnan(replicates)]
    if groups < 2 or math.isnan(value) or len(defined) < 2:
        return NONE
    if np.ptp(defined) < _ROUNDING:
        return _without_spread(value, groups, CORRELATION, "fisher-z")
    from scipy.special import logit

    place, shares = (value + 1) / 2, (defined + 1) / 2
    nearest = 0.5 / (observations + 1)
    if 0 < place < 1:
        nearest = max(_ROUNDING, min(nearest, place, 1 - place))
    place, shares = min(max(place, nearest), 1 - nearest), np.clip(shares, nearest, 1 - nearest)
    half = critical(groups) * math.sqrt(groups / (groups - 1)) * float(np.std(logit(shares), ddof=1))
    return _laid_off(value, place, half, CORRELATION, "fisher-z")


def of_differences(value: float, replicates: Floats, groups: int, family: int = 1) -> Interval:
    """The interval `t-bootstrap` of a paired difference of correlations, from its bootstrap replicates; see
    `of_replicates`, and `critical` for the family. It stops at the ends of the range."""
    if groups < 2 or math.isnan(value) or np.count_nonzero(~np.isnan(replicates)) < 2:
        return NONE
    half = critical(groups, family) * bootstrap_error(replicates, groups)
    return Interval(max(-2.0, value - half), min(2.0, value + half), "t-bootstrap")


def bootstrap_error(replicates: Floats, groups: int) -> float:
    """The standard error estimated by bootstrap replicates of `groups` groups."""
    return math.sqrt(groups / (groups - 1)) * float(np.nanstd(replicates, ddof=1))


def of_draws(value: float, draws: Floats) -> Interval:
    """The middle 95 % of draws from a posterior, extended to the value if that lies outside."""
    defined = draws[~np.isnan(draws)]
    if math.isnan(value) or not len(defined):
        return NONE
    low, high = np.quantile(defined, (_TAIL, 1 - _TAIL))
    return _holding(value, float(low), float(high), "dirichlet")


def detectable_difference(deviation: float, groups: int) -> float:
    """The true difference that a two-sided paired t-test at .05 finds in 80 % of cases (Cohen 1988, chapter 2).

    Args:
        deviation: Standard deviation of the group differences.
        groups: Number of groups, at least two.
    """
    from scipy.optimize import brentq

    errors = brentq(lambda shift: _power(shift, groups) - POWER, 0.0, 2 * critical(groups) + 10)
    return float(errors) * deviation / math.sqrt(groups)


def groups_to_detect(difference: float, deviation: float) -> int:
    """The least number of groups with which this test finds a true difference in 80 % of cases; see
    `detectable_difference`."""
    from scipy.optimize import brentq

    def lacking(groups: float) -> float:
        return POWER - _power(difference * math.sqrt(groups) / deviation, groups)

    # More than a normal test needs, whose shift is the sum of the 97.5 % and the 80 % point.
    most = (2.81 * deviation / difference) ** 2 + 20
    return 2 if lacking(2) <= 0 else math.ceil(brentq(lacking, 2, most))


def _power(shift: float, groups: float) -> float:
    """The power of a t-test where the true difference is `shift` standard errors."""
    from scipy.stats import nct

    limit = critical(groups)
    # With two groups scipy's lower tail is NaN where it vanishes.
    return float(nct.sf(limit, groups - 1, shift) + np.nan_to_num(nct.cdf(-limit, groups - 1, shift)))


def _without_spread(value: float, groups: int, ends: tuple[float, float], method: Method) -> Interval:
    """The interval where all groups have the same value: the exact bound at an end of the range, else no width."""
    width = ends[1] - ends[0]
    # With G of G groups at this end, at most this share of all groups is not; at worst it is at the other end.
    away = width * (1 - _TAIL ** (1 / groups))
    if abs(value - ends[1]) < _ROUNDING:
        return Interval(ends[1] - away, ends[1], "exact")
    if abs(value - ends[0]) < _ROUNDING:
        return Interval(ends[0], ends[0] + away, "exact")
    return Interval(value, value, method)


def _laid_off(value: float, place: float, half: float, ends: tuple[float, float], method: Method) -> Interval:
    """The interval of `half` to each side of the logit of the value's place in its range."""
    from scipy.special import expit, logit

    low, high = ends[0] + (ends[1] - ends[0]) * expit(logit(place) + np.array([-half, half]))
    return _holding(value, float(low), float(high), method)


def _holding(value: float, low: float, high: float, method: Method) -> Interval:
    return Interval(min(low, value), max(high, value), method)
