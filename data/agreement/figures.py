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

Undefined is NaN in arrays and estimates, and None in figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.errors import InputError
from debate_judge.data.schema import ROUNDING_ERROR, Level

Key = TypeVar("Key")
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

Statistic = Literal["pearson", "spearman", "kendall"]
STATISTICS: tuple[Statistic, ...] = ("pearson", "spearman", "kendall")
STATISTIC_NAMES: dict[Statistic, str] = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}
LEVELS: tuple[Level, ...] = ("summary", "sample", "system")

AVERAGE = "average"
"""Name of the row or column with averages over aspects."""

INTERVALS = "t over sources, on the logit scale where a figure has a range"
"""The intervals in legends."""

CORRELATION_RANGE = (-1.0, 1.0)
SHARE_RANGE = (0.0, 1.0)

MIN_GROUPS_FOR_P_VALUE = 6
"""Least number for a p-value: five groups have 2^5 = 32 sign assignments, so no p-value could be below 2/32."""

WHY_NO_P_VALUE = f"with fewer than {MIN_GROUPS_FOR_P_VALUE} groups none can be below 0.05"

MIN_EFFECT = 0.02
"""Smallest difference in correlation that is considered relevant."""

POWER = 0.8
"""Share of cases in which a detectable difference is found."""

_MAX_EXACT_UNITS = 16
"""Largest number of units for which all 2^16 = 65,536 sign assignments are computed."""

_RANDOM_FLIPS = 100_000
"""Number of random sign assignments with more units: a p-value of .05 then has a standard error of .0007."""

_TAIL = 0.025
"""Probability outside the interval at each end."""

_MAX_UNITS = 512
"""Maximum number of units; more sources are put into this many random bundles (the delete-a-group jackknife, Kott
2001). The width of an interval then has a standard error of 3.1 % (1 / sqrt(2 x 511))."""


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
    """A statistic with its 95 % interval; as text `0.43 [0.36, 0.49]`, or a dash without a value."""

    value: float | None = None
    """None where undefined, e.g. the precision of a judge that never decides for positive."""
    low: float | None = None
    """Ends of the interval; None without a value, at system level, with fewer than two sources, or where nothing
    varies."""
    high: float | None = None
    groups: int | None = None
    """Of correlations, the number of groups that the value is computed from; of differences, of sources."""
    p_value: float | None = None
    """Of differences, for the hypothesis of none, two-sided; None below `MIN_GROUPS_FOR_P_VALUE` sources."""
    deviation: float | None = None
    """Of differences, the standard deviation over sources: the standard error times the root of their number."""
    constant: int | None = None
    """Of correlations, the number of `groups` in which the judge's scores are constant; they count 0. In an average
    over aspects, this and the next counts are sums."""
    undefined: int | None = None
    """Number of rated groups that are left out because the ratings of their scored candidates are all equal."""
    unscored: int | None = None
    """Number of candidates with a rating and no score."""

    def __format__(self, spec: str) -> str:
        """`spec` is that of each number, by default two decimals."""
        spec = spec or ".2f"
        if self.value is None:
            return "–"
        text = format(self.value, spec)
        return text if self.low is None or self.high is None else f"{text} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return format(self)

    def to_metrics(self, name: str) -> dict[str, float | None]:
        """The value and the ends of its interval as metrics of a run."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    @property
    def power(self) -> dict[str, Any] | None:
        """What a comparison like this one finds significant in 80 % of cases; None of a figure without a deviation.

        `detectable` is the smallest true difference, on `groups` sources; a difference of `MIN_EFFECT` needs
        `more_for_small` further ones.
        """
        if self.groups is None or self.deviation is None or self.deviation < ROUNDING_ERROR:
            return None
        more = max(0, groups_to_detect(MIN_EFFECT, self.deviation) - self.groups)
        detectable = detectable_difference(self.deviation, self.groups)
        return {"groups": self.groups, "detectable": detectable, "more_for_small": more}


UNDEFINED = Figure()


def plain(figures: Any) -> dict[str, Any]:
    """A dataclass of figures as JSON values; of a figure, only value and interval may be null."""
    optional = ("groups", "p_value", "deviation", "constant", "undefined", "unscored")
    return asdict(figures, dict_factory=lambda pairs: {k: v for k, v in pairs if v is not None or k not in optional})


# --- ratings beside scores, as arrays ---


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """The groups of all aspects, with the source and the unit of resampling of each."""

    number_of_group: Mapping[str, int]
    """Group id -> number."""
    source: Indices
    """Number of each group's source, shape (groups,): several pairs of texts may have the same source."""
    unit: Indices
    """Number of the unit that each group is left out with, shape (groups,): its source, or a bundle of sources."""

    @classmethod
    def build(cls, aspects: ScoresByAspect, seed: int) -> GroupIndex:
        """Number the groups, their sources and units; `seed` determines the random bundles of many sources."""
        source_of = {group.group: group.source_id for groups in aspects.values() for group in groups}
        names, source = np.unique(list(source_of.values()), return_inverse=True)
        unit = source
        if len(names) > _MAX_UNITS:
            unit = (np.random.default_rng(seed).permutation(len(names)) % _MAX_UNITS)[source]
        return cls({name: i for i, name in enumerate(source_of)}, source, unit)

    @property
    def units(self) -> int:
        return int(self.unit.max(initial=-1)) + 1


