"""Absolute agreement: absolute error, concordance and kappa of a cut, with intervals over sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from debate_judge.data.agreement.decisions import DecisionRule
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.inference.absolute_agreement import AVERAGE, AbsoluteAgreement, absolute_agreement, decision_cuts
from debate_judge.data.schema import Aspect, Scale
from debate_judge.runs.reports.absolute_agreement import summary_text, table
from tests.data.scored_groups import group

Judged = dict[str, list[GroupScores]]


def judged(off: float, spread: float, seed: int = 1, groups: int = 30, unscored: int = 0) -> Judged:
    """Scores that are the ratings, moved by `off` and by chance, of two aspects."""
    found: Judged = {}
    for number, aspect in enumerate(("style", "facts")):
        ratings = np.random.default_rng(number).integers(1, 6, (groups, 4)).astype(float)
        scores = ratings + off + spread * np.random.default_rng(seed).normal(size=ratings.shape)
        rows: Any = zip(ratings.tolist(), scores.tolist(), strict=True)
        given = ((r, [None, *s[1:]] if g < unscored else s) for g, (r, s) in enumerate(rows))
        found[aspect] = [group(f"g{g}", r, s, "abcd") for g, (r, s) in enumerate(given)]
    return found


def pooled(groups: list[GroupScores]) -> Any:
    """All scores, and the ratings beside them."""
    return np.array([(s, r) for g in groups for s, r in zip(g.scores, g.ratings, strict=True) if s is not None]).T


CUTS = {"style": 3.5, "facts": 2.5}


def compared(**judges: Judged) -> dict[str, dict[str, AbsoluteAgreement]]:
    return absolute_agreement(judges, CUTS, same_scale=True, seed=0)


def test_the_figures_are_those_of_their_definitions() -> None:
    judges = {"single": judged(1.0, 0.8), "compiled": judged(0.2, 0.5, seed=2, unscored=3)}
    found = compared(**judges)
    for judge, by_aspect in judges.items():
        for aspect, groups in by_aspect.items():
            own, (s, r) = found[judge][aspect], pooled(groups)
            ccc = 2 * np.cov(s, r, bias=True)[0, 1] / (s.var() + r.var() + (s.mean() - r.mean()) ** 2)
            assert own.measures["mae"].value == pytest.approx(np.abs(s - r).mean())
            assert own.measures["ccc"].value == pytest.approx(ccc)
            assert own.measures["kappa"].value == pytest.approx(cohen_kappa_score(s >= CUTS[aspect], r >= CUTS[aspect]))
            assert own.candidates == len(s) == 120 - 3 * (judge == "compiled")
        for measure, one in found[judge][AVERAGE].measures.items():
            values = [found[judge][aspect].measures[measure].value for aspect in by_aspect]
            assert one.value == pytest.approx(np.mean(values))


def test_a_change_is_paired_and_its_sign_tells_which_way() -> None:
    found = compared(single=judged(2.0, 0.3), compiled=judged(-0.5, 0.2))
    change, now = found["compiled"][AVERAGE].changes, found["compiled"][AVERAGE].measures
    mae, kappa = change["mae"], change["kappa"]
    assert mae.high < 0
    assert kappa.low > 0
    assert found["single"][AVERAGE].changes == {}
    assert 0 <= now["mae"].low < now["mae"].value < now["mae"].high  # type: ignore[operator]
    text = summary_text(found, "compiled", "mapped")
    assert text.startswith("mean absolute error 0.5")
    assert "no change shown" not in text


def test_the_same_judge_changes_nothing() -> None:
    same = judged(0.5, 0.5)
    found = compared(single=same, compiled=same)
    assert {one.value for one in found["compiled"][AVERAGE].changes.values()} == {0}
    assert summary_text(found, "compiled", "mapped").count("no change shown") == 2


def test_the_interval_of_the_error_covers() -> None:
    """Of 200 samples of 15 sources, about 95 % hold the error of very many."""
    truth = compared(x=judged(0.4, 0.7, seed=9, groups=4000))["x"]["style"].measures["mae"].value
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        ratings = rng.integers(1, 6, (15, 4)).astype(float)
        scores = ratings + 0.4 + 0.7 * rng.normal(size=ratings.shape)
        sample = [group(f"g{g}", r, s, "abcd") for g, (r, s) in enumerate(zip(ratings, scores, strict=True))]
        own = absolute_agreement({"x": {"style": sample}}, CUTS, same_scale=True, seed=seed)["x"]["style"]
        held += own.measures["mae"].low <= truth <= own.measures["mae"].high
    assert 182 <= held <= 199


def test_what_is_undefined_is_left_out() -> None:
    above = judged(0.0, 0.1)
    found = absolute_agreement({"x": above}, {"style": 0.5, "facts": 0.5}, same_scale=False, seed=0)["x"]
    assert found["style"].measures["kappa"].value is None, "all ratings are on one side"
    assert found[AVERAGE].measures["mae"].value is None, "points of different scales"
    cells = [row[1] for row in table({"x": found}, ["x"]).rows]
    assert cells.count("–") == 4


def test_cuts_follow_the_ratings_the_scale_or_the_user() -> None:
    aspects = (Aspect("style", "?", Scale(1, 5)), Aspect("facts", "?", Scale(0, 1)))
    decision_rules = {"facts": DecisionRule("binary", threshold=0.5, cut=0.5)}
    assert decision_cuts(aspects, decision_rules) == {"style": 4, "facts": 0.5}
    assert decision_cuts(aspects[:1], {}, 3) == {"style": 3}
