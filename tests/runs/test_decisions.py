"""Decisions: which ones a corpus calls for, what they amount to by hand, and how they are shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from debate_judge.data.agreement.decisions import (
    NEGATIVE,
    POSITIVE,
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

BINARY = DecisionRule("binary", 0.5, 0.5)


def aspect(low: float, high: float, step: float = 1.0) -> Aspect:
    return Aspect("quality", "Is it good?", Scale(low, high, step))


def groups(*ratings: tuple[tuple[float, ...], ...]) -> list[RatedGroup]:
    """One group per argument, in it one candidate per tuple of raters' values; an empty tuple is unrated."""
    return [
        RatedGroup(
            f"g{i}",
            f"Source {i}.",
            tuple(Candidate(str(j), f"{i} {j}", {"quality": v} if v else {}) for j, v in enumerate(group)),
        )
        for i, group in enumerate(ratings)
    ]


ENDS = [((1.0,), (0.0,)), ((0.0,), (1.0,))]


@pytest.mark.parametrize(
    ("scale", "ratings", "expected"),
    [
        # One yes or no per candidate; also in groups of two, which are not taken for contests then.
        (aspect(0, 1), ENDS, BINARY),
        (aspect(0, 1), [((1.0,), (0.0,), (0.0,)), ((1.0,),)], BINARY),
        # Three raters of yes or no.
        (aspect(0, 1), [((1.0, 0.0, 1.0),), ((0.0, 0.0, 0.0),)], BINARY),
        (aspect(1, 5), [((1.0,),), ((5.0,),)], DecisionRule("binary", 3.0, 3.0)),
        # Shares of sentences, on the same scale.
        (aspect(0, 1), [((1.0,),), ((1 / 3,),), ((0.0,),)], None),
        # Preferences: a tie is a third value.
        (aspect(0, 1, 0.5), [((1.0,), (0.0,)), ((0.5,), (0.5,))], DecisionRule("pairs")),
        (aspect(1, 5), [((4.0,), (2.0,)), ((3.0,), (3.0,))], DecisionRule("pairs")),
        (aspect(1, 5), [((4.0,), (2.0,)), ((3.0,),)], None),
        (aspect(1, 5), [((4.0,), (4.0,)), ((3.0,), (3.0,))], None),
        (aspect(1, 5), [((4.0,), (2.0,), (3.0,))], None),
        # Two values that are not the ends of the scale are two grades.
        (aspect(1, 5), [((4.0,),), ((5.0,),)], None),
        (aspect(0, 1), [((1.0,),), ((1.0,),)], None),
        (aspect(0, 1), [((), ()), ((), ())], None),
    ],
)
def test_the_schema_says_what_is_decided(
    scale: Aspect, ratings: list[tuple[tuple[float, ...], ...]], expected: DecisionRule | None
) -> None:
    found = find_decision_rules(groups(*ratings), [scale])
    assert found == ({} if expected is None else {"quality": expected})


def scores(*each: tuple[tuple[float | None, ...], tuple[float | None, ...]]) -> list[GroupScores]:
    """One group per argument: (ratings, scores)."""
    return [GroupScores(f"g{i}", tuple(map(str, range(len(r)))), r, s) for i, (r, s) in enumerate(each)]


CHECKED = scores(
    ((1.0, 0.0), (0.9, 0.2)),
    ((1.0, 0.0), (0.4, 0.6)),
    ((1.0, 0.0), (0.8, None)),
    ((1.0, None), (0.5, 0.7)),
)
"""Positive are .9 .4 .8 .5, negative .2 .6 and one without a score: TP = 3 (.5 counts), FN = 1, FP = 1, TN = 1."""


def decided(found: list[GroupScores], question: DecisionRule = BINARY, **options: bool) -> DecisionResult:
    return evaluate_decisions({"quality": found}, {"quality": question}, resamples=100, **options)["quality"]


