"""How scores are spread: over the scale beside the raters' ratings, and over repeated runs of one judge."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from debate_judge.data.schema import Scale
from debate_judge.runs.comparison.results import AVERAGE, EvalSetup, Scores

_MOST_POINTS = 11
"""Scales with more points than this are shown in ten equal parts."""


@dataclass(frozen=True)
class Spread:
    """Shares of values by point of the scale, and how far they are from the raters'."""

    shares: tuple[float, ...]
    """They add up to 1."""
    count: int
    mean: float
    wasserstein: float | None
    """First Wasserstein distance to the mean ratings, in points of the scale, before any rounding; None for them."""
    total_variation: float | None
    """Half the sum of the differences of the shares; None for the ratings themselves."""


@dataclass(frozen=True)
class Distribution:
    """Of one aspect: ratings first, then the judges."""

    points: tuple[str, ...]
    """What the shares belong to: points of the scale, or parts of it."""
    ratings: Spread
    judges: Mapping[str, Spread]


@dataclass(frozen=True)
class Steadiness:
    """What one judge's repeated runs did."""

    agreement: Mapping[str, tuple[float | None, ...]]
    """Aspect, or `AVERAGE` -> agreement of each run."""
    items: int
    """Items with a score in at least two runs."""
    score_deviation: float | None
    """Standard deviation of an item's score over the runs, mean over these items, in points of the scale."""
    changed: float | None
    """Share of these items whose scores are not all equal."""
    unscored: int
    """Over all runs."""

    def mean(self, column: str) -> float | None:
        """Mean agreement over the runs; None if it is undefined in one."""
        values = [v for v in self.agreement[column] if v is not None]
        return statistics.fmean(values) if len(values) == len(self.agreement[column]) else None

    def deviation(self, column: str) -> float | None:
        """Standard deviation (n - 1) of the agreement over the runs."""
        values = [v for v in self.agreement[column] if v is not None]
        return statistics.stdev(values) if len(values) == len(self.agreement[column]) > 1 else None


def distributions(setup: EvalSetup, judges: Mapping[str, Scores]) -> dict[str, Distribution]:
    """Aspect -> how often each point of the scale was given, by the raters on average and by each judge.

    Mean ratings between two points go to the nearer one, halves up. Only what was rated is counted.
    """
    found = {}
    for aspect in setup.aspects:
        points, place = bins(aspect.scale)
        rated = [r for g in next(iter(judges.values()))[aspect.name] for r in g.ratings if r is not None]
        human = _spread(rated, points, place, None)
        found[aspect.name] = Distribution(
            points,
            human,
            {
                name: _spread(_scored(scores, aspect.name), points, place, (rated, human.shares))
                for name, scores in judges.items()
                if _scored(scores, aspect.name)
            },
        )
    return found


def steadiness(setup: EvalSetup, runs: Sequence[Scores]) -> Steadiness:
    """What changes from run to run.

    Args:
        ground: The first statistic of its level is the agreement.
        runs: Scores of each run, at least one.
    """
    level, statistic = setup.level, setup.statistics[0]
    exact = replace(setup, resamples=0)
    tables = [exact.agreement(scores) for scores in runs]
    agreement = {
        a.name: tuple(table.aspects[a.name][level][statistic].value for table in tables) for a in setup.aspects
    }
    agreement[AVERAGE] = tuple(table.average[level][statistic].value for table in tables)
    per_item = [
        [s for s in values if s is not None]
        for a in setup.aspects
        for groups in zip(*(scores[a.name] for scores in runs), strict=True)
        for values in zip(*(group.scores for group in groups), strict=True)
    ]
    several = [values for values in per_item if len(values) > 1]
    return Steadiness(
        agreement,
        len(several),
        statistics.fmean(statistics.stdev(values) for values in several) if several else None,
        sum(len(set(values)) > 1 for values in several) / len(several) if several else None,
        sum(len(runs) - len(values) for values in per_item),
    )


def _scored(scores: Scores, aspect: str) -> list[float]:
    return [
        s
        for group in scores[aspect]
        for r, s in zip(group.ratings, group.scores, strict=True)
        if r is not None and s is not None
    ]


def _spread(
    values: Sequence[float],
    points: Sequence[str],
    place: Callable[[float], int],
    human: tuple[Sequence[float], Sequence[float]] | None,
) -> Spread:
    counts = [0] * len(points)
    for value in values:
        counts[place(value)] += 1
    shares = tuple(n / len(values) for n in counts)
    if human is None:
        return Spread(shares, len(values), statistics.fmean(values), None, None)
    from scipy.stats import wasserstein_distance

    ratings, theirs = human
    return Spread(
        shares,
        len(values),
        statistics.fmean(values),
        float(wasserstein_distance(values, ratings)),
        math.fsum(abs(a - b) for a, b in zip(shares, theirs, strict=True)) / 2,
    )


def bins(scale: Scale) -> tuple[tuple[str, ...], Callable[[float], int]]:
    """Names of the points of a scale, and from a value to the number of its point."""
    steps = round((scale.high - scale.low) / scale.step)
    if steps < _MOST_POINTS:
        last = steps

        def nearest(value: float) -> int:
            return min(last, max(0, math.floor((value - scale.low) / scale.step + 0.5)))

        return tuple(f"{scale.low + i * scale.step:g}" for i in range(steps + 1)), nearest
    width = (scale.high - scale.low) / 10

    def part(value: float) -> int:
        return min(9, max(0, math.floor((value - scale.low) / width)))

    return tuple(f"{scale.low + i * width:g}–{scale.low + (i + 1) * width:g}" for i in range(10)), part
