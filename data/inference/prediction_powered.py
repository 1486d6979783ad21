"""Prediction-powered inference (PPI) for systems: few sources have ratings, all have a judge's scores.

A system's mean rating is estimated as mean(Y - w F) over rated sources + w mean(F) over the others, with Y ratings and
F scores (Angelopoulos, Bates, Fannjiang, Jordan and Zrnic, Prediction-powered inference, Science 2023). This is
unbiased for any judge if the rated sources were sampled at random; w affects only the width of the interval. It
minimizes the variance (PPI++: Angelopoulos, Duchi and Zrnic 2023): w = cov(Y, F) / ((1 + n/m) var F) for n rated and m
other sources, so scores may be on any scale. For an uninformative judge w is near 0, which gives the mean of the
ratings.

Sources are independent of each other, texts of one source are not. So the estimate is a sum over sources, u + w v plus
constants, with influences u (of ratings) and v (of scores) for each source, and w = -sum(u v) / sum(v^2). Because w was
tuned on the same sources, residuals are too small; they are divided by 1 - h, with h the leverage of a source on w
(HC3, MacKinnon and White 1985). Intervals are t(n - 1). Where this interval is wider than that of the ratings alone,
the latter is given, with w = 0. Where all ratings of a system are equal, the interval is the exact bound on the share
of sources that are different, at worst at an end of the scale (Clopper and Pearson 1934).
`tests/bench/prediction_powered.py` measures the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.differences import holm_adjusted_by_name
from debate_judge.data.agreement.intervals import t_quantile
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.inference.drift import SampleEstimate, TwoSampleDifference, compare_samples
from debate_judge.data.schema import ROUNDING_ERROR

if TYPE_CHECKING:
    import pandas as pd

Mask = NDArray[np.bool_]

MIN_RATED_SOURCES = 3
"""Least number of rated sources for an estimate."""

SIGNIFICANT = 0.05
"""Two systems differ significantly if their adjusted p-value is below this."""


@dataclass(frozen=True, slots=True)
class PPIEstimate:
    """A mean on the raters' scale, or a difference of two, with its 95 % interval."""

    value: float
    low: float
    high: float
    weight: float
    """The weight w of the scores; 0 where only the ratings count."""
    rated: int
    """Sources with a rating."""
    others: int
    """Further sources, which have scores only."""
    error: float
    """Standard error."""
    alone: float
    """The estimate by the ratings alone; `alone_low` and `alone_high` are its interval."""
    alone_low: float
    alone_high: float
    saved: float
    """Number of further sources that would have to be rated for this standard error by ratings alone."""
    p_value: float
    """Two-sided, for the hypothesis that the value is 0."""


@dataclass(frozen=True, slots=True)
class SystemMean:
    """One row of a table of systems."""

    system: str
    mean: PPIEstimate
    ratings: int
    """Number of its texts that have a rating."""
    saved_ratings: float
    """Number of ratings that the judge saved: `mean.saved` times the ratings per source."""
    best_rank: int
    """1 + the number of systems that are significantly better."""
    worst_rank: int
    """The number of systems minus those that are significantly worse."""


@dataclass(frozen=True, slots=True)
class SystemDifference:
    """The first system minus the second."""

    first: str
    second: str
    difference: PPIEstimate
    corrected: float
    """The p-value, adjusted for all pairs (Holm 1979)."""