def test_binary_decisions_by_hand() -> None:
    one = decided(CHECKED)
    assert {name: m.value for name, m in one.measures.items()} == pytest.approx(
        {
            "accuracy": 4 / 6,
            # Chance: (4 * 4 + 2 * 2) / 36 = 20/36; (24/36 - 20/36) / (16/36).
            "kappa": 1 / 4,
            "balanced_accuracy": (3 / 4 + 1 / 2) / 2,
            "precision": 3 / 4,
            "recall": 3 / 4,
            "f1": 3 / 4,
            # .9 and .8 beat both, .4 and .5 beat .2 alone: 6 of 8.
            "auroc": 6 / 8,
        }
    )
    assert [one.lower[name].value for name in ("precision", "recall", "f1")] == [0.5, 0.5, 0.5]
    assert (one.labels, one.decisions) == ({POSITIVE: 4, NEGATIVE: 3}, {POSITIVE: 4, NEGATIVE: 2})
    assert (one.undecided, one.sources, one.majority_baseline) == (1, 4, 4 / 7)
    accuracy = one.measures["accuracy"]
    assert accuracy.low < 4 / 6 < accuracy.high


def test_pairs_by_hand() -> None:
    found = scores(
        ((1.0, 0.0), (3.0, 2.0)),  # win, win
        ((0.0, 1.0), (2.0, 2.0)),  # loss, tie
        ((0.5, 0.5), (4.0, 4.0)),  # tie, tie
        ((1.0, 0.0), (1.0, 2.0)),  # win, loss
        ((1.0, 0.0), (None, 2.0)),
    )
    one = decided(found, DecisionRule("pairs"))
    assert {name: m.value for name, m in one.measures.items()} == pytest.approx(
        {
            "accuracy": 2 / 4,
            # Chance: (2 * 1 + 1 * 2 + 1 * 1) / 16 = 5/16; (8/16 - 5/16) / (11/16).
            "kappa": 3 / 11,
            "balanced_accuracy": (1 / 2 + 1 + 0) / 3,
            # Better minus worse is 1, 0, -1; against -1, 0, 1 that is 2.5 + 1.5 + .5 of 9.
            "auroc": 1 / 2,
        }
    )
    assert one.labels == {"win": 3, "tie": 1, "loss": 1}
    assert one.decisions == {"win": 1, "tie": 2, "loss": 1}
    assert (one.undecided, one.majority_baseline, one.lower) == (1, 3 / 5, {})
    caption = unwrapped(printed(*tables({"judge": {"quality": one}})))
    # One decision a source: what the confusion matrix gives has its posterior, AUROC the jackknife.
    assert caption.index("Dirichlet") < caption.index("of AUROC") < caption.index("jackknife")
    # Which of two scores is higher can be told on any scale.
    assert decided(found, DecisionRule("pairs"), on_scale=False) == one
    wide = decided(found, DecisionRule("pairs", margin=1.0))
    assert wide.decisions == {"win": 0, "tie": 4, "loss": 0}


def test_raters_who_are_split_give_no_label() -> None:
    one = decided(scores(((1.0, 0.5), (0.9, 0.9)), ((0.0, 0.5), (0.1, 0.9))))
    assert one.labels == {POSITIVE: 1, NEGATIVE: 1}
    assert one.measures["accuracy"].value == 1.0
    found = {"judge": {"quality": one}}
    assert "2 more are left out" in unwrapped(printed(*tables(found)))
    assert to_json(found)["judge"]["quality"]["ties"] == 2


def test_what_has_no_label_or_no_decision() -> None:
    assert evaluate_decisions({"quality": scores(((None, None), (0.9, 0.1)))}, {"quality": BINARY}) == {}
    silent = decided(scores(((1.0, 0.0), (None, None))))
    assert (silent.measures, silent.undecided, silent.majority_baseline) == ({}, 2, 0.5)
    assert "–" in printed(*tables({"judge": {"quality": silent}}))
    json.dumps(to_json({"judge": {"quality": silent}}), allow_nan=False)


