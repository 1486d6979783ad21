"""Agreement of scores with human ratings: Pearson, Spearman and Kendall's tau-b at three levels, with intervals.

All correlations that the project reports are computed here. A group in which only the judge's scores are constant
counts as 0, also in differences of judges. Two other conventions of papers are reported as well: without these groups
(`value_without_constant`), and with every group without a correlation, including those with constant ratings, counted
as 0 (`value_undefined_as_zero`). Intervals are over sources, because the candidates of one source are not independent
of each other; `data/agreement/intervals.py` describes the methods.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from debate_judge.data.agreement.correlations import STATISTICS, Statistic, correlations, nan_to_none
from debate_judge.data.agreement.differences import compare
from debate_judge.data.agreement.estimates import (
    AgreementEstimate,
    GroupIndex,
    LevelEstimate,
    estimate_level,
    rated_pairs,
)
from debate_judge.data.agreement.intervals import logit_interval
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
    table = agreement_table({"": groups}, levels=(level,), statistics=(statistic,), intervals=False)
    return table.average[level][statistic].value


def agreement_table(
    aspects: Mapping[str, Sequence[GroupScores]],
    *,
    intervals: bool = True,
    seed: int = 0,
    levels: Iterable[Level] = LEVELS,
    statistics: Sequence[Statistic] = STATISTICS,
) -> AgreementTable:
    """Compute correlations at several levels, for each aspect and averaged over aspects.

    Candidates and groups without a rating are ignored. Candidates with a rating but no score are counted and left out.

    Args:
        aspects: Aspect name -> groups. The same id in several aspects is the same group.
        intervals: Whether intervals are computed; at system level there are none.
        seed, levels, statistics: For the bundles of many sources; what to compute.

    Raises:
        InputError: no aspect, or a group id twice in one aspect.
    """
    index = GroupIndex.build(aspects, seed)
    tables: dict[str, AgreementByLevel] = {name: {} for name in aspects}
    average: AgreementByLevel = {}
    for level in levels:
        estimates = {
            name: estimate_level(level, rated_pairs(groups, index), statistics, intervals=intervals)
            for name, groups in aspects.items()
        }
        for name, groups in aspects.items():
            tables[name][level] = _agreements({name: groups}, estimates, level, statistics, intervals)
        average[level] = _agreements(aspects, estimates, level, statistics, intervals)
    return AgreementTable(tables, average)


def _agreements(
    aspects: Mapping[str, Sequence[GroupScores]],
    estimates: Mapping[str, LevelEstimate],
    level: Level,
    statistics: Sequence[Statistic],
    intervals: bool,
) -> dict[Statistic, Agreement]:
    """The correlations at a level, averaged over aspects where there are several."""
    of_aspects = [estimates[name] for name in aspects]
    mean = AgreementEstimate.mean([entry.estimate for entry in of_aspects])
    included = [int(entry.estimate.included_groups.sum()) for entry in of_aspects]
    rated = [sum(any(r is not None for r in g.ratings) for g in groups) for groups in aspects.values()]
    unscored = sum(
        r is not None and s is None
        for groups in aspects.values()
        for g in groups
        for r, s in zip(g.ratings, g.scores, strict=True)
    )
    agreements: dict[Statistic, Agreement] = {}
    for i, statistic in enumerate(statistics):
        error = float(mean.standard_errors[i]) if intervals else math.nan
        interval = logit_interval(float(mean.values[i]), error, mean.sources)
        values = [float(entry.estimate.values[i]) for entry in of_aspects]
        if level == "summary":
            # Of all rated groups, those without a correlation count 0.
            rows = zip(values, included, rated, strict=True)
            values = [float(np.nan_to_num(value)) * n / of if of else value for value, n, of in rows]
        agreements[statistic] = Agreement(
            interval.value,
            interval.low,
            interval.high,
            interval.method,
            statistic=statistic,
            level=level,
            groups=int(mean.included_groups.sum()),
            undefined=sum(rated) - sum(included),
            unscored=unscored,
            constant=sum(int(entry.constant.sum()) for entry in of_aspects),
            value_without_constant=nan_to_none(float(np.mean([entry.without_constant[i] for entry in of_aspects]))),
            value_undefined_as_zero=nan_to_none(float(np.mean(values))),
        )
    return agreements