@dataclass(frozen=True, slots=True)
class Pairs:
    """The candidates of one aspect that are both rated and scored; arrays have shape (pairs,)."""

    ratings: Floats
    scores: Floats
    group: Indices
    """Number of the pair's group."""
    system: Indices
    """Number of the pair's candidate id."""
    index: GroupIndex
    """Of all groups, including those without pairs."""

    @classmethod
    def of(
        cls, groups: Sequence[GroupScores], index: GroupIndex, left_out: Set[tuple[str, str]] = frozenset()
    ) -> Pairs:
        """All but those `left_out` (group and candidate id)."""
        systems: dict[str, int] = {}
        rows = [
            (rating, score, index.number_of_group[group.group], systems.setdefault(candidate, len(systems)))
            for group in groups
            for candidate, rating, score in zip(group.candidates, group.ratings, group.scores, strict=True)
            if rating is not None and score is not None and (group.group, candidate) not in left_out
        ]
        ratings, scores, group, system = np.array(rows, dtype=float).reshape(-1, 4).T
        return cls(ratings, scores, group.astype(np.intp), system.astype(np.intp), index)


# --- estimates: values without each unit, and the interval that follows from them ---


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of one aspect, or averaged over aspects, with what it would be without each unit."""

    value: float
    without: Floats
    """Shape (units,); NaN without an interval."""
    included: Mask
    """Mask of the groups that the value is computed from, shape (groups,)."""
    index: GroupIndex
    constant: int = 0
    """Number of included groups whose scores are constant, summed over aspects."""

    @classmethod
    def mean(cls, aspects: Sequence[Estimate]) -> Estimate:
        """The mean over aspects."""
        value, without = np.mean([e.value for e in aspects]), np.mean([e.without for e in aspects], axis=0)
        included = np.logical_or.reduce([e.included for e in aspects])
        return cls(float(value), without, included, aspects[0].index, sum(e.constant for e in aspects))

    def __sub__(self, other: Estimate) -> Estimate:
        """The paired difference from an estimate from the same groups."""
        included = self.included | other.included
        return Estimate(self.value - other.value, self.without - other.without, included, self.index)

    @property
    def sources(self) -> int:
        """Number of sources that the value is computed from."""
        return len(np.unique(self.index.source[self.included]))

    @property
    def pseudo_values(self) -> Floats:
        """Of the units that the value is computed from."""
        return pseudo_values(self.value, self.without[np.unique(self.index.unit[self.included])])

    def interval(
        self, value_range: tuple[float, float] | None = None, family_size: int = 1
    ) -> tuple[float, float] | tuple[None, None]:
        """The 95 % interval: t over units, on the logit of a value that has a range, and exact at an end of the range.

        For `family_size` intervals that are to hold together in 95 % of cases, the quantile is that of 1 - .025 /
        family_size (Bonferroni, see Dunn, Multiple comparisons among means, 1961). There is none where the value or its
        values without units are undefined, with fewer than two units, and within a range where nothing varies: then
        nothing is known of the error.
        """
        values = self.pseudo_values
        units = len(values)
        if units < 2 or math.isnan(self.value) or np.isnan(values).any():
            return None, None
        error = float(values.std(ddof=1)) / math.sqrt(units)
        if value_range is None:
            half_width = _t_quantile(units, family_size) * error
            return self.value - half_width, self.value + half_width
        low, high = value_range
        # With all units at an end, at most this share of all units is not there; at worst it is at the other end.
        bound = (high - low) * (1 - _TAIL ** (1 / units))
        if high - self.value < ROUNDING_ERROR:
            return high - bound, self.value
        if self.value - low < ROUNDING_ERROR:
            return self.value, low + bound
        if error < ROUNDING_ERROR:
            return None, None
        from scipy.special import expit, logit

        share = (self.value - low) / (high - low)
        half_width = _t_quantile(units, family_size) * error / (high - low) / (share * (1 - share))
        ends = (low + (high - low) * expit(logit(share) + sign * half_width) for sign in (-1, 1))
        return float(next(ends)), float(next(ends))

    def figure(self, value_range: tuple[float, float] | None = None) -> Figure:
        """The value with its interval."""
        return Figure(None if math.isnan(self.value) else self.value, *self.interval(value_range))


def jackknife(
    statistic: Callable[[Any, Any], float], x: NDArray[Any], y: NDArray[Any], group: Indices, index: GroupIndex
) -> Estimate:
    """A statistic of two arrays of shape (pairs,), whose pairs are of the groups with these numbers."""
    unit = index.unit[group]
    without = without_each(lambda kept: statistic(x[kept], y[kept]), unit, index.units)
    return Estimate(statistic(x, y), without, np.bincount(group, minlength=len(index.unit)) > 0, index)


def without_each(statistic: Callable[[Mask], float], unit: Indices, units: int) -> Floats:
    """A statistic of all pairs but those of one unit, for each unit, shape (units,); undefined counts 0.

    Args:
        statistic: Mask of the pairs that stay -> value.
        unit: Number of each pair's unit.
        units: Number of units.
    """
    return np.nan_to_num(np.array([statistic(unit != left_out) for left_out in range(units)], dtype=float))


def pseudo_values(value: float, without: Floats) -> Floats:
    """The pseudo-values of the jackknife, shifted so that their mean is the value of the statistic on all pairs.

    Args:
        value: On all pairs.
        without: Without each unit, shape (units,).
    """
    if not len(without):
        return without
    pseudo = len(without) * value - (len(without) - 1) * without
    return np.asarray(pseudo - pseudo.mean() + value)


def _t_quantile(units: int, family_size: int = 1) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(units - 1, 1 - _TAIL / family_size))


# --- p-values by flipping signs, their correction, and power ---


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

    test = permutation_test(
        (np.ones(len(nonzero)),),
        # Rounded, so that the last digits do not decide whether a value equals the observed one.
        lambda signs, axis: np.round(signs @ nonzero / len(values), 12),
        permutation_type="samples",
        vectorized=True,
        n_resamples=1 << _MAX_EXACT_UNITS if len(nonzero) <= _MAX_EXACT_UNITS else _RANDOM_FLIPS,
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