def test_scores_off_the_scale_are_ranked_and_not_cut() -> None:
    metric = scores(*(((r,), (s,)) for r, s in ((1.0, -1.5), (0.0, -4.0), (1.0, -2.0), (0.0, -1.8))))
    one = decided(metric, on_scale=False)
    # -1.5 beats both, -2 beats -4 alone.
    assert {name: m.value for name, m in one.measures.items()} == {"auroc": 3 / 4}
    assert (one.decisions, one.lower) == ({}, {})
    chosen = with_tuned_cut(BINARY, metric, "dev")
    # At -3: both positives, one of two negatives. At -1.65: one of two positives, both negatives. -1.65 is nearer.
    assert chosen.cut == pytest.approx(-1.65)
    assert chosen.chosen_on == "dev"
    assert decided(metric, chosen, on_scale=False).decisions == {POSITIVE: 1, NEGATIVE: 3}


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
def test_the_cut_with_the_best_balanced_accuracy(
    positive: tuple[float, ...], negative: tuple[float, ...], cut: float
) -> None:
    ratings = (1.0,) * len(positive) + (0.0,) * len(negative)
    found = with_tuned_cut(BINARY, scores((ratings, positive + negative)), "dev")
    assert found.cut == pytest.approx(cut)
    assert (found == BINARY) is (cut == 0.5)


def test_pairs_have_no_cut() -> None:
    assert with_tuned_cut(DecisionRule("pairs"), CHECKED, "dev") == DecisionRule("pairs")


def test_recorded_scores_have_no_schema() -> None:
    graded = {"quality": scores(((1.0, 2.0, 3.0), (1.0, 2.0, 3.0)))}
    assert decision_rules_from_scores({"quality": CHECKED}) == {"quality": BINARY}
    assert decision_rules_from_scores(graded) == {}
    assert decision_rules_from_scores(graded, "binary") == {"quality": DecisionRule("binary", 2.0, 2.0)}
    contest = {"quality": scores(((4.0, 2.0), (1.0, 1.0)), ((3.0, 3.0), (1.0, 1.0)))}
    assert decision_rules_from_scores(contest) == {"quality": DecisionRule("pairs")}


def test_the_table_says_what_its_figures_are() -> None:
    found = {
        "plain": {"quality": decided(CHECKED)},
        "tuned": {"quality": decided(CHECKED, replace(BINARY, cut=0.3, chosen_on="dev"))},
    }
    upper, lower = tables(found)
    assert "0.5 or more" in upper.caption
    assert "by the raters 4 / 3" in upper.caption
    assert "accuracy 0.57" in upper.caption
    assert [row[0] for row in upper.rows] == ["plain", "tuned (cut 0.3, chosen on dev)"]
    assert upper.header[-2:] == ("decided positive / negative", "undecided")
    assert [row[-2:] for row in upper.rows] == [("4 / 2", "1"), ("5 / 1", "1")]
    assert "below 0.5" in lower.caption
    assert lower.header == ("judge", "precision", "recall", "F1")
    assert tables({"plain": {}}) == []


def test_json_and_metrics_carry_the_same_figures() -> None:
    found = {"plain": {"quality": decided(CHECKED)}}
    values = to_json(found)["plain"]["quality"]
    assert values["kind"] == "binary"
    assert (values["threshold"], values["cut"], values["chosen_on"]) == (0.5, 0.5, None)
    assert set(values["measures"]["accuracy"]) == {"value", "low", "high", "method"}
    logged = metrics(found)
    assert logged["held_out/plain/quality/accuracy"] == values["measures"]["accuracy"]["value"] == pytest.approx(4 / 6)
    assert logged["held_out/plain/quality/accuracy_low"] == values["measures"]["accuracy"]["low"]
    assert logged["held_out/plain/quality/f1_lower"] == values["lower_label"]["f1"]["value"] == 0.5
    assert logged["held_out/plain/quality/majority_accuracy"] == pytest.approx(4 / 7)
