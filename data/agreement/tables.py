"""Agreement of scores with human ratings: Pearson, Spearman and Kendall's tau-b at three levels, with intervals.

All correlations that the project reports are computed here. A group in which only the judge's scores are constant
counts as 0, also in differences of judges. Intervals are over sources, because the candidates of one source are not
independent of each other; `data/agreement/intervals.py` describes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from debate_judge.data.agreement.correlations import STATISTICS, Statistic, correlations, nan_to_none
from debate_judge.data.agreement.estimates import Estimate, GroupIndex, estimate_level, rated_pairs
from debate_judge.data.agreement.intervals import pseudo_values, range_interval, sign_flip_p_value, t_interval
from debate_judge.data.agreement.results import (
    LEVELS,
    Agreement,
    AgreementByLevel,
    AgreementTable,
    Difference,
    GroupScores,
)
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level

__all__ = [
    "LEVELS",
    "STATISTICS",
    "Agreement",
    "AgreementTable",
    "Difference",
    "GroupScores",
    "Level",
    "Statistic",
    "agreement_table",
    "compare",
    "correlation",
    "level_correlation",
]


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
