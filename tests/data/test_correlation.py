"""Correlations by hand and equal to scipy's, and where they are undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_judge.data.agreement.correlations import concordance
from debate_judge.data.agreement.tables import STATISTICS, Statistic, correlation
from tests.data.reference_correlation import reference


@pytest.mark.parametrize(
    ("ratings", "scores", "statistic", "expected"),
    [
        ([1, 2, 3, 4], [1, 3, 2, 4], "pearson", 0.8),
        # Squared rank differences 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15).
        ([1, 2, 3, 4], [10, 30, 20, 400], "spearman", 0.8),
        # Five of six pairs agree: (5 - 1) / 6.
        ([1, 2, 3, 4], [10, 30, 20, 400], "kendall", 4 / 6),
        # Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, variances 1.5 and 2.
        ([1, 1, 2], [1, 2, 3], "spearman", 1.5 / math.sqrt(1.5 * 2)),
        # Two of three pairs are untied in the ratings, and both agree: 2 / sqrt(2 * 3).
        ([1, 1, 2], [1, 2, 3], "kendall", 2 / math.sqrt(6)),
        ([1, 2], [5, 4], "kendall", -1.0),
    ],
)
def test_correlation_by_hand(ratings: list[float], scores: list[float], statistic: Statistic, expected: float) -> None:
    assert correlation(ratings, scores, statistic) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(
    ("ratings", "scores"), [([], []), ([1], [2]), ([3, 3, 3], [1, 2, 3]), ([1, 2, 3], [0.1, 0.1, 0.1])]
)
def test_correlation_is_none_where_undefined(ratings: list[float], scores: list[float], statistic: Statistic) -> None:
    assert correlation(ratings, scores, statistic) is None


def test_correlation_refuses_what_is_no_pair_of_finite_sequences() -> None:
    with pytest.raises(ValueError, match="2 ratings and 3 scores"):
        correlation([1, 2], [1, 2, 3], "pearson")
    with pytest.raises(ValueError, match="finite"):
        correlation([1, 2], [1, math.nan], "pearson")


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0.1 * i for i in range(12)])), max_size=40),
    st.sampled_from(STATISTICS),
)
def test_correlation_equals_scipy_with_ties(pairs: list[tuple[int, float]], statistic: Statistic) -> None:
    ratings, scores = [float(r) for r, _ in pairs], [s for _, s in pairs]
    found, expected = correlation(ratings, scores, statistic), reference(ratings, scores, statistic)
    assert (found is None) == (expected is None)
    if expected is not None:
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("values", [7, 10**9])
def test_correlation_of_long_sequences_equals_scipy(values: int, statistic: Statistic) -> None:
    rng = np.random.default_rng(4)
    ratings = rng.integers(values, size=3000).astype(float)
    scores = np.round(ratings / values * 50 + rng.normal(0, 20, size=3000), 0 if values == 7 else 9)
    expected = reference(ratings.tolist(), scores.tolist(), statistic)
    assert correlation(ratings.tolist(), scores.tolist(), statistic) == pytest.approx(expected, abs=1e-9)


def test_concordance_of_points_is_the_weighted_kappa_of_scikit_learn() -> None:
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(1)
    x = rng.integers(1, 6, size=(3, 200)).astype(float)
    y = np.clip(x + rng.integers(-1, 2, size=x.shape), 1, 5)
    x[2, :50] = y[2, :50] = np.nan
    expected = [
        cohen_kappa_score(a[~np.isnan(a)], b[~np.isnan(a)], weights="quadratic") for a, b in zip(x, y, strict=True)
    ]
    assert concordance(x, y) == pytest.approx(expected)
    assert np.isnan(concordance(np.full((2, 3), 0.1), np.full((2, 3), 0.1))).all()
    assert np.isnan(concordance(np.full((1, 2), np.nan), np.full((1, 2), np.nan))).all()
