"""Agreement of scores with human ratings: Pearson, Spearman and Kendall's tau-b at three levels, with intervals.

All correlations that the project reports are computed here. A group in which only the judge's scores are constant
counts as 0, also in differences of judges. Intervals are over sources, because the candidates of one source are not
independent of each other; `data/agreement/figures.py` describes them. Undefined is NaN within this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.figures import (
    LEVELS,
    STATISTICS,
    Agreement,
    AgreementByLevel,
    AgreementTable,
    Difference,
    Figure,
    Floats,
    GroupScores,
    Indices,
    Mask,
    Statistic,
    bundle,
    mean_interval,
    nan_to_none,
    pseudo_values,
    range_interval,
    sign_flip_p_value,
    standard_errors,
    t_interval,
    without_each,
)
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level

_LONGEST_ROW = 64
"""Longest row for which Kendall's tau compares all pairs, for all rows at once; scipy computes that of longer rows."""


def correlations(x: Floats, y: Floats, statistics: Sequence[Statistic]) -> Floats:
    """Correlate each row of `x` with the same row of `y`, both of shape (rows, width).

    Returns:
        Shape (statistics, rows), NaN where a side is constant or a row has fewer than two entries.
    """
    if x.shape[1] < 2:
        return np.full((len(statistics), len(x)), np.nan)
    return np.stack([_BY_STATISTIC[name](x, y) for name in statistics])


def concordance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """The concordance correlation coefficient of two sequences (Lin 1989).

    1 - mean (x - y)^2 / its expectation by chance, mean x^2 + mean y^2 - 2 mean x mean y. Of zeros and ones it is
    Cohen's kappa. NaN where both sides have the same single value, or are empty.
    """
    if not len(x):
        return np.nan
    # From the lowest value of x, so that equal values of both sides are exactly 0.
    x, y = (np.asarray(side, dtype=float) - float(x.min()) for side in (x, y))
    by_chance = np.mean(x**2) + np.mean(y**2) - 2 * np.mean(x) * np.mean(y)
    return float(1 - np.mean((x - y) ** 2) / by_chance) if by_chance > 0 else np.nan


