"""Decisions: which ones a corpus calls for, what they amount to by hand, and how they are shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from debate_judge.data.agreement.classification import NEGATIVE, POSITIVE
from debate_judge.data.agreement.decisions import (
    DecisionResult,
    DecisionRule,
    decision_rules_from_scores,
    evaluate_decisions,
    find_decision_rules,
    with_tuned_cut,
)
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Candidate, RatedGroup, Scale
from debate_judge.runs.reports.decisions import metrics, tables, to_json
from tests.printed_output import printed, unwrapped

BINARY, PAIRS = DecisionRule("binary", 0.5, 0.5), DecisionRule("pairs")
Values = tuple[float | None, ...]


@pytest.mark.parametrize(
    ("scale", "ratings", "expected"),
    [
        # One yes or no per candidate; also in groups of two, which are not taken for contests then.
        (Scale(0, 1), [((1,), (0,)), ((0,), (1,))], BINARY),
        # Three raters of yes or no.
        (Scale(0, 1), [((1, 0, 1),), ((0, 0, 0),)], BINARY),
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
        (Scale(0, 1), [((), ()), ((), ())], None),
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


def scores(*groups: tuple[Values, Values]) -> list[GroupScores]:
    """One group per argument: (ratings, scores)."""
    return [GroupScores(f"g{i}", tuple(map(str, range(len(r)))), r, s) for i, (r, s) in enumerate(groups)]


CHECKED = scores(((1, 0), (0.9, 0.2)), ((1, 0), (0.4, 0.6)), ((1, 0), (0.8, None)), ((1, None), (0.5, 0.7)))
"""Positive are .9 .4 .8 .5, negative .2 .6 and one without a score: TP = 3 (.5 counts), FN = 1, FP = 1, TN = 1."""


def decided(groups: list[GroupScores], rule: DecisionRule = BINARY, **options: bool) -> DecisionResult:
    return evaluate_decisions({"quality": groups}, {"quality": rule}, resamples=100, **options)["quality"]


def values(result: DecisionResult) -> dict[str, float | None]:
    return {name: measure.value for name, measure in result.measures.items()}


def test_binary_decisions_by_hand() -> None:
    result = decided(CHECKED)
    # Kappa: (24/36 - 20/36) / (16/36). AUROC: .9 and .8 beat both negatives, .4 and .5 beat .2 alone.
    expected = {"accuracy": 4 / 6, "kappa": 1 / 4, "balanced_accuracy": (3 / 4 + 1 / 2) / 2, "auroc": 6 / 8}
    assert values(result) == pytest.approx({**expected, "precision": 3 / 4, "recall": 3 / 4, "f1": 3 / 4})
    assert [result.lower.measures[name].value for name in ("precision", "recall", "f1")] == [0.5, 0.5, 0.5]
    assert (result.labels, result.decisions) == ({POSITIVE: 4, NEGATIVE: 3}, {POSITIVE: 4, NEGATIVE: 2})
    assert (result.undecided, result.sources, result.majority_baseline) == (1, 4, 4 / 7)


def test_pairs_by_hand() -> None:
    # Win and win, loss and tie, tie and tie, win and loss, win and nothing.
    ratings = ((1, 0), (0, 1), (0.5, 0.5), (1, 0), (1, 0))
    pairs = scores(*zip(ratings, ((3, 2), (2, 2), (4, 4), (1, 2), (None, 2)), strict=True))
    result = decided(pairs, PAIRS)
    # Kappa: (8/16 - 5/16) / (11/16). AUROC: better minus worse is 1, 0, -1; against -1, 0, 1 that is 4.5 of 9.
    expected = {"accuracy": 2 / 4, "kappa": 3 / 11, "balanced_accuracy": (1 / 2 + 1 + 0) / 3, "auroc": 1 / 2}
    assert values(result) == pytest.approx(expected)
    assert (result.labels, result.decisions) == ({"win": 3, "tie": 1, "loss": 1}, {"win": 1, "tie": 2, "loss": 1})
    assert (result.undecided, result.majority_baseline, result.lower) == (1, 3 / 5, None)
    caption = unwrapped(printed(*tables({"judge": {"quality": result}})))
    # One decision a source: what the confusion matrix gives has its posterior, AUROC the jackknife.
    assert caption.index("Dirichlet") < caption.index("of AUROC") < caption.index("jackknife")
    # Which of two scores is higher can be told on any scale.
    assert decided(pairs, PAIRS, on_scale=False) == result
    assert decided(pairs, replace(PAIRS, margin=1.0)).decisions == {"win": 0, "tie": 4, "loss": 0}
    assert with_tuned_cut(PAIRS, CHECKED, "dev") == PAIRS, "pairs have no cut"


def test_what_has_no_label_or_no_decision() -> None:
    split = decided(scores(((1, 0.5), (0.9, 0.9)), ((0, 0.5), (0.1, 0.9))))
    silent = decided(scores(((1, 0), (None, None))))
    assert (split.labels, split.measures["accuracy"].value) == ({POSITIVE: 1, NEGATIVE: 1}, 1.0)
    assert (silent.measures, silent.undecided, silent.majority_baseline) == ({}, 2, 0.5)
    results = {"split": {"quality": split}, "silent": {"quality": silent}}
    assert to_json(results)["split"]["quality"]["ties"] == 2
    json.dumps(to_json(results), allow_nan=False)
    text = unwrapped(printed(*tables(results)))
    assert "2 more are left out" in text
    assert "–" in text
    assert evaluate_decisions({"quality": scores(((None, None), (0.9, 0.1)))}, {"quality": BINARY}) == {}


def test_scores_off_the_scale_are_ranked_and_not_cut() -> None:
    metric = scores(((1,), (-1.5,)), ((0,), (-4,)), ((1,), (-2,)), ((0,), (-1.8,)))
    result = decided(metric, on_scale=False)
    # -1.5 beats both, -2 beats -4 alone.
    assert (values(result), result.decisions, result.lower) == ({"auroc": 3 / 4}, {}, None)
    tuned = with_tuned_cut(BINARY, metric, "dev")
    # At -3: both positives, one of two negatives. At -1.65: one of two positives, both negatives. -1.65 is nearer.
    assert (tuned.cut, tuned.chosen_on) == (pytest.approx(-1.65), "dev")
    assert decided(metric, tuned, on_scale=False).decisions == {POSITIVE: 1, NEGATIVE: 3}


@pytest.mark.parametrize(
    ("positive", "negative", "cut"),
    [
        ((0.9, 0.4), (0.1, 0.2, 0.3), 0.35),
        # 0.15 and 0.5 both have balanced accuracy 3/4: what is given stays.
        ((0.2, 0.9), (0.1, 0.3), 0.5),
        # Scores at the cut are positive, so it lies above 0.5.
        ((0.9, 0.8), (0.5, 0.6), 0.7),
        ((0.9, 0.1), (), 0.5),
        ((), (0.9, 0.1), 0.5),
    ],
)
def test_the_cut_with_the_best_balanced_accuracy(positive: Values, negative: Values, cut: float) -> None:
    ratings = (1,) * len(positive) + (0,) * len(negative)
    rule = with_tuned_cut(BINARY, scores((ratings, positive + negative)), "dev")
    assert rule.cut == pytest.approx(cut)
    assert (rule == BINARY) is (cut == 0.5)


def test_recorded_scores_have_no_schema() -> None:
    graded = {"quality": scores(((1, 2, 3), (1, 2, 3)))}
    contest = {"quality": scores(((4, 2), (1, 1)), ((3, 3), (1, 1)))}
    rules = [decision_rules_from_scores(groups) for groups in ({"quality": CHECKED}, graded, contest)]
    assert rules == [{"quality": BINARY}, {}, {"quality": PAIRS}]
    assert decision_rules_from_scores(graded, "binary") == {"quality": DecisionRule("binary", 2.0, 2.0)}


def test_table_json_and_metrics_say_what_their_figures_are() -> None:
    tuned = decided(CHECKED, replace(BINARY, cut=0.3, chosen_on="dev"))
    results = {"plain": {"quality": decided(CHECKED)}, "tuned": {"quality": tuned}}
    upper, lower = tables(results)
    assert all(text in upper.caption for text in ("0.5 or more", "by the raters 4 / 3", "accuracy 0.57"))
    assert [(row[0], *row[-2:]) for row in upper.rows] == [
        ("plain", "4 / 2", "1"),
        ("tuned (cut 0.3, chosen on dev)", "5 / 1", "1"),
    ]
    assert "below 0.5" in lower.caption
    record, logged = to_json(results)["plain"]["quality"], metrics(results)
    assert (record["kind"], record["threshold"], record["cut"], record["chosen_on"]) == ("binary", 0.5, 0.5, None)
    accuracy, prefix = record["measures"]["accuracy"], "held_out/plain/quality"
    assert logged[f"{prefix}/accuracy"] == accuracy["value"] == pytest.approx(4 / 6)
    assert logged[f"{prefix}/accuracy_low"] == accuracy["low"] < 4 / 6 < accuracy["high"]
    assert logged[f"{prefix}/f1_lower"] == record["lower_label"]["f1"]["value"] == 0.5
    assert logged[f"{prefix}/majority_accuracy"] == pytest.approx(4 / 7)
