"""Two independent samples of sources: the difference of a figure, by Welch's t.

Welch, The generalization of Student's problem when several different population variances are involved, 1947. The
samples may differ in size and spread. What enters is a figure with its standard error over sources, so it may be a mean
of a value of each source, or any figure with influences of the sources on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.intervals import standard_error


@dataclass(frozen=True, slots=True)
class SampleFigure:
    """A figure of one sample."""

    value: float
    error: float
    """Standard error over sources."""
    sources: int

    @classmethod
    def of_values(cls, values: Floats) -> SampleFigure | None:
        """The mean of one value a source, shape (sources,); None with fewer than two."""
        return (
            cls.of_influences(float(values.mean()), (values - values.mean()) / len(values)) if len(values) > 1 else None
        )

    @classmethod
    def of_influences(cls, value: float, influences: Floats) -> SampleFigure | None:
        """A figure with the influence of each source on it, shape (sources,); None with fewer than two."""
        return cls(value, standard_error(influences), len(influences)) if len(influences) > 1 else None

    @classmethod
    def of_ratio(cls, by_source: list[Floats]) -> SampleFigure | None:
        """The mean over all values of all sources, each source with as many as it has."""
        count = sum(map(len, by_source))
        if len(by_source) < 2 or not count:
            return None
        value = math.fsum(v for values in by_source for v in values) / count
        return cls.of_influences(value, np.array([(values - value).sum() / count for values in by_source]))


@dataclass(frozen=True, slots=True)
class TwoSamples:
    """The figure of the first sample minus that of the second."""

    value: float
    low: float
    """Ends of the 95 % interval."""
    high: float
    p_value: float
    """Two-sided, for no difference."""


def compare_samples(first: SampleFigure | None, second: SampleFigure | None) -> TwoSamples | None:
    """The difference of two independent samples; None where one of them is missing."""
    from scipy.special import stdtr, stdtrit

    if first is None or second is None:
        return None
    value, variance = first.value - second.value, first.error**2 + second.error**2
    if variance <= 0:
        return TwoSamples(value, value, value, 1.0 if value == 0 else 0.0)
    freedom = variance**2 / (first.error**4 / (first.sources - 1) + second.error**4 / (second.sources - 1))
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    p_value = float(2 * stdtr(freedom, -abs(value) / math.sqrt(variance)))
    return TwoSamples(value, value - half, value + half, p_value)
