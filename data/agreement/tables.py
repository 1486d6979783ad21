"""Agreement of scores with human ratings: Pearson, Spearman and Kendall's tau-b at three levels, with intervals.

All correlations that the project reports are computed here. Where papers use different conventions, both are computed
and named: a group without a correlation is left out (`value`) or counted as 0 (`value_undefined_as_zero`).
Intervals come from resampling groups, because the candidates of one source are not independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.bootstrap import (
    LevelEstimate,
    Pairs,
    bundle,
    count_units,
    percentile_interval,
    resample,
)
from debate_judge.data.agreement.correlations import STATISTICS, Floats, Statistic, correlations, or_none
from debate_judge.data.agreement.levels import sample_level, summary_level, system_level
from debate_judge.data.agreement.results import LEVELS, NAMES, Agreement, AgreementTable, Difference, GroupScores, Table
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level

__all__ = [
    "LEVELS",
    "NAMES",
    "STATISTICS",
    "Agreement",
    "AgreementTable",
    "Difference",
    "GroupScores",
    "Level",
    "Statistic",
    "agreement_table",
    "compare",
    "correct",
    "correlation",
]

T = TypeVar("T")

_ESTIMATES: dict[Level, Callable[..., LevelEstimate]] = {
    "summary": summary_level,
    "sample": sample_level,
    "system": system_level,
}


def correlation(ratings: Sequence[float], scores: Sequence[float], statistic: Statistic) -> float | None:
    """Correlate two sequences of equal length.

    Returns:
        The value of scipy's pearsonr, spearmanr or kendalltau (tau-b), or None with fewer than two pairs or a
        constant side.
    """
    x, y = np.array([ratings], dtype=float), np.array([scores], dtype=float)
    if x.shape != y.shape:
        raise ValueError(f"{x.size} ratings and {y.size} scores")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("a correlation needs finite numbers")
    return or_none(correlations(x, y, [statistic])[0, 0])


def agreement_table(
    aspects: Mapping[str, Sequence[GroupScores]],
    *,
    resamples: int = 10_000,
    seed: int = 0,
    levels: Sequence[Level] = LEVELS,
    progress: Callable[[int], object] = lambda done: None,
) -> AgreementTable:
    """Compute every statistic at every level, for each aspect and averaged over aspects.

    Candidates without a rating are ignored, and so are groups without any rating. Candidates with a rating but
    no score are counted and left out. Values are exact; see `levels.sample_level` for where intervals are approximate.

    Args:
        aspects: Aspect name -> groups. The same id in several aspects is the same group.
        resamples: Number of times that the groups are resampled, jointly for all aspects; 0 for no intervals.
        seed: Of the resampling.
        levels: The levels to compute.
        progress: Called repeatedly with the number of resamples done since the last call.

    Raises:
        InputError: no aspect, or a group id twice in one aspect.
    """
    index = _index(aspects)
    unit_of_group = bundle(len(index), seed)
    estimates: dict[tuple[str, Level], LevelEstimate] = {}
    for name, groups in aspects.items():
        pairs = _pairs(groups, index, unit_of_group)
        estimates |= {(name, level): _ESTIMATES[level](pairs, STATISTICS) for level in levels}
    found = resample(
        list(estimates.values()), count_units(unit_of_group), resamples=resamples, seed=seed, progress=progress
    )
    replicates = dict(zip(estimates, found, strict=True))
    tables: dict[str, Table] = {}
    for name, groups in aspects.items():
        counts = _rated_and_unscored(groups)
        tables[name] = {
            level: _agreements(level, estimates[name, level], replicates[name, level], *counts) for level in levels
        }
    average: Table = {}
    for level in levels:
        rests_on = np.logical_or.reduce([estimates[name, level].rests_on for name in aspects])
        joint = np.mean([replicates[name, level] for name in aspects], axis=0)
        average[level] = _averages([table[level] for table in tables.values()], int(rests_on.sum()), joint)
    return AgreementTable(tables, average)


def compare(
    a: Mapping[str, Sequence[GroupScores]],
    b: Mapping[str, Sequence[GroupScores]],
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    resamples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Agreement of judge `a` minus that of judge `b`, with a paired resampling of the same groups.

    Both are compared on the same candidates and groups: a candidate that either left unscored is left out for
    both, and so is a group (at the other levels an aspect) in which the ratings do not differ. Where only a judge's
    scores do not differ, its correlation counts as 0. The p-value is twice the smaller share of resampled
    differences on one side of 0, with (count + 1) / (resamples + 1) for a share.

    Args:
        a: Aspect name -> groups.
        b: The same aspects, groups, candidates and ratings with another judge's scores.
        statistic: What to compare.
        level: Where it is computed.
        resamples: Number of times that the groups are resampled, jointly for all aspects.
        seed: Of the resampling.

    Raises:
        InputError: the two differ in aspects, groups, candidates or ratings, or there is no aspect.
    """
    if set(a) != set(b):
        raise InputError(
            "two judges can only be compared on the same aspects", expected=", ".join(a), found=", ".join(b)
        )
    index = _index(a)
    unit_of_group = bundle(len(index), seed)
    both: list[LevelEstimate] = []
    for name in a:
        pairs = [_pairs(groups, index, unit_of_group) for groups in _on_same_candidates(a[name], b[name])]
        estimates = [_ESTIMATES[level](p, [statistic], constant_as_zero=True) for p in pairs]
        if not np.isnan(estimates[0].values[0]):
            both += estimates
    if not both:
        return Difference(None, None, None, 1.0, 0)
    found = resample(both, count_units(unit_of_group), resamples=resamples, seed=seed)
    value = math.fsum(x.values[0] - y.values[0] for x, y in _couples(both)) / (len(both) // 2)
    differences = np.mean([x[0] - y[0] for x, y in _couples(found)], axis=0)
    groups = int(np.logical_or.reduce([e.rests_on for e in both]).sum())
    low, high = _interval(differences, groups)
    p_value = 1.0 if low is None else _p_value(differences[~np.isnan(differences)])
    return Difference(value, low, high, p_value, groups)


def correct(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values of several comparisons by Holm's step-down, in the order given."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def _index(aspects: Mapping[str, Sequence[GroupScores]]) -> dict[str, int]:
    """Group id -> number, over all aspects."""
    if not aspects:
        raise InputError("there is no aspect to compare ratings and scores in")
    index: dict[str, int] = {}
    for name, groups in aspects.items():
        seen: set[str] = set()
        for group in groups:
            if group.group in seen:
                raise InputError(f"group {group.group!r} occurs twice in aspect {name!r}", field="group")
            seen.add(group.group)
            index.setdefault(group.group, len(index))
    return index


def _pairs(groups: Sequence[GroupScores], index: Mapping[str, int], unit_of_group: NDArray[np.intp]) -> Pairs:
    systems: dict[str, int] = {}
    rows = [
        (rating, score, index[group.group], systems.setdefault(candidate, len(systems)))
        for group in groups
        for candidate, rating, score in zip(group.candidates, group.ratings, group.scores, strict=True)
        if rating is not None and score is not None
    ]
    ratings, scores, at, system = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Pairs(
        np.array(ratings, dtype=float),
        np.array(scores, dtype=float),
        np.array(at, dtype=np.intp),
        np.array(system, dtype=np.intp),
        unit_of_group,
    )


def _on_same_candidates(
    a: Sequence[GroupScores], b: Sequence[GroupScores]
) -> tuple[list[GroupScores], list[GroupScores]]:
    """Both judges' groups in the order of `a`, unscored wherever either is."""
    others = {group.group: group for group in b}
    if len(a) != len(b) or any(group.group not in others for group in a):
        raise InputError("two judges can only be compared on the same groups")
    first, second = [], []
    for group in a:
        other = others[group.group]
        rows = {c: (r, s) for c, r, s in zip(other.candidates, other.ratings, other.scores, strict=True)}
        if {c: r for c, (r, _) in rows.items()} != dict(zip(group.candidates, group.ratings, strict=True)):
            raise InputError(f"the two judges have different candidates or ratings in group {group.group!r}")
        scores = [rows[c][1] for c in group.candidates]
        scored = [
            (x, y) if x is not None and y is not None else (None, None)
            for x, y in zip(group.scores, scores, strict=True)
        ]
        first.append(replace(group, scores=tuple(x for x, _ in scored)))
        second.append(replace(group, scores=tuple(y for _, y in scored)))
    return first, second


def _rated_and_unscored(groups: Sequence[GroupScores]) -> tuple[int, int]:
    """How many groups have a rating, and how many candidates have a rating and no score."""
    rated = sum(any(r is not None for r in group.ratings) for group in groups)
    unscored = sum(
        r is not None and s is None for group in groups for r, s in zip(group.ratings, group.scores, strict=True)
    )
    return rated, unscored


def _agreements(
    level: Level, estimate: LevelEstimate, replicates: Floats, rated: int, unscored: int
) -> dict[Statistic, Agreement]:
    rests_on = int(estimate.rests_on.sum())
    found: dict[Statistic, Agreement] = {}
    for i, statistic in enumerate(STATISTICS):
        value = as_zero = or_none(estimate.values[i])
        if level == "summary" and rated:
            as_zero = (value or 0.0) * rests_on / rated
        low, high = _interval(replicates[i], rests_on)
        found[statistic] = Agreement(statistic, level, value, low, high, rests_on, rated - rests_on, unscored, as_zero)
    return found


def _averages(
    aspects: Sequence[Mapping[Statistic, Agreement]], groups: int, replicates: Floats
) -> dict[Statistic, Agreement]:
    found: dict[Statistic, Agreement] = {}
    for i, statistic in enumerate(STATISTICS):
        parts = [aspect[statistic] for aspect in aspects]
        value = _mean(p.value for p in parts)
        low, high = (None, None) if value is None else _interval(replicates[i], groups)
        undefined, unscored = sum(p.undefined for p in parts), sum(p.unscored for p in parts)
        as_zero = _mean(p.value_undefined_as_zero for p in parts)
        found[statistic] = Agreement(statistic, parts[0].level, value, low, high, groups, undefined, unscored, as_zero)
    return found


def _interval(replicates: Floats, groups: int) -> tuple[float, float] | tuple[None, None]:
    # Resampling a single group always draws that group: its interval would have no width.
    return (None, None) if groups < 2 else percentile_interval(replicates)


def _p_value(differences: Floats) -> float:
    # The tolerance is for differences of equal agreements, which rounding can move away from 0.
    smaller = min(int((differences <= 1e-12).sum()), int((differences >= -1e-12).sum()))
    return min(1.0, 2 * (smaller + 1) / (len(differences) + 1))


def _couples(values: Sequence[T]) -> Iterator[tuple[T, T]]:
    return zip(values[::2], values[1::2], strict=True)


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    numbers = [v for v in known if v is not None]
    return math.fsum(numbers) / len(numbers) if len(numbers) == len(known) else None
