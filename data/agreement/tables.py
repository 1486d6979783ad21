"""Agreement of scores with human ratings: Pearson, Spearman and Kendall's tau-b at three levels, with intervals.

All correlations that the project reports are computed here. A group in which only the judge's scores are constant
counts as 0, also in differences of judges. Two other conventions of papers are reported as well: without these groups
(`value_without_constant`), and with every group without a correlation, including those with constant ratings, counted
as 0 (`value_undefined_as_zero`). Intervals are over sources, because the candidates of one source are not independent
of each other; `data/agreement/intervals.py` describes the methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from debate_judge.data.agreement.bootstrap import GroupIndex, LevelEstimate, rated_pairs
from debate_judge.data.agreement.correlations import STATISTICS, Statistic, correlations, nan_to_none
from debate_judge.data.agreement.differences import compare, level_function
from debate_judge.data.agreement.intervals import (
    NO_INTERVAL,
    Interval,
    fisher_z_interval,
    logit_interval,
    mean_influences,
)
from debate_judge.data.agreement.results import (
    LEVELS,
    Agreement,
    AgreementByLevel,
    AgreementTable,
    Difference,
    GroupScores,
)
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
    table = agreement_table({"": groups}, levels=(level,), statistics=(statistic,), resamples=0)
    return table.average[level][statistic].value


def agreement_table(
    aspects: Mapping[str, Sequence[GroupScores]],
    *,
    resamples: int = 10_000,
    seed: int = 0,
    levels: Sequence[Level] = LEVELS,
    statistics: Sequence[Statistic] = STATISTICS,
    draw_systems: bool = False,
    progress: Callable[[int], object] = lambda done: None,
) -> AgreementTable:
    """Compute correlations at several levels, for each aspect and averaged over aspects.

    Candidates and groups without a rating are ignored. Candidates with a rating but no score are counted and left out.

    Args:
        aspects: Aspect name -> groups. The same id in several aspects is the same group.
        resamples: Number of bootstrap resamples of the groups, jointly for all aspects, for the intervals at system
            level; 0 for no intervals at any level.
        seed: For the resampling.
        levels: The levels to compute.
        statistics: The correlations to compute.
        draw_systems: At system level, resample the systems as well as the groups, so that the interval generalises to
            similar systems and not only to other sources.
        progress: Called repeatedly with the number of resamples done since the last call.

    Raises:
        InputError: no aspect, or a group id twice in one aspect.
    """
    index = GroupIndex.build(aspects, seed)
    options = dict[str, Any](resamples=resamples, seed=seed, draw_systems=draw_systems, progress=progress)
    at_level = {level: level_function(level, intervals=resamples > 0, **options) for level in levels}
    estimates: dict[tuple[str, Level], LevelEstimate] = {}
    for name, groups in aspects.items():
        pairs = rated_pairs(groups, index)
        estimates |= {(name, level): at_level[level](pairs, statistics) for level in levels}

    tables: dict[str, AgreementByLevel] = {}
    for name, groups in aspects.items():
        counts = _rated_and_unscored(groups)
        tables[name] = {}
        for level in levels:
            estimate = estimates[name, level]
            intervals = _intervals([estimate], index, resamples)
            tables[name][level] = _agreements(statistics, level, estimate, intervals, *counts)
    average: AgreementByLevel = {}
    for level in levels:
        of_aspects = [estimates[name, level] for name in aspects]
        included_groups = int(np.logical_or.reduce([e.included_groups for e in of_aspects]).sum())
        intervals = _intervals(of_aspects, index, resamples)
        average[level] = _averages([table[level] for table in tables.values()], included_groups, intervals)
    return AgreementTable(tables, average)


def _intervals(estimates: Sequence[LevelEstimate], index: GroupIndex, resamples: int) -> list[Interval]:
    """For every statistic, the interval of the mean over aspects.

    Args:
        estimates: One per aspect; a single one for the interval of that aspect.
        index: The groups.
        resamples: 0 for no intervals.
    """
    included_groups = np.logical_or.reduce([e.included_groups for e in estimates])
    means = np.mean([e.values for e in estimates], axis=0)
    if not resamples or np.isnan(means).all():
        return [NO_INTERVAL] * len(means)
    by_group = [e.by_group for e in estimates if e.by_group is not None]
    if by_group:
        influence = index.sum_by_source(mean_influences(by_group), included_groups)
        return [logit_interval(float(mean), row) for mean, row in zip(means, influence, strict=True)]
    units, observations = min(e.units for e in estimates), min(e.observations for e in estimates)
    replicates = np.mean([e.replicates for e in estimates if e.replicates is not None], axis=0)
    return [
        fisher_z_interval(float(mean), row, units, observations) for mean, row in zip(means, replicates, strict=True)
    ]


def _rated_and_unscored(groups: Sequence[GroupScores]) -> tuple[int, int]:
    """How many groups have a rating, and how many candidates have a rating and no score."""
    rated = sum(any(r is not None for r in group.ratings) for group in groups)
    unscored = sum(
        r is not None and s is None for group in groups for r, s in zip(group.ratings, group.scores, strict=True)
    )
    return rated, unscored


def _agreements(
    statistics: Sequence[Statistic],
    level: Level,
    estimate: LevelEstimate,
    intervals: Sequence[Interval],
    rated: int,
    unscored: int,
) -> dict[Statistic, Agreement]:
    included_groups = int(estimate.included_groups.sum())
    agreements: dict[Statistic, Agreement] = {}
    for i, statistic in enumerate(statistics):
        value = as_zero = nan_to_none(estimate.values[i])
        if level == "summary" and rated:
            as_zero = (value or 0.0) * included_groups / rated
        agreements[statistic] = Agreement(
            statistic,
            level,
            value,
            intervals[i].low,
            intervals[i].high,
            included_groups,
            rated - included_groups,
            unscored,
            as_zero,
            int(estimate.constant.sum()),
            nan_to_none(estimate.without_constant[i]),
            intervals[i].method,
        )
    return agreements


def _averages(
    aspects: Sequence[Mapping[Statistic, Agreement]], groups: int, intervals: Sequence[Interval]
) -> dict[Statistic, Agreement]:
    averages: dict[Statistic, Agreement] = {}
    for statistic, interval in zip(aspects[0], intervals, strict=True):
        of_aspects = [aspect[statistic] for aspect in aspects]
        averages[statistic] = Agreement(
            statistic,
            of_aspects[0].level,
            _mean(p.value for p in of_aspects),
            interval.low,
            interval.high,
            groups,
            sum(p.undefined for p in of_aspects),
            sum(p.unscored for p in of_aspects),
            _mean(p.value_undefined_as_zero for p in of_aspects),
            sum(p.constant for p in of_aspects),
            _mean(p.value_without_constant for p in of_aspects),
            interval.method,
        )
    return averages


def _mean(values: Iterable[float | None]) -> float | None:
    all_values = list(values)
    numbers = [v for v in all_values if v is not None]
    return math.fsum(numbers) / len(numbers) if len(numbers) == len(all_values) else None
