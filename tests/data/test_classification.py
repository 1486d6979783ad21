"""Decisions against labels: values derived by hand, and intervals that come from whole groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from debate_judge.data.agreement.decisions import DecisionResult, DecisionRule, evaluate_decisions
from debate_judge.data.agreement.figures import GroupScores
from tests.data.scored_groups import group

Row = tuple[str, float, float]
"""Source, rating (1 is positive) and score (positive from .5 on)."""


def decided(rows: list[Row]) -> DecisionResult:
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(row[0], []).append(row)
    groups = [
        group(name, [r for _, r, _ in rows_of_source], [s for *_, s in rows_of_source])
        for name, rows_of_source in by_source.items()
    ]
    rule = DecisionRule("binary", 0.5, 0.5)
    return evaluate_decisions({"x": groups}, {"x": rule})["x"]


def values(result: DecisionResult) -> dict[str, float | None]:
    return {name: measure.value for name, measure in result.measures.items()}


def test_what_is_undefined_is_none_and_not_zero() -> None:
    never = values(decided([("a", 1, 0.1), ("b", 0, 0.2)]))
    # Nothing was called positive. Recall and F1 have a denominator all the same.
    assert (never["precision"], never["recall"], never["f1"], never["auroc"]) == (None, 0.0, 0.0, 0.0)
    same = decided([("a", 0, 0.1), ("b", 0, 0.2)])
    assert (values(same)["kappa"], values(same)["recall"], values(same)["accuracy"]) == (None, None, 1.0)
    assert same.measures["accuracy"].low < 1, "two right decisions do not show that all are"


def test_the_auroc_of_pairs_is_that_of_the_differences_in_either_order() -> None:
    rng = np.random.default_rng(3)
    better = rng.integers(3, size=40)
    scores = rng.normal(size=(40, 2)) + np.stack([better == 0, better == 1], axis=1)
    ratings = [[(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)][i] for i in better]
    pairs = [
        GroupScores(f"g{i}", ("a", "b"), r, tuple(s))
        for i, (r, s) in enumerate(zip(ratings, scores.tolist(), strict=True))
    ]
    swapped = [replace(g, ratings=g.ratings[::-1], scores=g.scores[::-1]) for g in pairs]
    auroc, swapped_auroc = (
        evaluate_decisions({"x": groups}, {"x": DecisionRule("pairs")})["x"].measures["auroc"]
        for groups in (pairs, swapped)
    )
    untied = better < 2
    gain = np.where(better == 0, 1, -1)[untied] * (scores[:, 0] - scores[:, 1])[untied]
    expected = stats.mannwhitneyu(gain, -gain).statistic / len(gain) ** 2
    assert auroc.value == pytest.approx(expected)
    assert (auroc.low, auroc.high) == pytest.approx((swapped_auroc.low, swapped_auroc.high))
    assert auroc.low < expected < auroc.high < 1
    tied = [g for g in pairs if g.ratings == (0.5, 0.5)]
    none = evaluate_decisions({"x": tied}, {"x": DecisionRule("pairs")})["x"].measures["auroc"]
    assert (none.value, none.low) == (None, None)


def test_all_values_are_those_of_scikit_learn() -> None:
    from sklearn import metrics

    rng = np.random.default_rng(11)
    label = rng.integers(2, size=200)
    score = np.round(label * 0.3 + rng.random(200) - 0.2, 1)
    yes = (score >= 0.5).astype(int)
    rows = [(str(i % 50), float(a), float(s)) for i, (a, s) in enumerate(zip(label, score, strict=True))]
    result = decided(rows)
    expected = {
        "accuracy": metrics.accuracy_score(label, yes),
        "kappa": metrics.cohen_kappa_score(label, yes),
        "balanced_accuracy": metrics.balanced_accuracy_score(label, yes),
        "precision": metrics.precision_score(label, yes),
        "recall": metrics.recall_score(label, yes),
        "f1": metrics.f1_score(label, yes),
        "auroc": metrics.roc_auc_score(label, score),
    }
    assert values(result) == pytest.approx(expected)
    lower = [
        metric(label, yes, pos_label=0) for metric in (metrics.precision_score, metrics.recall_score, metrics.f1_score)
    ]
    assert [measure.value for measure in result.lower_label.values()] == pytest.approx(lower)


def test_groups_of_several_decisions_are_left_out_in_turn_and_laid_off_on_the_logit() -> None:
    rng = np.random.default_rng(8)
    right = rng.binomial(5, rng.uniform(0.4, 1.0, size=12))
    rows = [(f"g{g}", 1, 0.9 if i < k else 0.1) for g, k in enumerate(right) for i in range(5)]
    accuracy = decided(rows).measures["accuracy"]
    # Of a mean the jackknife gives the usual standard error, and the logit changes by 1 / (p (1 - p)).
    mean = right.mean() / 5
    half = stats.t.ppf(0.975, 11) * stats.sem(right / 5) / (mean * (1 - mean))
    middle = special.logit(mean)
    assert (accuracy.low, accuracy.high) == pytest.approx(special.expit([middle - half, middle + half]))
    one = decided([row for row in rows if row[0] == "g0"]).measures["accuracy"]
    assert (one.value, one.low) == (pytest.approx(right[0] / 5), None)


def test_where_all_is_right_there_is_the_exact_bound_over_the_sources_that_a_measure_depends_on() -> None:
    rows = [(f"g{i // 4}", *outcome) for i, outcome in enumerate([(1, 0.9), (0, 0.1)] * 20)]
    measures = decided(rows).measures
    low = stats.binomtest(10, 10).proportion_ci(0.95, "exact").low
    assert (measures["accuracy"].low, measures["accuracy"].high) == pytest.approx((low, 1.0))
    assert measures["kappa"].low == pytest.approx(2 * low - 1)
    rows = [(str(i), *outcome) for i, outcome in enumerate([(1, 0.9)] * 5 + [(0, 0.1)] * 14 + [(0, 0.9)])]
    recall = decided(rows).measures["recall"]
    assert (recall.value, recall.high) == (1.0, 1.0)
    assert recall.low == pytest.approx(stats.binomtest(5, 5).proportion_ci(0.95, "exact").low)
