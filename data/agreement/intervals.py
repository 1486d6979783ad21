"""95 % intervals of statistics over groups, by methods whose coverage is near 95 % with few groups, too.

The percentile bootstrap covers the true value in 82 % of cases with five groups and in 88 % with ten
(`tests/bench/coverage.py` compares it with the methods here). So each kind of statistic has its own method:

- `t`: paired differences of group values. Value +- t(G - 1) standard errors, the classical interval (Student 1908).
  Where aspects have different groups, the standard error is that of a linearised ratio (Binder 1983).
- `logit`: means of group correlations, shares such as accuracy, F1 or AUROC, and kappa. The same on the logit of the
  value rescaled to 0..1, which for a correlation is twice Fisher's z, with the standard error by the delta method:
  correlations crowd towards 1 with a long tail below, and the plain interval, which is symmetric, then covers .92
  instead of .94 with five groups, and .80 where agreement is high. Where a statistic is not a mean over groups, the
  jackknife's pseudo-values are the group values.
- `dirichlet`: decisions where each source has one. Quantiles of the posterior of the confusion matrix under Jeffreys'
  prior, Dirichlet(counts + 1/2) (Brown, Cai and DasGupta 2001 for two cells). The jackknife never fills a cell that
  happens to be empty, so its intervals of kappa and recall have no width where they should be widest.
- `exact`: statistics at an end of their range in every group. Nothing varies, so the methods above give intervals
  without width; this is the bound on the share of groups that are different (Clopper and Pearson 1934).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.schema import ROUNDING_ERROR

Method = Literal["t", "logit", "dirichlet", "exact"]

METHODS: dict[Method, str] = {
    "t": "t on the paired group differences",
    "logit": "t on the group values or the jackknife's pseudo-values, on the logit",
    "dirichlet": "draws from Dirichlet(counts + 1/2)",
    "exact": "Clopper-Pearson, because all groups are at one end of the range",
}
"""Method -> its description in legends."""

CORRELATION_RANGE = (-1.0, 1.0)
SHARE_RANGE = (0.0, 1.0)

POWER = 0.8
"""Share of cases in which a detectable difference is found."""

_TAIL = 0.025
"""Probability outside the interval at each end."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A statistic with its 95 % interval."""

    value: float | None
    """None where undefined, e.g. the precision of a judge that never decides for positive."""
    low: float | None = None
    """Ends of the interval; None without a value, at system level or with fewer than two groups."""
    high: float | None = None
    method: Method | None = None
    """Method of the interval; None without one."""

    def to_json(self) -> dict[str, float | int | str | None]:
        return asdict(self)


def without_interval(value: float) -> Measure:
    """The value alone; undefined for NaN."""
    return Measure(None if math.isnan(value) else value)


def t_quantile(groups: float, family_size: int = 1) -> float:
    """The .975 quantile of Student's t with `groups` - 1 degrees of freedom.

    For `family_size` intervals that are to hold together in 95 % of cases, the quantile of 1 - .025 / family_size
    (Bonferroni, see Dunn, Multiple comparisons among means, 1961).
    """
    from scipy.special import stdtrit

    return float(stdtrit(groups - 1, 1 - _TAIL / family_size))


def standard_error(influences: Floats) -> float:
    """The standard error of an estimate.

    Args:
        influences: The influence of each group on it, shape (groups,): (value - mean) / groups for a mean.
    """
    groups = len(influences)
    return math.sqrt(groups / (groups - 1) * math.fsum(influences**2)) if groups > 1 else math.nan


def t_interval(value: float, error: float, groups: int, family_size: int = 1) -> Measure:
    """The interval `t` of a mean of paired differences of group values.

    Args:
        value: The difference.
        error: Its standard error; NaN for no interval.
        groups: Number of groups that it is computed from.
        family_size: As for `t_quantile`.
    """
    if math.isnan(value) or math.isnan(error):
        return without_interval(value)
    half_width = t_quantile(groups, family_size) * error
    return Measure(value, value - half_width, value + half_width, "t")


