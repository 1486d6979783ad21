"""Whether a judge's agreement with raters holds on new ratings, and what changed: texts, raters or the judge.

Old and new sources are two independent samples, so the difference of agreement is tested by Welch's t over sources
(Welch, The generalization of Student's problem when several different population variances are involved, 1947), and so
are the differences of mean scores and mean ratings. A judge with a fixed LM is a fixed function of the text: if its
scores changed and the ratings with them, the texts changed. If ratings changed relative to the scores, the raters
changed, or their criteria did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from debate_judge.data.agreement.bootstrap import AgreementEstimate, GroupIndex, rated_pairs
from debate_judge.data.agreement.correlations import Floats, Statistic
from debate_judge.data.agreement.intervals import Measure, t_quantile
from debate_judge.data.agreement.levels import estimate_level
from debate_judge.data.agreement.raters import mean_and_error, mean_over_groups, pairs_by_source
from debate_judge.data.agreement.results import GroupScores, ScoresByAspect
from debate_judge.data.schema import ROUNDING_ERROR, Level

MarginVerdict = Literal["holds", "worse", "unclear"]

_ALPHA = 0.05
"""Significance level of all statements on drift together (Bonferroni)."""


@dataclass(frozen=True, slots=True)
class SampleEstimate:
    """A statistic of one sample, with its standard error."""

    value: float
    standard_error: float
    """Over sources."""
    sources: int

    @classmethod
    def of_mean(cls, by_source: Sequence[Floats]) -> SampleEstimate | None:
        """The mean over all values, with an array of values per source; None with fewer than two sources."""
        return cls(*mean_and_error(by_source), len(by_source)) if len(by_source) > 1 else None


@dataclass(frozen=True, slots=True)
class TwoSampleDifference:
    """The statistic of the first sample minus that of the second."""

    value: float
    low: float
    """Ends of the 95 % interval."""
    high: float
    p_value: float
    """Two-sided."""


def compare_samples(first: SampleEstimate | None, second: SampleEstimate | None) -> TwoSampleDifference | None:
    """Welch's t interval and test of two independent samples; None where one of them is missing."""
    from scipy.special import stdtr, stdtrit

    if first is None or second is None:
        return None
    value, variance = first.value - second.value, first.standard_error**2 + second.standard_error**2
    if variance <= 0:
        return TwoSampleDifference(value, value, value, 1.0 if value == 0 else 0.0)
    degrees_of_freedom = variance**2 / (
        first.standard_error**4 / (first.sources - 1) + second.standard_error**4 / (second.sources - 1)
    )
    half_width = float(stdtrit(degrees_of_freedom, 0.975)) * math.sqrt(variance)
    p_value = float(2 * stdtr(degrees_of_freedom, -abs(value) / math.sqrt(variance)))
    return TwoSampleDifference(value, value - half_width, value + half_width, p_value)


@dataclass(frozen=True, slots=True)
class Drift:
    """New minus old in one aspect; means over texts, intervals over sources; None with too few sources."""

    scores: TwoSampleDifference | None
    """Of the judge's mean score, on the raters' scale where scores are calibrated to it."""
    ratings: TwoSampleDifference | None
    apart: TwoSampleDifference | None
    """Of rating minus score; None where scores are not on the raters' scale."""
    score_spread: float | None
    """Standard deviation of new scores divided by that of old ones."""
    rating_spread: float | None

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """How the judge's scores of old texts changed when it scored them again."""

    texts: int
    differ: float
    """Share of the texts with another score."""
    mean: Measure | None
    """Of new minus old score."""


def agreement_estimate(
    scores: ScoresByAspect, statistic: Statistic, level: Level, *, resamples: int = 2000, seed: int = 0
) -> SampleEstimate | None:
    """Agreement averaged over aspects, with its standard error over sources; None where it is undefined in an aspect,
    or computed from fewer than two sources. `resamples` are for the standard error at system level."""
    index = GroupIndex.build(scores, seed)
    mean = AgreementEstimate.mean(
        [
            estimate_level(level, rated_pairs(groups, index), [statistic], resamples=resamples, seed=seed).estimate
            for groups in scores.values()
        ]
    )
    value, error = float(mean.values[0]), float(mean.standard_errors[0])
    return None if math.isnan(value) or math.isnan(error) else SampleEstimate(value, error, mean.independent_sources)


def estimate_from_interval(
    value: float | None, low: float | None, high: float | None, groups: int
) -> SampleEstimate | None:
    """A correlation with the standard error recovered from its interval on Fisher's z (`intervals.py`)."""
    if value is None or low is None or high is None or groups < 2 or not -1 < low <= high < 1:
        return None
    half_width = (math.atanh(high) - math.atanh(low)) / 2
    return SampleEstimate(value, half_width / t_quantile(groups) * (1 - value**2), groups)


def margin_verdict(difference: TwoSampleDifference | None, margin: float) -> MarginVerdict:
    """Whether the interval shows that agreement fell by less than `margin`, by more, or neither."""
    if difference is None:
        return "unclear"
    if difference.high < -margin:
        return "worse"
    return "holds" if difference.low > -margin else "unclear"


def measure_drift(old: Sequence[GroupScores], new: Sequence[GroupScores], on_scale: bool) -> Drift:
    """Compare scores and ratings of two sets of sources in one aspect.

    `on_scale` is whether scores are on the raters' scale, so that rating minus score is meaningful.
    """
    samples = [pairs_by_source(groups) for groups in (new, old)]

    def difference(value_of: Callable[[Floats], Floats]) -> TwoSampleDifference | None:
        return compare_samples(*(SampleEstimate.of_mean([value_of(pairs) for pairs in sample]) for sample in samples))

    def ratio_of_spreads(column: int) -> float | None:
        new_spread, old_spread = (
            float(np.concatenate(sample)[:, column].std()) if sample else 0.0 for sample in samples
        )
        return new_spread / old_spread if old_spread > 0 else None

    return Drift(
        scores=difference(lambda pairs: pairs[:, 1]),
        ratings=difference(lambda pairs: pairs[:, 0]),
        apart=difference(lambda pairs: pairs[:, 0] - pairs[:, 1]) if on_scale else None,
        score_spread=ratio_of_spreads(1),
        rating_spread=ratio_of_spreads(0),
    )


def score_change(by_group: Sequence[Floats]) -> ScoreChange:
    """Summarize new minus old scores of the same texts, one array per group."""
    changes = np.concatenate(by_group) if by_group else np.zeros(0)
    differ = float(np.mean(np.abs(changes) > ROUNDING_ERROR)) if len(changes) else 0.0
    return ScoreChange(len(changes), differ, mean_over_groups(by_group) if by_group else None)


def describe_changes(drifts: Mapping[str, Drift], changed: Mapping[str, ScoreChange]) -> list[str]:
    """Sentences on what has changed significantly, from drift and score changes by aspect."""
    limit = _ALPHA / (2 * max(1, len(drifts)))
    sentences = []
    for name, change in changed.items():
        if change.differ and change.mean is not None and change.mean.value is not None:
            sentences.append(
                f"the judge changed: it scores {100 * change.differ:.0f} % of {change.texts} old texts differently in "
                f"{name}, by {change.mean.value:+.2f} in the mean"
            )
    for name, drift in drifts.items():
        if drift.scores is not None and drift.scores.p_value < limit:
            sentences.append(f"the texts changed: the judge scores them {drift.scores.value:+.2f} in {name}")
        if drift.apart is not None and drift.apart.p_value < limit:
            sentences.append(f"the raters changed: for equal scores they give {drift.apart.value:+.2f} in {name}")
    return sentences
