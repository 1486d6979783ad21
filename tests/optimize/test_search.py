"""The search: what it tries and in which order, and what it chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import optuna
import pytest

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.inference.absolute_agreement import AbsoluteScale, Objective
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import Criterion, Outcome, Outcomes, SearchResult
from debate_judge.optimize.search.points import Point, SearchSpace
from debate_judge.optimize.search.storage import StoredStudy
from debate_judge.optimize.search.study import CALL_PENALTY, SearchLimits
from tests.optimize.searches import (
    NINE_TRIALS,
    SPACE,
    FakeScores,
    figures_of,
    limits_of,
    plan,
    run_search,
    search,
    tried_points,
    varied_noise,
)

ABSOLUTE_SCALES = {"a": AbsoluteScale(5.0, 4.0)}

# --- the starting points ---


def started(
    space: SearchSpace = SPACE, noise: Callable[[Point], float] = varied_noise, limits: SearchLimits | None = None
) -> list[str]:
    fake = FakeScores(noise)
    run_search(fake, None, replace(limits or limits_of(99), suggestions=0), space=space)
    return tried_points(fake)


def test_it_starts_with_single_calls_then_debates_then_personas_then_a_tie_breaker() -> None:
    assert started() == [
        *("none", "guide"),
        *("none strict 3", "guide strict 3"),
        *("guide plain 1", "guide mild 1"),
        "guide strict 1T",
    ]


def test_some_knowledge_is_always_tried_in_a_debate() -> None:
    space = replace(SPACE, knowledge=("none", "guide", "examples", "both"))
    found = started(space, lambda p: 3.0 * (p.knowledge != "none") - 0.5 * (p.knowledge == "examples"))
    assert found[:6] == ["none", "guide", "examples", "both", "none strict 3", "examples strict 3"]
    # Personas are then tried where single calls are better.
    assert found[6:8] == ["none plain 1", "none mild 1"]


# --- what is tried ---


def test_a_budget_that_covers_the_space_tries_every_point_once(tmp_path: Path) -> None:
    fake = FakeScores(varied_noise)
    found = run_search(fake, tmp_path / "s.log", limits_of(500))
    assert sorted(o.point for o in found.outcomes) == sorted(SPACE.points())
    assert len(fake.asked) == len(SPACE.points())


@pytest.mark.integration
def test_the_same_seed_tries_the_same_and_another_seed_something_else(tmp_path: Path) -> None:
    asked = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 3)):
        fake = FakeScores(varied_noise)
        run_search(fake, tmp_path / name, limits_of(16), seed=seed)
        asked.append(fake.asked)
    assert asked[0] == asked[1]
    assert any(other != asked[0] for other in asked[2:])
    # Whatever the seed, the single call is known.
    assert all(other[0] == Point("none", "strict", 0, False, "given") for other in asked)


@pytest.mark.parametrize(("prune", "stops"), [(False, (0, 24)), (True, (7, 7))])
def test_a_search_that_was_stopped_finds_the_same_and_stores_each_trial_once(
    tmp_path: Path, prune: bool, stops: Sequence[int]
) -> None:
    storage = tmp_path / "s.log"
    straight = run_search(FakeScores(varied_noise), None, NINE_TRIALS, prune=prune)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            run_search(FakeScores(varied_noise, stop_at=stop), storage, NINE_TRIALS, prune=prune)
    assert figures_of(run_search(FakeScores(varied_noise), storage, NINE_TRIALS, prune=prune)) == figures_of(straight)
    points = [outcome.point for outcome in straight.outcomes]
    # A search of another name shares the storage and nothing else.
    search({"a": cast(ChoiceScores, FakeScores(varied_noise))}, SPACE, plan(storage, limits_of(1), study="other"))
    assert sorted(StoredStudy("s", storage, SPACE).points()) == sorted([*points, *straight.pruned])
    assert len(StoredStudy("other", storage, SPACE).points()) == len(SPACE.granularities)
    # With a larger budget it goes on from there.
    more = run_search(FakeScores(varied_noise), storage, limits_of(11), prune=prune)
    assert {*points} < {outcome.point for outcome in more.outcomes}


def test_what_another_process_finds_meanwhile_changes_nothing_and_is_stored_once(tmp_path: Path) -> None:
    storage, others = tmp_path / "s.log", list[SearchResult]()
    straight = run_search(FakeScores(varied_noise), None, NINE_TRIALS)

    def meanwhile(point: Point, outcomes: object) -> None:
        if not others:
            others.append(run_search(FakeScores(varied_noise), storage, NINE_TRIALS))

    assert (
        figures_of(run_search(FakeScores(varied_noise), storage, NINE_TRIALS, on_trial=meanwhile))
        == figures_of(others[0])
        == figures_of(straight)
    )
    assert len(StoredStudy("s", storage, SPACE).points()) == len(straight.outcomes)


def test_all_units_are_asked_about_the_same_points_and_the_study_holds_them(tmp_path: Path) -> None:
    one, other = FakeScores(varied_noise), FakeScores(lambda point: 1.0, seed=1)
    units = {"one": cast(ChoiceScores, one), "other": cast(ChoiceScores, other)}
    found = search(units, SPACE, plan(tmp_path / "s.log", limits_of(8)))
    assert one.asked == other.asked
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "s.log")))
    trials = optuna.load_study(study_name="s", storage=storage).get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    assert len(trials) == len(one.asked) == len(found["one"].outcomes)
    for trial, mine, theirs in zip(trials, found["one"].outcomes, found["other"].outcomes, strict=True):
        assert trial.params["rounds"] == mine.point.rounds
        assert trial.params["granularity"] == mine.point.granularity
        mean = (mine.agreement + theirs.agreement) / 2
        assert trial.value == pytest.approx(mean - CALL_PENALTY * (mine.calls + theirs.calls) / 2)
        assert trial.user_attrs["agreement"] == pytest.approx(mean)
        assert trial.user_attrs["one"] == {"agreement": mine.agreement, "lm_calls_per_item": mine.calls}


def test_importances_are_shares_and_tell_what_matters() -> None:
    def noise(point: Point) -> float:
        return 4.0 * (point.persona != "plain")

    space = replace(SPACE, knowledge=("none", "guide"), tie_breakers=(False,))
    found = run_search(FakeScores(noise), None, space=space).importances
    assert set(found) == {"rounds", "knowledge", "persona"}
    assert sum(found.values()) == pytest.approx(1.0)
    assert max(found, key=lambda name: found[name]) == "persona"
    assert run_search(FakeScores(noise), None, limits_of(1)).importances == {}


# --- what is chosen ---

ONE_STANDARD = replace(SPACE, granularities=("given",))
"""The same debates, each with one point for a length."""


def test_what_is_clearly_better_is_chosen_at_any_price(tmp_path: Path) -> None:
    best = ("guide", "plain", 3, True)
    fake = FakeScores(lambda p: 0.1 if (p.knowledge, p.persona, p.rounds, p.tie_breaker) == best else 4.0)
    found = run_search(fake, tmp_path / "s.log", space=ONE_STANDARD)
    assert (found.chosen.point.knowledge, found.chosen.point.persona, found.chosen.point.rounds) == best[:3]
    assert found.chosen.calls == 7.5


def test_cheaper_means_fewer_calls_and_not_fewer_rounds(tmp_path: Path) -> None:
    # A debate that mostly ends at once may cost less than one that has fewer rounds.
    fake = FakeScores(
        lambda p: 0.0 if p.rounds else 5.0, calls=lambda p: 2.5 if p.persona == "mild" and p.rounds == 3 else 4
    )
    found = run_search(fake, tmp_path / "s.log", space=ONE_STANDARD)
    assert (found.chosen.point.persona, found.chosen.point.rounds) == ("mild", 3)


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


@pytest.mark.parametrize(("objective", "rounds"), [("spearman", 1), ("mae", 0), ("ccc", 0), ("kappa", 0)])
def test_what_is_maximized_decides_between_order_and_level(objective: Objective, rounds: int) -> None:
    class Levels(FakeScores):
        """A debate orders rightly and is two points too low; the single call has the level and swaps the last two."""

        def scores(self, point: Point, *args: Any, **options: Any) -> tuple[dict[str, list[GroupScores]], float]:
            found, calls = super().scores(point, *args, **options)

            def scored(ratings: Sequence[float | None]) -> tuple[float | None, ...]:
                *first, one, other = ratings
                return tuple((r or 0.0) - 2 for r in ratings) if point.rounds else (*first, other, one)

            return {"a": [replace(g, scores=scored(g.ratings)) for g in found["a"]]}, calls

    space = SearchSpace(("none",), ("strict",), (0, 1), (False,), ("given",))
    criterion = Criterion(objective, "summary" if objective in ("spearman", "mae") else "sample", 1.0, ABSOLUTE_SCALES)
    outcomes = Outcomes({"a": cast(ChoiceScores, Levels(lambda p: 0.0))}, space, criterion)
    for n in (0, 1):
        outcomes.evaluate(Point("none", "strict", n, False, "given"))
    assert outcomes.choose()["a"].rounds == rounds


def test_the_pareto_front() -> None:
    def outcome(calls: float, agreement: float) -> Outcome:
        return Outcome(Point("none", "a", int(calls), False, "given"), agreement, calls, {}, {})

    outcomes = [outcome(5, 0.6), outcome(1, 0.4), outcome(3, 0.3), outcome(3, 0.5), outcome(4, 0.5), outcome(7, 0.6)]
    found = SearchResult(outcomes[1], tuple(outcomes), cast(ChoiceScores, None))
    assert [(o.calls, o.agreement) for o in found.front] == [(1, 0.4), (3, 0.5), (5, 0.6)]


def test_what_may_not_be_exported_is_measured_and_not_chosen() -> None:
    space = SearchSpace(("none", "examples"), ("strict",), (0, 1), (False,), not_exportable=("examples",))
    found = run_search(FakeScores(lambda p: 0.0 if p.knowledge == "examples" else 2.0), None, space=space)
    assert max(found.outcomes, key=lambda o: o.agreement).point.knowledge == "examples"
    assert found.chosen.point.knowledge == "none"


def test_a_judge_that_leaves_too_much_unscored_is_not_chosen_over_one_that_ranks_wrongly() -> None:
    class Silent(FakeScores):
        """Single calls rank the wrong way round, and debates give no score."""

        def scores(self, point: Point, *args: Any, **options: Any) -> tuple[dict[str, list[GroupScores]], float]:
            found, calls = super().scores(point, *args, **options)
            given = [
                replace(g, scores=tuple(None if point.rounds else -(s or 0) for s in g.scores)) for g in found["a"]
            ]
            return {"a": given}, calls

    space = SearchSpace(("none",), ("strict",), (0, 1), (False,), ("given",))
    points = [Point("none", "strict", rounds, False, "given") for rounds in (0, 1)]

    def chosen(most: float, among: list[Point]) -> int:
        criterion = Criterion("spearman", "summary", max_unscored=most)
        outcomes = Outcomes({"a": cast(ChoiceScores, Silent(lambda p: 0.1))}, space, criterion)
        for point in among:
            outcomes.evaluate(point)
        return outcomes.choose()["a"].rounds

    assert chosen(0.2, points) == 0
    assert chosen(1.0, points) == 1
    # Where all leave too much, the check after the search tells it.
    assert chosen(0.2, points[1:]) == 1
