"""The search: what it tries, what it prunes, what it stores and what it chooses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.pruners import NopPruner

from debate_judge.data.agreement.decisions import AbsoluteScale, Objective
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level
from debate_judge.optimize.search import (
    CALL_PENALTY,
    SEARCH_LIMITS,
    Point,
    SearchLimits,
    SearchSpace,
    describe_point,
)
from debate_judge.programs.lm.limits import TooManyUnscoredError
from tests.optimize.searches import (
    SPACE,
    FakeScores,
    figures_of,
    label,
    run_search,
    search_of,
    stored_trials,
    varied_noise,
)

LIGHT, MEDIUM = SEARCH_LIMITS["light"], SEARCH_LIMITS["medium"]
ONE_STANDARD = replace(SPACE, granularities=("given",))
SINGLE_OR_DEBATE = SearchSpace(("none",), ("strict",), (0, 1), (False,), ("given",))


# --- what is tried ---


def test_it_starts_with_single_calls_and_short_debates() -> None:
    assert [label(point) for point in LIGHT.starting_points(SPACE)] == [
        *("none", "guide", "guide strict 1", "guide two-briefs 1")
    ]
    assert "guide mild 1" in [label(point) for point in MEDIUM.starting_points(SPACE)]
    several = replace(SPACE, knowledge=("none", "guide", "precedents"))
    assert "precedents strict 1" in [label(point) for point in LIGHT.starting_points(several)]
    assert len(SearchLimits(1, trials=6).starting_points(SPACE)) == 4
    single_calls = replace(SPACE, rounds=(0,), tie_breakers=(False,))
    assert [label(point) for point in LIGHT.starting_points(single_calls)] == ["none", "guide"]
    always = replace(SPACE, knowledge=("none",), rounds=(0, 3), tie_breakers=(True,))
    assert [label(point) for point in LIGHT.starting_points(always)] == ["none", "none strict 3T", "none two-briefs 3T"]


@pytest.mark.parametrize(("effort", "seed"), [*(("light", seed) for seed in range(8)), ("medium", 0)])
def test_a_third_of_the_trials_is_the_samplers_and_varies_n(effort: str, seed: int, tmp_path: Path) -> None:
    run_search(FakeScores(varied_noise), storage=tmp_path / "s.log", limits=SEARCH_LIMITS[effort], seed=seed)
    trials = stored_trials(tmp_path / "s.log")
    suggested = [trial for trial in trials if "fixed_params" not in trial.system_attrs]
    assert len(suggested) >= len(trials) / 3
    assert len({trial.params["rounds"] for trial in suggested}) > 1


def test_the_same_seed_tries_the_same_and_another_seed_something_else() -> None:
    tried = []
    for seed in (0, 0, 1, 2, 3):
        fake = FakeScores(varied_noise)
        run_search(fake, seed=seed, limits=MEDIUM)
        tried.append(list(fake.asked))
    assert tried[0] == tried[1]
    assert any(points != tried[0] for points in tried[2:])
    # Whatever the seed, the single call is known.
    assert all(Point("none", "strict", 0, False, "given") in points for points in tried)


def test_all_aspects_are_asked_about_the_same_points_and_the_study_has_their_mean(tmp_path: Path) -> None:
    fakes = {"one": FakeScores(varied_noise), "other": FakeScores(lambda point: 1.0, seed=1)}
    search = search_of(fakes, storage=tmp_path / "s.log", pruner=NopPruner())
    search.optimize()
    assert [*fakes["one"].asked] == [*fakes["other"].asked]
    for trial in stored_trials(tmp_path / "s.log", optuna.trial.TrialState.COMPLETE):
        outcomes = search.outcomes[search.space.point(**trial.params)].values()
        assert trial.value == pytest.approx(sum(o.agreement - CALL_PENALTY * o.calls for o in outcomes) / 2)
        assert trial.user_attrs["agreement_by_aspect"] == {
            name: search.outcomes[search.space.point(**trial.params)][name].agreement for name in fakes
        }


# --- pruning ---


@pytest.mark.parametrize(("gains", "asked"), [(True, 12), (False, 9)])
def test_a_debate_is_pruned_on_a_part_of_train_or_on_train(gains: bool, asked: int) -> None:
    single, debate = (2.0, 0.2) if gains else (0.2, 2.0)
    fake = FakeScores(lambda p: 50.0 if p.persona != "strict" else debate if p.rounds else single, train=9)
    result = run_search(fake)
    # The best of the short debates is not pruned on the first three groups.
    assert fake.asked[Point("guide", "strict", 1, False, "given")] == asked
    assert fake.asked[Point("guide", "two-briefs", 1, False, "given")] == 3
    assert fake.asked[Point("guide", "strict", 0, False, "given")] == 12
    assert result.states["PRUNED"] > 0
    # What may be chosen is known for all groups, and the roundings of what was held.
    assert {fake.asked[point] for point in result.outcomes} == {12}
    assert Point("guide", "strict", 0, False, "half") in result.outcomes


def test_a_judge_that_has_seen_train_is_pruned_on_a_part_of_all_groups() -> None:
    fake = FakeScores(lambda p: 50.0 if p.persona != "strict" else 0.2)
    run_search(fake)
    assert fake.asked[Point("guide", "two-briefs", 1, False, "given")] == 4
    assert {*fake.asked.values()} == {4, 12}


def test_with_few_groups_nothing_is_pruned() -> None:
    fake = FakeScores(lambda p: 0.2 if p.knowledge == "guide" else 50.0)
    fake.groups = fake.groups[:3]
    assert run_search(fake).states.keys() == {"COMPLETE"}


# --- what has no score ---


class Silent(FakeScores):
    """Without a score for each text where a point is one of these."""

    def __init__(self, silent: Callable[[Point], bool]) -> None:
        super().__init__(lambda point: 0.1)
        self.silent = silent

    def scored(self, point: Point, *others: Any) -> tuple[float | None, ...]:
        return (None,) * 6 if self.silent(point) else super().scored(point, *others)


def test_a_judge_that_leaves_too_much_unscored_has_failed_and_is_no_choice(tmp_path: Path) -> None:
    fake = Silent(lambda point: point.rounds == 1)
    # The prefetch asks about every starting point; what fails is told by the trial.
    result = run_search(fake, max_unscored=0.2, storage=tmp_path / "s.log")
    assert 1 not in {point.rounds for point in result.outcomes}
    assert result.states["FAIL"] == len(stored_trials(tmp_path / "s.log", optuna.trial.TrialState.FAIL)) > 0
    with pytest.raises(TooManyUnscoredError, match="no answer"):
        run_search(Silent(lambda point: True), max_unscored=0.2)


# --- the stored study ---


@pytest.mark.parametrize("stop", [1, 6])
def test_a_search_that_was_stopped_finds_the_same_and_leaves_the_same_study(tmp_path: Path, stop: int) -> None:
    file, undisturbed = tmp_path / "s.log", run_search(FakeScores(varied_noise))
    with pytest.raises(KeyboardInterrupt):
        run_search(FakeScores(varied_noise, stop_at=stop), storage=file)
    for _ in range(2):
        assert figures_of(run_search(FakeScores(varied_noise), storage=file)) == figures_of(undisturbed)
        assert len(stored_trials(file)) == sum(undisturbed.states.values())
    file.write_bytes(b"broken\n")
    assert figures_of(run_search(FakeScores(varied_noise), storage=file)) == figures_of(undisturbed)


def test_a_disk_that_is_full_ends_the_search_which_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, calls = tmp_path / "study.log", list[int]()

    def fsync(number: int) -> None:
        calls.append(number)
        if len(calls) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(InputError, match="No space left on device"):
            run_search(FakeScores(varied_noise), storage=file)
    run_search(FakeScores(varied_noise), storage=file)


def test_a_run_has_the_names_of_the_verdict_and_a_single_call_no_persona() -> None:
    single, debate = Point("guide", "strict", 0, False, "half"), Point("none", "strict", 2, True, "given")
    assert [point.params["persona"] for point in (single, debate)] == ["none", "strict"]
    assert [point.params["n"] for point in (single, debate)] == [0, 2]
    assert describe_point(single, 1.0) == "guide, single call, half points"
    assert describe_point(debate, 7.0) == "n = 2, strict, tie-breaker"


# --- what is chosen ---


def test_what_is_clearly_better_is_chosen_at_any_price() -> None:
    fake = FakeScores(lambda p: 0.1 if (p.knowledge, p.persona, p.rounds) == ("guide", "strict", 3) else 4.0)
    chosen = run_search(fake, ONE_STANDARD, pruner=NopPruner(), limits=SearchLimits(512, 60)).chosen["a"]
    assert (chosen.point.knowledge, chosen.point.persona, chosen.point.rounds) == ("guide", "strict", 3)


def test_groups_that_may_not_judge_a_point_are_filled_in_from_the_untuned_judge() -> None:
    """On the groups that both are judged by the guide is worth more; where it is not known, that is added."""
    space = SearchSpace(("none", "guide"), ("strict",), (0,), (False,), ("given",))
    fake = FakeScores(
        lambda p: 0.5 if p.knowledge == "guide" else 3.0, judgeable=lambda p: 4 if p.knowledge == "guide" else 12
    )
    search = search_of({"a": fake}, space, pruner=NopPruner())
    search.optimize()
    none, guide = (search.outcomes[Point(k, "strict", 0, False, "given")]["a"] for k in space.knowledge)
    gain = guide.values[:4].mean() - none.values[:4].mean()
    assert gain > 0.1
    assert guide.values[4:] == pytest.approx(none.values[4:] + gain)
    assert guide.agreement == pytest.approx(none.agreement + gain)


class Changed(FakeScores):
    """A single call and a debate whose scores are these functions of the ratings."""

    def __init__(self, *by_rounds: Callable[[list[float]], list[float]]) -> None:
        super().__init__(lambda point: 0.0)
        self.by_rounds = by_rounds

    def scored(self, point: Point, ratings: Sequence[float], rng: Any) -> tuple[float | None, ...]:
        return tuple(self.by_rounds[point.rounds](list(ratings)))


@pytest.mark.parametrize(("objective", "rounds"), [("spearman", 1), ("mae", 0), ("ccc", 0), ("kappa", 0)])
def test_what_is_maximized_decides_between_order_and_level(objective: Objective, rounds: int) -> None:
    """A debate orders rightly and is two points too low; the single call has the level and swaps the last two."""
    fake = Changed(lambda ratings: [*ratings[:-2], ratings[-1], ratings[-2]], lambda ratings: [r - 2 for r in ratings])
    level: Level = "summary" if objective in ("spearman", "mae") else "sample"
    measured = {"objective": objective, "level": level, "absolute_scales": {"a": AbsoluteScale(5.0, 4.0)}}
    assert run_search(fake, SINGLE_OR_DEBATE, **measured).chosen["a"].point.rounds == rounds
