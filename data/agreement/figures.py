"""Scores of a judge beside ratings, and figures with 95 % intervals, p-values and power over sources.

Everything rests on the jackknife's pseudo-values (Tukey 1958; Efron and Tibshirani 1993, chapter 11), one for each
source: of a mean over groups they are the values of the groups, of any other statistic they take the place of these.

- Intervals are t intervals of the pseudo-values. Statistics with a range have theirs on the logit of the value rescaled
  to 0..1, which for a correlation is twice Fisher's z, with the standard error by the delta method: correlations crowd
  towards 1, and the plain interval then covers .92 instead of .94 with five groups, and .80 where agreement is high.
  The percentile bootstrap covers .82 with five groups and .88 with ten (`tests/bench/coverage.py` compares it with the
  intervals here). At an end of the range, which has no logit, the interval is the exact bound on the share of sources
  that are different (Clopper and Pearson 1934).
- P-values are those of a sign-flip permutation test (Fisher 1935, chapter 3; Pitman 1937): if two judges are equally
  good, the sign of each source's difference is a fair coin whatever its size. This assumes no normal distribution and
  keeps the type I error with any number of groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.errors import InputError
from debate_judge.data.schema import ROUNDING_ERROR, Level

Statistic = Literal["pearson", "spearman", "kendall"]


STATISTICS: tuple[Statistic, ...] = ("pearson", "spearman", "kendall")


Floats = NDArray[np.float64]


def nan_to_none(value: float) -> float | None:
    """The value, or None where it is undefined."""
    return None if np.isnan(value) else float(value)


AVERAGE = "average"
"""Name of the row or column with averages over aspects."""

LEVELS: tuple[Level, ...] = ("summary", "sample", "system")
STATISTIC_NAMES: dict[Statistic, str] = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}

MIN_GROUPS_FOR_P_VALUE = 6
"""Least number for a p-value: five groups have 2^5 = 32 sign assignments, so no p-value could be below 2/32."""

WHY_NO_P_VALUE = f"with fewer than {MIN_GROUPS_FOR_P_VALUE} groups none can be below 0.05"


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Ratings of the raters and scores of a judge for the candidates of a group, in one aspect."""

    group: str
    candidates: tuple[str, ...]
    ratings: tuple[float | None, ...]
    """Mean over raters, or None without a rating."""
    scores: tuple[float | None, ...]
    """None where the judge left a candidate unscored."""
    raters: tuple[tuple[float, ...], ...] = ()
    """For each candidate the ratings of the single raters, in the file's order; empty where only means are known."""
    source: str = ""
    """Id of the source where several groups share one, as pairs of texts do; else empty. A hash, because stored scores
    must not contain texts."""

    def __post_init__(self) -> None:
        lengths = {len(self.candidates), len(self.ratings), len(self.scores), len(self.raters or self.candidates)}
        if len(lengths) > 1:
            raise ValueError(f"group {self.group!r} needs one rating and one score, or None, per candidate")
        if len(set(self.candidates)) < len(self.candidates):
            raise InputError(f"group {self.group!r} has two candidates with the same id", field="candidate")
        for field, values in (("rating", self.ratings), ("score", self.scores)):
            for value in values:
                # Twice the value, because differences of two values have to be finite, too.
                if value is not None and not math.isfinite(2 * value):
                    raise InputError(f"group {self.group!r} has a {field} that is not finite", field=field, found=value)

    @property
    def source_id(self) -> str:
        """Id of the source, the unit of resampling: `source`, or else the group's own id."""
        return self.source or self.group


ScoresByAspect = Mapping[str, Sequence[GroupScores]]
"""Aspect -> groups, of one judge."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A statistic with its 95 % interval."""

    value: float | None
    """None where undefined, e.g. the precision of a judge that never decides for positive."""
    low: float | None = None
    """Ends of the interval; None without a value, at system level, with fewer than two sources, or where nothing
    varies."""
    high: float | None = None

    def to_json(self) -> dict[str, float | int | str | None]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement(Figure):
    """One correlation at one level, with its interval and the counts of what was left out.

    Its value is None where all ratings are equal. Where only the judge's scores are constant it is 0, at summary level
    in each such group; the same holds for differences of judges.
    """

    statistic: Statistic
    level: Level
    groups: int
    """Number of groups that the value is computed from."""
    constant: int
    """Number of `groups` in which the judge's scores are constant. In an average over aspects, this and the next counts
    are sums."""
    undefined: int
    """Number of rated groups that are left out because the ratings of their scored candidates are all equal."""
    unscored: int
    """Number of candidates with a rating and no score."""


AgreementByLevel = dict[Level, dict[Statistic, Agreement]]


