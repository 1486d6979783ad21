"""Intervals on the raters' scale around single scores, by split conformal prediction, one aspect at a time.

The calibration set is the held-out texts, whose ratings neither the judge nor its map to the raters' scale has seen. An
interval is score +- q s(score), where s is a kernel mean of the absolute residuals of texts with similar scores, shrunk
towards that of all texts, and q a quantile of the residuals divided by s (Papadopoulos, Gammerman and Vovk 2008; Lei et
al. 2018). The s of each residual is computed from the other sources. The interval is for the mean rating of a text by
as many raters as rated the held-out texts.

With N exchangeable texts, q is the quantile of coverage (1 + 1/N). Texts of one source are not exchangeable with those
of others, however: where misses cluster by source, G sources are worth hardly more than G texts (Dunn, Wasserman and
Ramdas 2023; Lee, Barber and Willett 2024). So the effective sample size N / (1 + (m - 1) rho) is used, with m texts per
source and rho the intraclass correlation of misses (Kish 1965). `tests/bench/conformal.py` measures the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.raters import pairs_by_source
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import ROUNDING_ERROR, Scale

_KERNEL_DEVIATION = 0.125
"""Standard deviation of the kernel, as a share of the scale."""

_PRIOR_TEXTS = 10.0
"""Weight of the mean residual of all texts in the local one, as a number of texts."""

_MIN_SPREAD = 0.05
"""Least local spread, as a share of the overall one: at an end of the scale all residuals may be 0."""


@dataclass(frozen=True, slots=True)
class ScoreInterval:
    """A prediction interval for the mean rating of a text."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class ConformalIntervals:
    """The intervals of one aspect."""

    scale: Scale
    """Of the raters; intervals end where it does."""
    factor: float
    """The quantile q; infinite with too few sources for the coverage: intervals are then the whole scale."""
    scores: Floats
    """Held-out scores on the raters' scale, shape (texts,)."""
    residuals: Floats
    """Absolute differences of rating and score, shape (texts,)."""

    def at(self, score: float) -> ScoreInterval:
        """The interval around a score on the raters' scale."""
        if math.isinf(self.factor):
            return ScoreInterval(self.scale.low, self.scale.high)
        allowed = np.ones((1, len(self.scores)))
        spread = float(_local_spread(np.array([score]), self.scores, self.residuals, allowed, self.scale)[0])
        # The score may lie outside the scale; its interval does not.
        low, high = np.clip(score + self.factor * spread * np.array([-1, 1]), self.scale.low, self.scale.high).tolist()
        return ScoreInterval(low, high)


def fit_intervals(groups: Sequence[GroupScores], scale: Scale, coverage: float = 0.9) -> ConformalIntervals | None:
    """Fit intervals to held-out texts of one aspect, with scores on the raters' scale.

    Returns:
        None where fewer than two sources have a text with rating and score.
    """
    by_source = pairs_by_source(groups)
    if len(by_source) < 2:
        return None
    ratings, scores = np.concatenate(by_source).T
    residuals = np.abs(ratings - scores)
    source = np.repeat(np.arange(len(by_source)), [len(pairs) for pairs in by_source])
    others = (source[:, None] != source[None, :]).astype(float)
    spread = _local_spread(scores, scores, residuals, others, scale)
    return ConformalIntervals(scale, _conformal_quantile(residuals / spread, source, coverage), scores, residuals)


@dataclass(frozen=True, slots=True)
class AbstentionResult:
    """Coverage and abstention on held-out texts, each with an interval fitted on the other sources."""

    texts: int
    covered: float
    """Share of ratings inside the intervals."""
    width: float
    """Mean width."""
    abstained_share: float
    """Share of texts on which the judge abstains: those with wider intervals than allowed."""
    scores: Mapping[str, GroupScores]
    """Group -> its scores, None where the judge abstains."""


def evaluate_abstention(
    groups: Sequence[GroupScores], scale: Scale, coverage: float, max_width: float = math.inf
) -> AbstentionResult | None:
    """Measure intervals, and abstention where they are wider than `max_width`, leaving out one source at a time.

    Returns:
        None with fewer than three sources that have ratings and scores.
    """
    covered: list[bool] = []
    widths: list[float] = []
    by_group: dict[str, GroupScores] = {}
    for group in groups:
        fitted = fit_intervals([g for g in groups if g.source_id != group.source_id], scale, coverage)
        if fitted is None:
            return None
        intervals = [None if s is None else fitted.at(s) for s in group.scores]
        for rating, span in zip(group.ratings, intervals, strict=True):
            if rating is not None and span is not None:
                covered.append(span.low - ROUNDING_ERROR <= rating <= span.high + ROUNDING_ERROR)
                widths.append(span.width)
        allowed = [span is not None and span.width <= max_width for span in intervals]
        scores = tuple(s if keep else None for s, keep in zip(group.scores, allowed, strict=True))
        by_group[group.group] = replace(group, scores=scores)
    if not covered:
        return None
    abstained_share = float(np.mean(np.array(widths) > max_width))
    return AbstentionResult(len(covered), float(np.mean(covered)), float(np.mean(widths)), abstained_share, by_group)


def _local_spread(at: Floats, scores: Floats, residuals: Floats, allowed: Floats, scale: Scale) -> Floats:
    """Kernel mean of the absolute residuals of texts with similar scores, shape (scores,).

    `at` are scores; `allowed` tells which texts each of them may use, 0 or 1, shape (scores, texts).
    """
    distance = (at[:, None] - scores[None, :]) / (_KERNEL_DEVIATION * (scale.high - scale.low))
    weights = allowed * np.exp(-0.5 * distance**2)
    mean = (allowed @ residuals) / np.maximum(allowed.sum(axis=1), 1)
    local = (weights @ residuals + _PRIOR_TEXTS * mean) / (weights.sum(axis=1) + _PRIOR_TEXTS)
    return np.asarray(np.maximum(np.maximum(local, _MIN_SPREAD * mean), ROUNDING_ERROR))


def _conformal_quantile(residuals: Floats, source: NDArray[np.intp], coverage: float) -> float:
    """The conformal quantile of residuals that are correlated within sources."""
    ordered = np.sort(residuals)
    count = len(ordered)
    uncorrected = ordered[min(count - 1, math.ceil(coverage * (count + 1)) - 1)]
    effective = _effective_sample_size((residuals > uncorrected).astype(float), source)
    share = coverage * (1 + 1 / effective)
    if share > 1:
        return math.inf
    return float(ordered[min(count - 1, math.ceil(share * count - ROUNDING_ERROR) - 1)])


def _effective_sample_size(misses: Floats, source: NDArray[np.intp]) -> float:
    """The effective number of texts for the share of misses, given their correlation within sources."""
    counts = np.bincount(source)
    texts, groups = len(misses), len(counts)
    if misses.var() == 0 or texts == groups:
        return float(texts)
    means = np.bincount(source, weights=misses) / counts
    between = float((counts * (means - misses.mean()) ** 2).sum()) / (groups - 1)
    within = float(((misses - means[source]) ** 2).sum()) / max(1, texts - groups)
    size = (texts - float((counts**2).sum()) / texts) / (groups - 1)
    total = between + (size - 1) * within
    correlation = (between - within) / total if total > 0 else 0.0
    return texts / (1 + (texts / groups - 1) * min(1.0, max(0.0, correlation)))
