"""The search: what it tries and in which order, and what it chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import optuna
import pytest

from debate_judge.data.agreement.absolute_agreement import AbsoluteScale, Objective
from debate_judge.data.agreement.tables import GroupScores, Level
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import Criterion, Outcome, Outcomes, SearchResult
from debate_judge.optimize.search.points import Point, SearchSpace
from debate_judge.optimize.search.study import CALL_PENALTY
from tests.optimize.searches import (
    SPACE,
    FakeScores,
    limits_of,
    plan,
    run_search,
    search,
    stored_trials,
    tried_points,
    varied_noise,
)

ABSOLUTE_SCALES = {"a": AbsoluteScale(5.0, 4.0)}
ONE_STANDARD = replace(SPACE, granularities=("given",))
"""The same debates, each with one point for a length."""
SINGLE_OR_DEBATE = SearchSpace(("none",), ("strict",), (0, 1), (False,), ("given",))


def price(point: Point) -> float:
    return 1 + 2 * point.rounds + 0.5 * point.tie_breaker


# --- the starting points ---


def started(space: SearchSpace, noise: Callable[[Point], float] = varied_noise) -> list[str]:
    fake = FakeScores(noise, price)
    run_search(fake, None, replace(limits_of(99), suggestions=0), space=space)
    return tried_points(fake)


def test_it_starts_with_single_calls_then_debates_then_personas_then_a_tie_breaker() -> None:
    assert started(SPACE) == [
        *("none", "guide"),
        *("none strict 3", "guide strict 3"),
        *("guide plain 1", "guide mild 1"),
        "guide strict 1T",
    ]


def test_some_knowledge_is_always_tried_in_a_debate() -> None:
    space = replace(SPACE, knowledge=("none", "guide", "examples", "both"))
    labels = started(space, lambda p: 3.0 * (p.knowledge != "none") - 0.5 * (p.knowledge == "examples"))
    assert labels[:6] == ["none", "guide", "examples", "both", "none strict 3", "examples strict 3"]
    # Personas are then tried where single calls are better.
    assert labels[6:8] == ["none plain 1", "none mild 1"]


# --- what is tried ---


def test_a_budget_that_covers_the_space_tries_every_point_once() -> None:
    fake = FakeScores(varied_noise)
    result = run_search(fake, None, limits_of(500))
    assert sorted(o.point for o in result.outcomes) == sorted(SPACE.points())
    assert len(fake.asked) == len(SPACE.points())


@pytest.mark.integration
def test_the_same_seed_tries_the_same_and_another_seed_something_else() -> None:
    points_tried = []
    for seed in (0, 0, 1, 2, 3):
        fake = FakeScores(varied_noise)
        run_search(fake, None, limits_of(16), seed=seed)
        points_tried.append(fake.asked)
    assert points_tried[0] == points_tried[1]
    assert any(points != points_tried[0] for points in points_tried[2:])
    # Whatever the seed, the single call is known.
    assert all(points[0] == Point("none", "strict", 0, False, "given") for points in points_tried)


def test_all_units_are_asked_about_the_same_points_and_the_study_holds_them(tmp_path: Path) -> None:
    first, second = FakeScores(varied_noise), FakeScores(lambda point: 1.0, seed=1)
    units = {"one": cast(ChoiceScores, first), "other": cast(ChoiceScores, second)}
    results = search(units, SPACE, plan(tmp_path / "s.log", limits_of(8)))
    assert first.asked == second.asked
    trials = stored_trials(tmp_path / "s.log", optuna.trial.TrialState.COMPLETE)
    assert len(trials) == len(first.asked) == len(results["one"].outcomes)
    for trial, outcome, other in zip(trials, results["one"].outcomes, results["other"].outcomes, strict=True):
        assert trial.params["rounds"] == outcome.point.rounds
        assert trial.params["granularity"] == outcome.point.granularity
        mean = (outcome.agreement + other.agreement) / 2
        assert trial.value == pytest.approx(mean - CALL_PENALTY * (outcome.calls + other.calls) / 2)
        assert trial.user_attrs["agreement"] == pytest.approx(mean)
        assert trial.user_attrs["one"] == {"agreement": outcome.agreement, "lm_calls_per_item": outcome.calls}


# --- what is chosen ---


def test_what_is_clearly_better_is_chosen_at_any_price() -> None:
    best = ("guide", "plain", 3, True)
    fake = FakeScores(lambda p: 0.1 if (p.knowledge, p.persona, p.rounds, p.tie_breaker) == best else 4.0)
    chosen = run_search(fake, None, space=ONE_STANDARD).chosen
    assert (chosen.point.knowledge, chosen.point.persona, chosen.point.rounds, chosen.calls) == (*best[:3], 7.5)


def test_cheaper_means_fewer_calls_and_not_fewer_rounds() -> None:
    # A debate that mostly ends at once may cost less than one that has fewer rounds.
    calls = {("mild", 3): 2.5}
    fake = FakeScores(lambda p: 0.0 if p.rounds else 5.0, lambda p: calls.get((p.persona, p.rounds), 4))
    chosen = run_search(fake, None, space=ONE_STANDARD).chosen
    assert (chosen.point.persona, chosen.point.rounds) == ("mild", 3)


def test_groups_that_may_not_judge_a_point_are_filled_in_from_the_untuned_judge() -> None:
    """On the groups that both are judged by the guide is worth more; where it is not known, that is added."""
    space = SearchSpace(("none", "guide"), ("strict",), (0,), (False,), ("given",))
    fake = FakeScores(
        lambda p: 0.5 if p.knowledge == "guide" else 3.0, judgeable=lambda p: 4 if p.knowledge == "guide" else 10
    )
    outcomes = Outcomes({"a": cast(ChoiceScores, fake)}, space, Criterion("spearman", "summary"))
    none, guide = (outcomes.evaluate(Point(k, "strict", 0, False, "given"))["a"] for k in space.knowledge)
    plain, informed = none.values["a"], guide.values["a"]
    gain = informed[:4].mean() - plain[:4].mean()
    assert gain > 0.1
    assert informed[4:] == pytest.approx(plain[4:] + gain)
    assert guide.agreement == pytest.approx(none.agreement + gain)


class Changed(FakeScores):
    """A single call and a debate whose scores are these functions of the ratings."""

    def __init__(self, *by_rounds: Callable[[list[float]], list[float | None]]) -> None:
        super().__init__(lambda point: 0.0)
        self.by_rounds = by_rounds

    def scores(self, point: Point, *args: Any, **options: Any) -> tuple[dict[str, list[GroupScores]], float]:
        by_aspect, calls = super().scores(point, *args, **options)
        change = self.by_rounds[point.rounds]
        changed = [replace(g, scores=tuple(change([r or 0.0 for r in g.ratings]))) for g in by_aspect["a"]]
        return {"a": changed}, calls


def chosen_rounds(fake: FakeScores, criterion: Criterion, among: Sequence[int] = (0, 1)) -> int:
    outcomes = Outcomes({"a": cast(ChoiceScores, fake)}, SINGLE_OR_DEBATE, criterion)
    for rounds in among:
        outcomes.evaluate(Point("none", "strict", rounds, False, "given"))
    return outcomes.choose()["a"].rounds


@pytest.mark.parametrize(("objective", "rounds"), [("spearman", 1), ("mae", 0), ("ccc", 0), ("kappa", 0)])
def test_what_is_maximized_decides_between_order_and_level(objective: Objective, rounds: int) -> None:
    """A debate orders rightly and is two points too low; the single call has the level and swaps the last two."""
    fake = Changed(lambda ratings: [*ratings[:-2], ratings[-1], ratings[-2]], lambda ratings: [r - 2 for r in ratings])
    level: Level = "summary" if objective in ("spearman", "mae") else "sample"
    assert chosen_rounds(fake, Criterion(objective, level, 1.0, ABSOLUTE_SCALES)) == rounds


def test_a_judge_that_leaves_too_much_unscored_is_not_chosen_over_one_that_ranks_wrongly() -> None:
    fake = Changed(lambda ratings: [-r for r in ratings], lambda ratings: [None for _ in ratings])
    for most, among, rounds in ((0.2, (0, 1), 0), (1.0, (0, 1), 1), (0.2, (1,), 1)):
        # Where all leave too much, the check after the search tells it.
        assert chosen_rounds(fake, Criterion("spearman", "summary", max_unscored=most), among) == rounds


def test_the_pareto_front() -> None:
    def outcome(calls: float, agreement: float) -> Outcome:
        return Outcome(Point("none", "a", int(calls), False, "given"), agreement, calls, {}, {})

    outcomes = [outcome(5, 0.6), outcome(1, 0.4), outcome(3, 0.3), outcome(3, 0.5), outcome(4, 0.5), outcome(7, 0.6)]
    result = SearchResult(outcomes[1], tuple(outcomes), cast(ChoiceScores, None))
    assert [(o.calls, o.agreement) for o in result.front] == [(1, 0.4), (3, 0.5), (5, 0.6)]