@dataclass(frozen=True, slots=True)
class AgreementTable:
    """Correlations of every aspect at every level, and their averages."""

    aspects: dict[str, AgreementByLevel]
    average: AgreementByLevel
    """Mean over aspects; undefined where one aspect is, because a mean over fewer aspects would be another quantity."""

    def to_json(self) -> dict[str, object]:
        """Plain values: {"aspects": {aspect: {level: {statistic: {...}}}}, "average": {level: {statistic: {...}}}}."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Figure):
    """Agreement of one judge minus that of another, averaged over aspects; None where all ratings are equal."""

    p_value: float | None = None
    """Two-sided, for the hypothesis of no difference, by sign flips; None below `MIN_GROUPS_FOR_P_VALUE` groups."""
    groups: int
    """Number of sources that it is computed from."""
    deviation: float | None = None
    """Standard deviation of the group differences: the standard error times the root of the number of sources."""


Key = TypeVar("Key")
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

INTERVALS = "t over sources, on the logit scale where a figure has a range"
"""The intervals in legends."""

CORRELATION_RANGE = (-1.0, 1.0)
SHARE_RANGE = (0.0, 1.0)

MIN_EFFECT = 0.02
"""Smallest difference in correlation that is considered relevant."""

POWER = 0.8
"""Share of cases in which a detectable difference is found."""

MAX_EXACT_UNITS = 16
"""Largest number of units for which all 2^16 = 65,536 sign assignments are computed."""

RANDOM_FLIPS = 100_000
"""Number of random sign assignments with more units: a p-value of .05 then has a standard error of .0007."""

_TAIL = 0.025
"""Probability outside the interval at each end."""

_MAX_UNITS = 512
"""Maximum number of units; more sources are put into this many random bundles (the delete-a-group jackknife, Kott
2001). The width of an interval then has a standard error of 3.1 % (1 / sqrt(2 x 511))."""


def bundle(source: Indices, seed: int) -> Indices:
    """The unit of resampling of each source number: its own, or with more than `_MAX_UNITS` sources a random bundle."""
    sources = int(source.max(initial=-1)) + 1
    if sources <= _MAX_UNITS:
        return source
    return (np.random.default_rng(seed).permutation(sources) % _MAX_UNITS)[source]


def without_each(statistic: Callable[[Mask], Floats], unit: Indices, units: int) -> Floats:
    """A statistic of all pairs but those of one unit, for each unit; undefined counts 0.

    Args:
        statistic: Mask of the pairs that stay -> values, shape (values,).
        unit: Number of each pair's unit.
        units: Number of units.

    Returns:
        Shape (values, units).
    """
    return np.nan_to_num(np.stack([statistic(unit != left_out) for left_out in range(units)], axis=-1))


def pseudo_values(values: Floats, without: Floats) -> Floats:
    """The pseudo-values of the jackknife, shifted so that their mean is the value of the statistic on all pairs.

    Args:
        values: On all pairs, shape (values,).
        without: Without each unit, shape (values, units).
    """
    units = without.shape[1]
    pseudo = units * values[:, None] - (units - 1) * without
    return np.asarray(pseudo - pseudo.mean(axis=1, keepdims=True) + values[:, None])


def standard_errors(values: Floats, without: Floats) -> Floats:
    """The standard error of each statistic, from arrays as in `pseudo_values`; NaN below two units."""
    units = without.shape[1]
    if units < 2:
        return np.full(len(values), np.nan)
    return np.asarray(pseudo_values(values, without).std(axis=1, ddof=1) / math.sqrt(units))


def t_interval(value: float, error: float, units: int, family_size: int = 1) -> Figure:
    """The value +- t(units - 1) standard errors; without an interval where the standard error is NaN.

    For `family_size` intervals that are to hold together in 95 % of cases, the quantile is that of 1 - .025 /
    family_size (Bonferroni, see Dunn, Multiple comparisons among means, 1961).
    """
    if math.isnan(value) or math.isnan(error):
        return Figure(nan_to_none(value))
    half_width = _t_quantile(units, family_size) * error
    return Figure(value, value - half_width, value + half_width)


def range_interval(
    value: float, error: float, units: int, value_range: tuple[float, float] = CORRELATION_RANGE
) -> Figure:
    """The t interval on the logit of a value that has a range; exact at an end of the range.

    Where nothing varies within the range, there is no interval, because nothing is known of the error.
    """
    (low, high), width = value_range, value_range[1] - value_range[0]
    if math.isnan(value) or math.isnan(error):
        return Figure(nan_to_none(value))
    # With all units at an end, at most this share of all units is not there; at worst it is at the other end.
    bound = width * (1 - _TAIL ** (1 / units))
    if high - value < ROUNDING_ERROR:
        return Figure(value, high - bound, value)
    if value - low < ROUNDING_ERROR:
        return Figure(value, value, low + bound)
    if error < ROUNDING_ERROR:
        return Figure(value)
    from scipy.special import expit, logit

    share = (value - low) / width
    half_width = _t_quantile(units) * error / width / (share * (1 - share))
    ends = low + width * expit(logit(share) + np.array([-half_width, half_width]))
    return Figure(value, *ends.tolist())


def mean_interval(by_source: Sequence[Floats]) -> Figure:
    """The mean over all values, one array per source, with a t interval over the sources."""
    sums, counts = (np.array([measure(values) for values in by_source], dtype=float) for measure in (np.sum, len))
    value = sums.sum() / counts.sum()
    with np.errstate(invalid="ignore"):
        without = (sums.sum() - sums) / (counts.sum() - counts)
    error = standard_errors(value[None], without[None])[0]
    return t_interval(float(value), float(error), len(by_source))


# --- p-values by flipping signs, and their correction ---


def sign_flip_p_value(values: Floats, seed: int) -> float | None:
    """The two-sided p-value of a mean of differences, shape (units,), that it is 0; None below
    `MIN_GROUPS_FOR_P_VALUE`."""
    if len(values) < MIN_GROUPS_FOR_P_VALUE:
        return None
    # Flipping a 0 changes nothing; without these units more cases are computed exactly.
    nonzero = values[np.abs(values) > ROUNDING_ERROR]
    if len(nonzero) < 2:
        return 1.0  # Flipping a single unit leaves the absolute value as it is.
    from scipy.stats import permutation_test

    def rounded(signs: Floats, axis: int) -> Floats:
        # Rounded, so that the last digits do not decide whether a value equals the observed one.
        return np.round(signs @ nonzero / len(values), 12)

    test = permutation_test(
        (np.ones(len(nonzero)),),
        rounded,
        permutation_type="samples",
        vectorized=True,
        n_resamples=1 << MAX_EXACT_UNITS if len(nonzero) <= MAX_EXACT_UNITS else RANDOM_FLIPS,
        batch=4096,
        axis=-1,
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)


def holm_adjusted(p_values: Mapping[Key, float | None]) -> dict[Key, float | None]:
    """The p-values of one family of comparisons, adjusted by Holm's step-down procedure (Holm 1979).

    Comparisons with too few groups for a p-value stay None and do not count, because they can never be significant.
    """
    defined = sorted((p, number, key) for number, (key, p) in enumerate(p_values.items()) if p is not None)
    adjusted: dict[Key, float | None] = dict.fromkeys(p_values)
    highest = 0.0
    for rank, (p, _, key) in enumerate(defined):
        adjusted[key] = highest = max(highest, min(1.0, (len(defined) - rank) * p))
    return adjusted


# --- power ---


@dataclass(frozen=True, slots=True)
class Power:
    """The true difference that a comparison could detect, see `detectable_difference`."""

    groups: int
    """Number of groups compared on."""
    detectable: float
    """Smallest true difference that a comparison like this one finds significant in 80 % of cases."""
    more_for_small: int
    """Number of further groups needed to detect a difference of `MIN_EFFECT`; 0 if these are enough."""


def statistical_power(difference: Difference) -> Power | None:
    """The power of a comparison, from the standard deviation of its group differences; None without one."""
    deviation, groups = difference.deviation, difference.groups
    if deviation is None or deviation < ROUNDING_ERROR:
        return None
    more = max(0, groups_to_detect(MIN_EFFECT, deviation) - groups)
    return Power(groups, detectable_difference(deviation, groups), more)


def detectable_difference(deviation: float, groups: int) -> float:
    """The true difference that a two-sided paired t-test at .05 detects in 80 % of cases (Cohen 1988, chapter 2).

    Args:
        deviation: Standard deviation of the group differences.
        groups: Number of groups, at least two.
    """
    from scipy.special import nctdtrinc

    # The noncentrality with which t is below its quantile in 20 % of cases, in standard errors of the difference.
    shift = float(nctdtrinc(groups - 1, 1 - POWER, _t_quantile(groups)))
    return shift * deviation / math.sqrt(groups)


def groups_to_detect(difference: float, deviation: float) -> int:
    """The number of groups with which `detectable_difference` is about this true difference (Guenther 1981)."""
    from scipy.special import ndtri

    upper, lower = float(ndtri(1 - _TAIL)), float(ndtri(POWER))
    return math.ceil(((upper + lower) * deviation / difference) ** 2 + upper**2 / 2)


def _t_quantile(groups: float, family_size: int = 1) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(groups - 1, 1 - _TAIL / family_size))