@dataclass(frozen=True, slots=True)
class SystemsTable:
    """The systems of one aspect, the best first."""

    systems: tuple[SystemMean, ...]
    differences: tuple[SystemDifference, ...]
    """All pairs, in the order of `systems`."""
    left_out: tuple[str, ...]
    """Systems with too few rated sources."""
    rated: int
    """Sources with any rating."""
    others: int
    """Sources without a rating."""
    rated_minus_others: TwoSampleDifference | None
    """Mean score of rated sources minus that of the others; far from 0, the rated ones were not sampled at random."""

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def ppi_estimate(
    ratings: Floats, scores: Floats, contrast: Floats | None = None, *, value_range: tuple[float, float] | None = None
) -> PPIEstimate | None:
    """Estimate a system's mean rating, or a contrast of several.

    Args:
        ratings: Shape (sources, systems), NaN where a text has no rating. Rated sources are a random sample of all.
        scores: The same shape, NaN where a text has no score. A rated text without a score is imputed the mean score of
            the system's rated texts.
        contrast: Weight of each system, shape (systems,): (1, -1) for a difference; by default 1 for the only one.
        value_range: Lowest and highest value of the raters' scale; by default the lowest and the highest rating.

    Returns:
        None where a system has fewer than `MIN_RATED_SOURCES` rated sources.
    """
    from scipy.special import stdtr

    weights = np.ones(1) if contrast is None else np.asarray(contrast, dtype=float)
    rated = ~np.isnan(ratings)
    if (rated.sum(axis=0) < MIN_RATED_SOURCES).any():
        return None
    value = float(weights @ np.nanmean(ratings, axis=0))
    influence = _centred(ratings, rated) @ weights
    shift, score_influence = _shift(scores, rated, weights)
    any_rated = rated.any(axis=1)
    groups, others = int(any_rated.sum()), int((~any_rated & ~np.isnan(scores).all(axis=1)).sum())
    leverage = np.where(any_rated, 1 / groups, 1 / max(others, 2))
    error_of_ratings = math.sqrt(float((influence**2 / (1 - leverage))[any_rated].sum()))
    if error_of_ratings < ROUNDING_ERROR:
        value_range = value_range or (np.nanmin(ratings), np.nanmax(ratings))
        low, high, p_value = _degenerate_interval(value, groups, weights, value_range)
        return PPIEstimate(value, low, high, 0.0, groups, others, 0.0, value, low, high, 0.0, p_value)
    weight, error = 0.0, error_of_ratings
    spread = float((score_influence**2).sum())
    if spread > 0:
        weight = max(0.0, float((influence * score_influence).sum()) / spread)
        weight_leverage = np.minimum(score_influence**2 / spread, 1 - ROUNDING_ERROR)
        residuals = (influence - weight * score_influence) / (1 - weight_leverage)
        error = max(ROUNDING_ERROR, math.sqrt(float((residuals**2 / (1 - leverage)).sum())))
        if error >= error_of_ratings:
            weight, error = 0.0, error_of_ratings
    mean, t = value + weight * shift, t_quantile(groups)
    return PPIEstimate(
        mean,
        mean - t * error,
        mean + t * error,
        weight,
        groups,
        others,
        error,
        value,
        value - t * error_of_ratings,
        value + t * error_of_ratings,
        groups * ((error_of_ratings / error) ** 2 - 1),
        float(2 * stdtr(groups - 1, -abs(mean) / error)),
    )