def area_under_roc(positive: NDArray[Any], scores: Floats) -> float:
    """The probability that a positive candidate scores higher than a negative one; equal scores count half."""
    from scipy.stats import rankdata

    positives, negatives = np.count_nonzero(positive), np.count_nonzero(~positive)
    if not positives or not negatives:
        return np.nan
    return float((rankdata(scores)[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _pearson(x: Floats, y: Floats) -> Floats:
    dx, dy = _deviations(x), _deviations(y)
    r: Floats = (dx * dy).sum(axis=1) / np.sqrt((dx**2).sum(axis=1) * (dy**2).sum(axis=1))
    return r.clip(-1.0, 1.0)


def _deviations(x: Floats) -> Floats:
    """Deviations from the row's mean in units of its range; NaN throughout a constant row."""
    low = x.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        unit = (x - low) / (x.max(axis=1, keepdims=True) - low)
    return np.asarray(unit - unit.mean(axis=1, keepdims=True))


def _spearman(x: Floats, y: Floats) -> Floats:
    from scipy.stats import rankdata

    return _pearson(rankdata(x, axis=1), rankdata(y, axis=1))


def _kendall(x: Floats, y: Floats) -> Floats:
    if x.shape[1] > _LONGEST_ROW:
        from scipy.stats import kendalltau

        return np.array([kendalltau(*row).statistic for row in zip(x, y, strict=True)])
    first, second = np.triu_indices(x.shape[1], 1)
    dx, dy = (np.sign(side[:, first] - side[:, second]) for side in (x, y))
    with np.errstate(invalid="ignore"):
        tau: Floats = (dx * dy).sum(axis=1) / np.sqrt(np.abs(dx).sum(axis=1)) / np.sqrt(np.abs(dy).sum(axis=1))
    return tau.clip(-1.0, 1.0)


_BY_STATISTIC: dict[Statistic, Callable[[Floats, Floats], Floats]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}


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


def correlation(ratings: Sequence[float], scores: Sequence[float], statistic: Statistic) -> float | None:
    """Correlate two sequences of equal length.

    Returns:
        The value of scipy's pearsonr, spearmanr or kendalltau (tau-b); None with fewer than two pairs, or where one
        sequence is constant.
    """
    x, y = np.array([ratings], dtype=float), np.array([scores], dtype=float)
    if x.shape != y.shape:
        raise ValueError(f"{x.size} ratings and {y.size} scores")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("a correlation needs finite numbers")
    return nan_to_none(correlations(x, y, [statistic])[0, 0])


def level_correlation(groups: Sequence[GroupScores], statistic: Statistic, level: Level) -> float | None:
    """The correlation of one aspect at a level, without its interval."""
    table = agreement_table({"": groups}, levels=(level,), statistics=(statistic,))
    return table.average[level][statistic].value


def agreement_table(
    aspects: Mapping[str, Sequence[GroupScores]],
    *,
    seed: int = 0,
    levels: Iterable[Level] = LEVELS,
    statistics: Sequence[Statistic] = STATISTICS,
) -> AgreementTable:
    """Compute correlations at several levels, for each aspect and averaged over aspects; at system level without
    intervals.

    Candidates and groups without a rating are ignored. Candidates with a rating but no score are counted and left out.

    Args:
        aspects: Aspect name -> groups. The same id in several aspects is the same group.
        seed, levels, statistics: For the bundles of many sources; what to compute.

    Raises:
        InputError: no aspect, or a group id twice in one aspect.
    """
    index = GroupIndex.build(aspects, seed)
    pairs = {name: rated_pairs(groups, index) for name, groups in aspects.items()}
    tables: dict[str, AgreementByLevel] = {name: {} for name in aspects}
    average: AgreementByLevel = {}
    for level in levels:
        estimates = {name: estimate_level(level, p, statistics) for name, p in pairs.items()}
        for name, groups in aspects.items():
            tables[name][level] = _agreements([groups], [estimates[name]], level, statistics)
        average[level] = _agreements([*aspects.values()], [*estimates.values()], level, statistics)
    return AgreementTable(tables, average)


def _agreements(
    aspects: Sequence[Sequence[GroupScores]],
    estimates: Sequence[Estimate],
    level: Level,
    statistics: Sequence[Statistic],
) -> dict[Statistic, Agreement]:
    """The correlations at a level, averaged over aspects where there are several."""
    mean = Estimate.mean(estimates)
    units = mean.without_included.shape[1]
    rated = sum(any(r is not None for r in g.ratings) for groups in aspects for g in groups)
    pairs = (pair for groups in aspects for g in groups for pair in zip(g.ratings, g.scores, strict=True))
    unscored = sum(rating is not None and score is None for rating, score in pairs)
    agreements: dict[Statistic, Agreement] = {}
    for statistic, value, error in zip(statistics, mean.values.tolist(), mean.standard_errors.tolist(), strict=True):
        interval = range_interval(value, error, units)
        agreements[statistic] = Agreement(
            interval.value,
            interval.low,
            interval.high,
            statistic=statistic,
            level=level,
            groups=int(mean.included.sum()),
            constant=mean.constant,
            undefined=rated - sum(int(estimate.included.sum()) for estimate in estimates),
            unscored=unscored,
        )
    return agreements


def compare(
    a: Mapping[str, Sequence[GroupScores]],
    b: Mapping[str, Sequence[GroupScores]],
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    seed: int = 0,
    family_size: int = 1,
) -> Difference:
    """Agreement of judge `a` minus that of judge `b` on the same groups, averaged over aspects.

    Both are compared on the same candidates: one that either judge left unscored is left out for both, and so is a
    group (at the other levels an aspect) in which all ratings are equal. Where only a judge's scores are all equal, its
    correlation counts as 0. At system level there is neither an interval nor a p-value.

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
    differences: list[Estimate] = []
    for name in a:
        unscored = _unscored_by_either(a[name], b[name])
        pairs = (rated_pairs(groups[name], index, unscored) for groups in (a, b))
        first, second = (estimate_level(level, judge, [statistic]) for judge in pairs)
        if not np.isnan(first.values[0]):
            differences.append(first - second)
    if not differences:
        return Difference(None, groups=0)
    mean = Estimate.mean(differences)
    value, error, sources = float(mean.values[0]), float(mean.standard_errors[0]), mean.sources
    without = mean.without_included
    if np.isnan(without).any():
        return Difference(value, groups=sources)
    p_value = sign_flip_p_value(pseudo_values(mean.values, without)[0], seed)
    interval = t_interval(value, error, without.shape[1], family_size)
    if interval.low is None:
        return Difference(value, p_value=p_value, groups=sources)
    low, high = np.clip([interval.low, interval.high], -2.0, 2.0).tolist()
    return Difference(value, low, high, p_value=p_value, groups=sources, deviation=error * math.sqrt(sources))


def _unscored_by_either(a: Sequence[GroupScores], b: Sequence[GroupScores]) -> set[tuple[str, str]]:
    """Group and id of the candidates that either judge left unscored."""
    first, second = (
        {(g.group, c): (r, s) for g in groups for c, r, s in zip(g.candidates, g.ratings, g.scores, strict=True)}
        for groups in (a, b)
    )
    if {key: rating for key, (rating, _) in first.items()} != {key: rating for key, (rating, _) in second.items()}:
        raise InputError("two judges can only be compared on the same groups, candidates and ratings")
    return {key for key in first if first[key][1] is None or second[key][1] is None}


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """One judge compared with the raters of one aspect. None where a statistic is undefined."""

    raters: int
    """Largest number of ratings of a candidate; with fewer than two, only error and bias are defined."""
    error: Figure | None
    """Mean absolute error; None where the scores are on another scale."""
    bias: Figure | None
    """Mean of score minus rating."""
    ceiling: Agreement | None = None
    """Each rater against the mean of the others, averaged over raters: the human ceiling."""
    judge: Agreement | None = None
    """The judge against the same means."""
    below_ceiling: Difference | None = None
    """The judge minus the raters, paired."""
    alpha: float | None = None
    """Krippendorff's alpha of the raters."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def compare_with_raters(
    groups: Sequence[GroupScores],
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    on_scale: bool = True,
    seed: int = 0,
) -> RaterAgreement:
    """Compare a judge with the raters of one aspect.

    Args:
        groups: Of one aspect, with the ratings of single raters.
        statistic, level: The correlation.
        on_scale: Whether the scores are on the raters' scale, so that differences from ratings are meaningful.
        seed: Of bundles and sign flips.
    """
    rater_count = max((len(values) for g in groups for values in g.raters), default=0)
    error, bias = error_and_bias(groups) if on_scale else (None, None)
    if rater_count < 2:
        return RaterAgreement(rater_count, error, bias)
    rater_scores = raters_as_judges(groups)
    judge_scores = {
        name: [replace(h, scores=g.scores) for g, h in zip(groups, rater_groups, strict=True)]
        for name, rater_groups in rater_scores.items()
    }
    tables = [
        agreement_table(scores, levels=(level,), statistics=(statistic,), seed=seed)
        for scores in (rater_scores, judge_scores)
    ]
    ceiling, judge = (table.average[level][statistic] for table in tables)
    return RaterAgreement(
        rater_count,
        error,
        bias,
        ceiling,
        judge,
        compare(judge_scores, rater_scores, statistic=statistic, level=level, seed=seed),
        krippendorff_alpha([values for g in groups for values in g.raters]),
    )


def raters_as_judges(groups: Sequence[GroupScores]) -> dict[str, list[GroupScores]]:
    """Each rater's ratings as scores, with the means of the other raters as ratings.

    Raters have no names here: the n-th is that of each candidate's n-th rating.
    """
    count = max((len(values) for g in groups for values in g.raters), default=0)
    return {f"rater {i + 1}": [_rater_as_judge(g, i) for g in groups] for i in range(count)}


def krippendorff_alpha(ratings: Sequence[Sequence[float]]) -> float | None:
    """Krippendorff's alpha for interval data: 1 - observed / expected disagreement (Krippendorff 2019, chapter 12).

    Disagreement is the squared difference of two ratings: of one candidate for the observed, of any two for the
    expected. For ratings of two values this equals the nominal alpha. Candidates with fewer than two ratings are left
    out; None where nothing can be compared or all ratings are equal.
    """
    units = [np.asarray(values, dtype=float) for values in ratings if len(values) > 1]
    if not units:
        return None
    pooled = np.concatenate(units)
    if np.ptp(pooled) == 0:
        return None
    expected = pooled.var(ddof=1)
    observed = sum(len(values) * values.var(ddof=1) for values in units) / len(pooled)
    return float(1 - observed / expected)


def error_and_bias(groups: Sequence[GroupScores]) -> tuple[Figure, Figure] | tuple[None, None]:
    """Mean absolute difference and mean difference of scores and mean ratings, with t intervals over sources."""
    differences = differences_by_group(groups)
    if not differences:
        return None, None
    return mean_interval([np.abs(values) for values in differences]), mean_interval(differences)


def differences_by_group(groups: Sequence[GroupScores]) -> list[Floats]:
    """Score minus mean rating of the candidates that have both, one array per source with such candidates."""
    by_source: dict[str, list[float]] = {}
    for g in groups:
        pairs = zip(g.ratings, g.scores, strict=True)
        differences = [score - rating for rating, score in pairs if rating is not None and score is not None]
        by_source.setdefault(g.source_id, []).extend(differences)
    return [np.array(differences) for differences in by_source.values() if differences]


def _rater_as_judge(group: GroupScores, rater: int) -> GroupScores:
    others: list[float | None] = []
    rater_ratings: list[float | None] = []
    for values in group.raters or ((),) * len(group.candidates):
        has_rating = len(values) > max(rater, 1)
        other_values = [v for i, v in enumerate(values) if i != rater]
        others.append(math.fsum(other_values) / len(other_values) if has_rating else None)
        rater_ratings.append(values[rater] if has_rating else None)
    return GroupScores(group.group, group.candidates, tuple(others), tuple(rater_ratings), source=group.source)
