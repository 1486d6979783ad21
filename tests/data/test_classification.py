"""Decisions against labels: values derived by hand, and intervals that come from whole groups."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from debate_judge.data.agreement.classification import (
    Classification,
    Decision,
    binary_decisions,
    classify,
    pair_auroc,
    pair_decisions,
)
from debate_judge.data.agreement.results import GroupScores

# Labels and decisions: TP 3, FN 1, FP 2, TN 4.
ROWS = [("positive", "positive")] * 3 + [("positive", "negative")] + [("negative", "positive")] * 2
ROWS += [("negative", "negative")] * 4
TEN = [Decision(str(i), label, decided) for i, (label, decided) in enumerate(ROWS)]


def values(found: Classification) -> dict[str, float | None]:
    return {name: measure.value for name, measure in found.measures.items()}


def scored(*rows: tuple[str, float]) -> list[Decision]:
    return [Decision(str(i), label, "positive", score) for i, (label, score) in enumerate(rows)]


def test_what_is_undefined_is_none_and_not_zero() -> None:
    never = [Decision("a", "positive", "negative", 0.1), Decision("b", "negative", "negative", 0.2)]
    found = values(classify(never, "positive", resamples=0))
    # Nothing was called positive. Recall and F1 have a denominator all the same.
    assert (found["precision"], found["recall"], found["f1"], found["auroc"]) == (None, 0.0, 0.0, 0.0)
    same = classify([Decision("a", "negative", "negative"), Decision("b", "negative", "negative")], "positive")
    assert same.measures["kappa"].value is None
    assert same.measures["recall"].value is None
    assert same.measures["accuracy"].value == 1.0
    assert str(same.measures["kappa"]) == "undefined"


def test_intervals_come_from_whole_groups() -> None:
    # In each group all decisions are right or all are wrong, 20 of 40 groups each. Single decisions would have a
    # standard error of sqrt(.25 / 400) = .025; groups have sqrt(.25 / 40) = .079, so the interval is about +-.155.
    rows = [Decision(f"g{i % 40}", "win", "win" if i % 2 else "loss") for i in range(400)]
    measure = classify(rows, resamples=4000, seed=1).measures["accuracy"]
    assert measure.value == 0.5
    assert measure.low == pytest.approx(0.345, abs=0.03)
    assert measure.high == pytest.approx(0.655, abs=0.03)


@pytest.mark.integration
def test_many_groups_are_drawn_in_bundles_without_changing_the_width() -> None:
    # 6000 groups of one decision, half of them right, all with scores of their own: more than are drawn one by one.
    # The standard error of the accuracy is sqrt(.25 / 6000) = .00645, so the interval is about 4 x .98 of it wide.
    rng = np.random.default_rng(5)
    label = rng.permutation(np.repeat(["positive", "negative"], 3000))
    decided = rng.permutation(label)
    rows = [
        Decision(str(i), str(a), str(b), s)
        for i, (a, b, s) in enumerate(zip(label, decided, rng.random(6000).tolist(), strict=True))
    ]
    found = classify(rows, "positive", resamples=2000)
    bare = classify(rows, "positive", resamples=0)
    assert values(found) == pytest.approx(values(bare))
    accuracy, area = found.measures["accuracy"], found.measures["auroc"]
    assert accuracy.high - accuracy.low == pytest.approx(3.92 * 0.00645, rel=0.1)
    # Of scores that say nothing: sqrt((n + m + 1) / (12 n m)) = .00745 (Mann-Whitney).
    assert area.high - area.low == pytest.approx(3.92 * 0.00745, rel=0.1)
    assert found.groups == 6000


def test_one_group_has_no_interval_and_one_seed_one_interval() -> None:
    alone = classify([Decision("g", label, decided) for label, decided in ROWS], "positive")
    assert (alone.measures["accuracy"].low, alone.measures["accuracy"].high) == (None, None)
    again = [classify(TEN, "positive", seed=seed).to_json() for seed in (3, 3, 4)]
    assert again[0] == again[1] != again[2]
    assert json.loads(json.dumps(again[0]))["accuracy"]["value"] == pytest.approx(0.7)


def test_candidates_are_decided_by_thresholds() -> None:
    group = GroupScores("g", ("a", "b", "c", "d"), (1.0, 0.0, None, 0.5), (0.5, 0.4, 0.9, None))
    assert binary_decisions([group], 0.5) == [
        Decision("g", "positive", "positive", 0.5),
        Decision("g", "negative", "negative", 0.4),
        Decision("g", "positive", None, None),
    ]
    assert [d.decided for d in binary_decisions([group], 0.5, cut=0.3)] == ["positive", "positive", None]
    assert binary_decisions([group], 0.5, below=True) == [
        Decision("g", "negative", "negative", -0.5),
        Decision("g", "positive", "positive", -0.4),
        Decision("g", "negative", None, None),
    ]


def test_auroc_is_the_same_for_either_label() -> None:
    group = GroupScores("g", ("a", "b", "c"), (1.0, 0.0, 0.0), (0.6, 0.4, 0.8))
    for below in (False, True):
        assert classify(binary_decisions([group], 0.5, below=below), "positive").measures["auroc"].value == 0.5


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")
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
    found, other = (pair_auroc(pair_decisions(groups), intervals=True) for groups in (pairs, swapped))
    untied = better < 2
    gain = np.where(better == 0, 1, -1)[untied] * (scores[:, 0] - scores[:, 1])[untied]
    expected = stats.mannwhitneyu(gain, -gain).statistic / len(gain) ** 2
    assert found.value == pytest.approx(expected)
    assert (found.low, found.high) == pytest.approx((other.low, other.high))
    assert found.low is not None
    assert found.low < expected < 1
    assert pair_auroc(pair_decisions(pairs[:0]), intervals=True).value is None


def test_all_values_are_those_of_scikit_learn() -> None:
    from sklearn import metrics

    rng = np.random.default_rng(11)
    label = rng.integers(2, size=200)
    score = np.round(label * 0.3 + rng.random(200), 1)
    decided = (score >= 0.7).astype(int)
    names = np.array(["negative", "positive"])
    rows = [
        Decision(str(i % 50), str(names[a]), str(names[b]), float(s))
        for i, (a, b, s) in enumerate(zip(label, decided, score, strict=True))
    ]
    assert values(classify(rows, "positive", resamples=0)) == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(label, decided),
            "kappa": metrics.cohen_kappa_score(label, decided),
            "balanced_accuracy": metrics.balanced_accuracy_score(label, decided),
            "precision": metrics.precision_score(label, decided),
            "recall": metrics.recall_score(label, decided),
            "f1": metrics.f1_score(label, decided),
            "auroc": metrics.roc_auc_score(label, score),
        }
    )


def test_decisions_of_one_a_group_have_the_interval_of_jeffreys_prior() -> None:
    found = classify(TEN, "positive", resamples=40_000).measures
    # 7 of 10 right, and half a decision in each of four cells, two of them right.
    assert (found["accuracy"].low, found["accuracy"].high) == pytest.approx(stats.beta(8, 4).interval(0.95), abs=0.01)
    # Of 4 positive ones 3 were found.
    assert (found["recall"].low, found["recall"].high) == pytest.approx(stats.beta(3.5, 1.5).interval(0.95), abs=0.015)
    assert {found[name].method for name in ("accuracy", "kappa", "recall", "f1")} == {"dirichlet"}


def test_a_recall_without_a_miss_has_an_interval_with_a_width() -> None:
    rows = [Decision(str(i), label, label) for i, label in enumerate(["positive"] * 5 + ["negative"] * 15)]
    found = classify(rows, "positive", resamples=20_000).measures
    assert (found["recall"].value, found["recall"].high) == (1.0, 1.0)
    assert found["recall"].low == pytest.approx(stats.beta(5.5, 0.5).ppf(0.025), abs=0.015)
    assert found["kappa"].low < 0.9


def test_groups_of_several_decisions_are_left_out_in_turn_and_laid_off_on_the_logit() -> None:
    rng = np.random.default_rng(8)
    right = rng.binomial(5, rng.uniform(0.4, 1.0, size=12))
    rows = [Decision(f"g{g}", "win", "win" if i < k else "loss") for g, k in enumerate(right) for i in range(5)]
    found = classify(rows).measures["accuracy"]
    # Of a mean the jackknife gives the usual standard error, and the logit changes by 1 / (p (1 - p)).
    mean = right.mean() / 5
    half = stats.t.ppf(0.975, 11) * stats.sem(right / 5) / (mean * (1 - mean))
    middle = special.logit(mean)
    assert (found.low, found.high) == pytest.approx(special.expit([middle - half, middle + half]))
    assert found.method == "logit"


def test_groups_that_are_all_right_have_the_exact_bound() -> None:
    rows = [Decision(f"g{i // 4}", label, label) for i, label in enumerate(["win", "loss"] * 20)]
    found = classify(rows, resamples=500).measures
    low = stats.binomtest(10, 10).proportion_ci(0.95, "exact").low
    assert (found["accuracy"].low, found["accuracy"].high) == pytest.approx((low, 1.0))
    assert (found["kappa"].low, found["kappa"].method) == (pytest.approx(2 * low - 1), "exact")