def measure_systems(groups: Sequence[GroupScores], value_range: tuple[float, float] | None = None) -> SystemsTable:
    """Estimate the mean of every system in one aspect, all differences, and ranks from the significant ones.

    Args:
        groups: Of one aspect; candidate ids are the systems, and most groups have no ratings.
        value_range: Lowest and highest value of the raters' scale; by default the lowest and the highest rating.
    """
    texts = _table_of_texts(groups)
    # Sources x systems: means where a source has several texts of a system, NaN without one.
    ratings, scores = (
        texts.groupby(["source", "system"])[name]
        .mean()
        .unstack()
        .reindex(texts.source.unique(), columns=texts.system.unique())
        for name in ("rating", "score")
    )
    value_range = value_range or (texts.rating.min(), texts.rating.max())

    def estimate(*systems: str) -> PPIEstimate | None:
        of_systems = [table[list(systems)].to_numpy(dtype=float) for table in (ratings, scores)]
        contrast = np.array([1.0, -1.0][: len(systems)])
        return ppi_estimate(of_systems[0], of_systems[1], contrast, value_range=value_range)

    names: list[str] = texts.system.unique().tolist()
    means = {name: mean for name in names if (mean := estimate(name)) is not None}
    order = sorted(means, key=lambda name: -means[name].value)
    pairs = {pair: difference for pair in combinations(order, 2) if (difference := estimate(*pair)) is not None}
    corrected = holm_adjusted_by_name({pair: difference.p_value for pair, difference in pairs.items()})
    significant = {pair: d.value for pair, d in pairs.items() if (corrected[pair] or 0.0) < SIGNIFICANT}
    systems = []
    for name in order:
        better = sum(name == (b if value > 0 else a) for (a, b), value in significant.items())
        worse = sum(name == (a if value > 0 else b) for (a, b), value in significant.items())
        rated_texts = int(ratings[name].count())
        saved = means[name].saved * (texts.raters[texts.system == name].sum() or rated_texts) / rated_texts
        systems.append(SystemMean(name, means[name], rated_texts, saved, 1 + better, len(order) - worse))
    rated = ratings.notna().any(axis=1)
    # Each system's scores minus their mean, because sources may have texts of different systems.
    centred = (scores - scores.mean()).mean(axis=1).dropna()
    samples = (centred[rated == is_rated].to_numpy(dtype=float)[:, None] for is_rated in (True, False))
    return SystemsTable(
        tuple(systems),
        tuple(SystemDifference(*pair, difference, corrected[pair] or 0.0) for pair, difference in pairs.items()),
        tuple(name for name in names if name not in means),
        int(rated.sum()),
        int((~rated).sum()),
        compare_samples(*(SampleEstimate.of_mean(list(sample)) for sample in samples)),
    )


def _table_of_texts(groups: Sequence[GroupScores]) -> pd.DataFrame:
    """A row for each text: source, system, mean rating, score, and number of single ratings, if known."""
    import pandas as pd

    rows = [
        (group.source_id, str(name), rating, score, len(raters))
        for group in groups
        for name, rating, score, raters in zip(
            group.candidates, group.ratings, group.scores, group.raters or ((),) * len(group.candidates), strict=True
        )
    ]
    types = {"rating": float, "score": float}
    return pd.DataFrame(rows, columns=["source", "system", "rating", "score", "raters"]).astype(types)


def _centred(values: Floats, sources: Mask) -> Floats:
    """The influence of each source on the mean of each system over a mask of sources, shape (sources, systems)."""
    count = np.maximum(sources.sum(axis=0), 1)
    masked = np.where(sources, values, 0.0)
    return np.asarray(np.where(sources, masked - masked.sum(axis=0) / count, 0.0) / count)


def _shift(scores: Floats, rated: Mask, weights: Floats) -> tuple[float, Floats]:
    """Mean score of unrated minus that of rated texts, and the influences of the sources on its negative."""
    scored = ~np.isnan(scores)
    inside, outside = scored & rated, scored & ~rated
    usable = inside.any(axis=0) & outside.any(axis=0)
    if not usable.all():
        # Scores add nothing for a system that was rated everywhere or never scored.
        return 0.0, np.zeros(len(scores))
    means = [np.where(selected, scores, 0.0).sum(axis=0) / selected.sum(axis=0) for selected in (outside, inside)]
    filled = np.where(rated & ~scored, means[1], scores)
    influences = (_centred(filled, rated) - _centred(scores, outside)) @ weights
    return float(weights @ (means[0] - means[1])), influences


def _degenerate_interval(
    value: float, groups: int, weights: Floats, value_range: tuple[float, float]
) -> tuple[float, float, float]:
    """Lower and upper end of the interval, and the p-value, where every source has the same value."""
    bound = 1 - 0.025 ** (1 / groups)
    lowest, highest = (
        weights @ np.where((weights > 0) == lower, value_range[0], value_range[1]) for lower in (True, False)
    )
    # All signs are equal in 2 of 2^groups sign assignments (`data/agreement/differences.py`).
    p_value = 1.0 if abs(value) < ROUNDING_ERROR else 2.0 ** (1 - groups)
    return float(value - bound * (value - lowest)), float(value + bound * (highest - value)), p_value
