"""Agreement of two samples of sources: standard errors against the tables' own intervals, and verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from debate_judge.data.agreement.intervals import t_quantile
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import agreement_table, compare
from debate_judge.data.inference.drift import (
    TwoSampleDifference,
    agreement_estimate,
    estimate_from_interval,
    margin_verdict,
)
from debate_judge.data.inference.non_inferiority import Margins, ScoreMapping, compare_lms
from debate_judge.data.schema import Scale


def groups(seed: int, noise: float, count: int = 12) -> list[GroupScores]:
    rng, again = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    found = []
    for number in range(count):
        ratings = rng.integers(1, 6, 6) * 1.0
        scores = np.clip(ratings + noise * again.normal(size=6), 1, 5)
        found.append(GroupScores(f"g{number}", tuple("abcdef"), tuple(ratings), tuple(scores)))
    return found


def test_the_standard_error_is_that_of_the_tables_interval() -> None:
    scores = {"x": groups(1, 1.0), "y": groups(5, 2.0)}
    found = agreement_estimate(scores, "spearman", "summary")
    cell = agreement_table(scores).average["summary"]["spearman"]
    assert cell.high is not None
    assert found.value == pytest.approx(cell.value)
    half = (math.atanh(cell.high) - math.atanh(cell.value)) * (1 - cell.value**2)
    assert found.standard_error == pytest.approx(half / t_quantile(12))
    published = estimate_from_interval(cell.value, cell.low, cell.high, 12)
    assert (published.standard_error, published.sources) == (pytest.approx(found.standard_error), found.sources)


@pytest.mark.parametrize("level", ["sample", "system"])
def test_other_levels_have_the_bootstraps_error(level: str) -> None:
    found = agreement_estimate({"x": groups(2, 1.0)}, "pearson", level)  # type: ignore[arg-type]
    assert 0 < found.standard_error < 0.5


def test_verdicts_follow_the_interval() -> None:
    def between(low: float, high: float) -> TwoSampleDifference:
        return TwoSampleDifference((low + high) / 2, low, high, 0.5)

    assert margin_verdict(between(-0.04, 0.1), 0.05) == "holds"
    assert margin_verdict(between(-0.2, -0.06), 0.05) == "worse"
    assert margin_verdict(between(-0.2, 0.1), 0.05) == margin_verdict(None, 0.05) == "unclear"


def test_non_inferiority_is_the_paired_interval_above_the_margin() -> None:
    old, new = {"x": groups(3, 0.4)}, {"x": groups(3, 0.5)}
    apart = compare(new, old)
    mappings = {"x": ScoreMapping(Scale(1, 5), True, None)}
    for margin, shown in ((-apart.low + 0.001, True), (-apart.low - 0.001, False)):
        found = compare_lms(old, new, mappings, Margins(margin, shift=1.0))
        assert found.difference == apart
        assert (found.verdict == "carry") is shown
    assert found.sufficient_sources is not None