def logit_interval(
    value: float,
    error: float,
    groups: int,
    value_range: tuple[float, float] = CORRELATION_RANGE,
    min_distance: float = ROUNDING_ERROR,
) -> Measure:
    """The interval `logit` of a mean of group correlations or of another statistic with a range.

    Args:
        value: The statistic.
        error: Its standard error; NaN for no interval.
        groups: Number of groups that it is computed from.
        value_range: The lowest and the highest possible value.
        min_distance: Values nearer to an end of the range, which has no logit, are moved to this distance from it, as
            a share of the range.
    """
    if math.isnan(value) or math.isnan(error):
        return without_interval(value)
    if error < ROUNDING_ERROR:
        return _degenerate_interval(value, groups, value_range)
    low, width = value_range[0], value_range[1] - value_range[0]
    share = min(max((value - low) / width, min_distance), 1 - min_distance)
    half_width = t_quantile(groups) * error / width / (share * (1 - share))
    return _from_logit(value, share, half_width, value_range)


def posterior_interval(value: float, draws: Floats) -> Measure:
    """The middle 95 % of posterior draws, extended to the value if that lies outside."""
    defined = draws[~np.isnan(draws)]
    if math.isnan(value) or not len(defined):
        return without_interval(value)
    low, high = np.quantile(defined, (_TAIL, 1 - _TAIL)).tolist()
    return _extended(Measure(value, low, high, "dirichlet"), value)


def detectable_difference(deviation: float, groups: int) -> float:
    """The true difference that a two-sided paired t-test at .05 detects in 80 % of cases (Cohen 1988, chapter 2).

    Args:
        deviation: Standard deviation of the group differences.
        groups: Number of groups, at least two.
    """
    from scipy.optimize import brentq

    shift = brentq(lambda shift: _power(shift, groups) - POWER, 0.0, 2 * t_quantile(groups) + 10)
    return float(shift) * deviation / math.sqrt(groups)


def groups_to_detect(difference: float, deviation: float) -> int:
    """The least number of groups with which `detectable_difference` is at most this true difference."""
    from scipy.optimize import brentq

    def missing_power(groups: float) -> float:
        return POWER - _power(difference * math.sqrt(groups) / deviation, groups)

    # More than a z-test needs: 2.81 > 1.96 + 0.84, the .975 and the .8 quantile.
    upper_bound = (2.81 * deviation / difference) ** 2 + 20
    return 2 if missing_power(2) <= 0 else math.ceil(brentq(missing_power, 2, upper_bound))


def _power(shift: float, groups: float) -> float:
    """The power of a t-test where the true difference is `shift` standard errors."""
    from scipy.stats import nct

    limit = t_quantile(groups)
    # With two groups, scipy gives NaN for a lower tail that underflows.
    return float(nct.sf(limit, groups - 1, shift) + np.nan_to_num(nct.cdf(-limit, groups - 1, shift)))


def _degenerate_interval(value: float, groups: int, value_range: tuple[float, float]) -> Measure:
    """The interval where all groups have the same value: the exact bound at an end of the range, else without width."""
    width = value_range[1] - value_range[0]
    # With G of G groups at an end, at most this share of all groups is not there; at worst it is at the other end.
    bound = width * (1 - _TAIL ** (1 / groups))
    if abs(value - value_range[1]) < ROUNDING_ERROR:
        return Measure(value, value_range[1] - bound, value_range[1], "exact")
    if abs(value - value_range[0]) < ROUNDING_ERROR:
        return Measure(value, value_range[0], value_range[0] + bound, "exact")
    return Measure(value, value, value, "logit")


def _from_logit(value: float, share: float, half_width: float, value_range: tuple[float, float]) -> Measure:
    """The interval of `half_width` to each side of `share`, the value rescaled to 0..1, on the logit scale; it is
    extended to the value."""
    from scipy.special import expit, logit

    low, high = value_range
    ends = low + (high - low) * expit(logit(share) + np.array([-half_width, half_width]))
    return _extended(Measure(value, float(ends[0]), float(ends[1]), "logit"), value)


def _extended(interval: Measure, *values: float) -> Measure:
    """The interval, extended to values that it has to contain."""
    ends = [end for end in (interval.low, interval.high, *values) if end is not None]
    return replace(interval, low=min(ends), high=max(ends))
