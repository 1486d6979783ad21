"""Decisions: which ones ratings define, values derived by hand, and intervals that come from whole groups."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from debate_judge.data.agreement.decisions import DecisionResult, DecisionRule, evaluate_decisions, find_decision_rules
from debate_judge.data.agreement.figures import GroupScores, plain
from debate_judge.data.schema import Aspect, Candidate, RatedGroup, Scale
from tests.data.scored_groups import group

BINARY, PAIRS = DecisionRule("binary", 0.5, 0.5), DecisionRule("pairs")
Values = tuple[float | None, ...]
Row = tuple[str, float, float]
"""Source, rating (1 is positive) and score (positive from .5 on)."""


def scores(*groups: tuple[Values, Values]) -> list[GroupScores]:
    """One group per argument: (ratings, scores)."""
    return [group(f"g{i}", *both) for i, both in enumerate(groups)]


def by_source(rows: list[Row]) -> list[GroupScores]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return [group(name, [r for _, r, _ in own], [s for *_, s in own]) for name, own in found.items()]


def decided(groups: list[GroupScores], rule: DecisionRule = BINARY, **options: bool) -> DecisionResult:
    return evaluate_decisions({"quality": groups}, {"quality": rule}, **options)["quality"]


def values(result: DecisionResult) -> dict[str, float | None]:
    return {name: measure.value for name, measure in result.measures.items()}


@pytest.mark.parametrize(
    ("scale", "ratings", "expected"),
    [
        # One yes or no per candidate; also in groups of two, which are not taken for contests then.
        (Scale(0, 1), [((1,), (0,)), ((0,), (1,))], BINARY),
        (Scale(1, 5), [((1,),), ((5,),)], DecisionRule("binary", 3.0, 3.0)),
        # Shares of sentences, on the same scale.
        (Scale(0, 1), [((1,),), ((1 / 3,),), ((0,),)], None),
        # Preferences: a tie is a third value.
        (Scale(0, 1, 0.5), [((1,), (0,)), ((0.5,), (0.5,))], PAIRS),
        (Scale(1, 5), [((4,), (2,)), ((3,), (3,))], PAIRS),
        (Scale(1, 5), [((4,), (2,)), ((3,),)], None),
        (Scale(1, 5), [((4,), (4,)), ((3,), (3,))], None),
        # Two values that are not the ends of the scale are two grades.
        (Scale(1, 5), [((4,),), ((5,),)], None),
        (Scale(0, 1), [((1,),), ((1,),)], None),
    ],
)
def test_the_ratings_say_what_is_decided(
    scale: Scale, ratings: list[tuple[tuple[float, ...], ...]], expected: DecisionRule | None
) -> None:
    def rated(name: str, values: tuple[float, ...]) -> Candidate:
        return Candidate(name, f"text {name}", {"quality": values} if values else {})

    groups = [
        RatedGroup(f"g{i}", f"Source {i}.", tuple(rated(f"{i}{j}", v) for j, v in enumerate(group)))
        for i, group in enumerate(ratings)
    ]
    rules = find_decision_rules(groups, [Aspect("quality", "Is it good?", scale)])
    assert rules == ({} if expected is None else {"quality": expected})


def test_binary_decisions_by_hand() -> None:
    # Positive are .9 .4 .8 .5, negative .2 .6 and one without a score: TP = 3 (.5 counts), FN = 1, FP = 1, TN = 1.
    result = decided(scores(((1, 0), (0.9, 0.2)), ((1, 0), (0.4, 0.6)), ((1, 0), (0.8, None)), ((1, None), (0.5, 0.7))))
    assert result.labels == {"positive": 4, "negative": 3}
    assert result.decisions == {"positive": 4, "negative": 2}
    assert (result.undecided, result.sources, result.majority_accuracy) == (1, 4, 4 / 7)
    # Scores off the scale are ranked and not cut: -1.5 beats both, -2 beats -4 alone.
    metric = decided(scores(((1,), (-1.5,)), ((0,), (-4,)), ((1,), (-2,)), ((0,), (-1.8,))), on_scale=False)
    assert (values(metric), metric.decisions, metric.lower_label) == ({"auroc": 3 / 4}, {}, {})
    # Raters who are evenly split give no label.
    split = decided(scores(((1, 0.5), (0.9, 0.9)), ((0, 0.5), (0.1, 0.9))))
    assert (split.ties, split.labels, values(split)["accuracy"]) == (2, {"positive": 1, "negative": 1}, 1.0)
    silent = decided(scores(((1, 0), (None, None))))
    assert (set(values(silent).values()), silent.undecided, silent.majority_accuracy) == ({None}, 2, 0.5)
    json.dumps(plain(silent), allow_nan=False)
    assert evaluate_decisions({"quality": scores(((None, None), (0.9, 0.1)))}, {"quality": BINARY}) == {}


def test_pairs_by_hand() -> None:
    # Win and win, loss and tie, tie and tie, win and loss, win and nothing.
    ratings = ((1, 0), (0, 1), (0.5, 0.5), (1, 0), (1, 0))
    pairs = scores(*zip(ratings, ((3, 2), (2, 2), (4, 4), (1, 2), (None, 2)), strict=True))
    result = decided(pairs, PAIRS)
    # Kappa: (8/16 - 5/16) / (11/16). AUROC: better minus worse is 1, 0, -1; against -1, 0, 1 that is 4.5 of 9.
    expected = {"accuracy": 2 / 4, "kappa": 3 / 11, "balanced_accuracy": (1 / 2 + 1 + 0) / 3, "auroc": 1 / 2}
    assert values(result) == pytest.approx(expected)
    assert (result.labels, result.decisions) == ({"win": 3, "tie": 1, "loss": 1}, {"win": 1, "tie": 2, "loss": 1})
    assert (result.undecided, result.majority_accuracy, result.lower_label) == (1, 3 / 5, {})
    # Which of two scores is higher can be told on any scale.
    assert decided(pairs, PAIRS, on_scale=False) == result


def test_what_is_undefined_is_none_and_not_zero() -> None:
    never = values(decided(by_source([("a", 1, 0.1), ("b", 0, 0.2)])))
    # Nothing was called positive. Recall and F1 have a denominator all the same.
    assert (never["precision"], never["recall"], never["f1"], never["auroc"]) == (None, 0.0, 0.0, 0.0)
    same = decided(by_source([("a", 0, 0.1), ("b", 0, 0.2)]))
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
    auroc, swapped_auroc = (decided(groups, PAIRS).measures["auroc"] for groups in (pairs, swapped))
    untied = better < 2
    gain = np.where(better == 0, 1, -1)[untied] * (scores[:, 0] - scores[:, 1])[untied]
    expected = stats.mannwhitneyu(gain, -gain).statistic / len(gain) ** 2
    assert auroc.value == pytest.approx(expected)
    assert (auroc.low, auroc.high) == pytest.approx((swapped_auroc.low, swapped_auroc.high))
    assert auroc.low < expected < auroc.high < 1
    tied = [g for g in pairs if g.ratings == (0.5, 0.5)]
    none = decided(tied, PAIRS).measures["auroc"]
    assert (none.value, none.low) == (None, None)


def test_all_values_are_those_of_scikit_learn() -> None:
    from sklearn import metrics

    rng = np.random.default_rng(11)
    label = rng.integers(2, size=200)
    score = np.round(label * 0.3 + rng.random(200) - 0.2, 1)
    yes = (score >= 0.5).astype(int)
    rows = [(str(i % 50), float(a), float(s)) for i, (a, s) in enumerate(zip(label, score, strict=True))]
    result = decided(by_source(rows))
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
    accuracy = decided(by_source(rows)).measures["accuracy"]
    # Of a mean the jackknife gives the usual standard error, and the logit changes by 1 / (p (1 - p)).
    mean = right.mean() / 5
    half = stats.t.ppf(0.975, 11) * stats.sem(right / 5) / (mean * (1 - mean))
    middle = special.logit(mean)
    assert (accuracy.low, accuracy.high) == pytest.approx(special.expit([middle - half, middle + half]))
    one = decided(by_source([row for row in rows if row[0] == "g0"])).measures["accuracy"]
    assert (one.value, one.low) == (pytest.approx(right[0] / 5), None)


def test_where_all_is_right_there_is_the_exact_bound_over_the_sources_that_a_measure_depends_on() -> None:
    rows = [(f"g{i // 4}", *outcome) for i, outcome in enumerate([(1, 0.9), (0, 0.1)] * 20)]
    measures = decided(by_source(rows)).measures
    low = stats.binomtest(10, 10).proportion_ci(0.95, "exact").low
    assert (measures["accuracy"].low, measures["accuracy"].high) == pytest.approx((low, 1.0))
    assert measures["kappa"].low == pytest.approx(2 * low - 1)
    rows = [(str(i), *outcome) for i, outcome in enumerate([(1, 0.9)] * 5 + [(0, 0.1)] * 14 + [(0, 0.9)])]
    recall = decided(by_source(rows)).measures["recall"]
    assert (recall.value, recall.high) == (1.0, 1.0)
    assert recall.low == pytest.approx(stats.binomtest(5, 5).proportion_ci(0.95, "exact").low)
