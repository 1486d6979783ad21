"""Pruning: what is pruned after how many groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import optuna

from debate_judge.data.schema import Aspect, Scale
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import PrunedPoint, SearchResult
from debate_judge.optimize.search.points import JudgeVariant, Point, SearchSpace
from debate_judge.optimize.search.storage import TrialOutcome
from debate_judge.optimize.search.study import shuffled_groups
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm, section
from tests.optimize.noisy_judges import ASPECTS, NOISY, scores_of
from tests.optimize.searches import NINE_TRIALS, SPACE, FakeScores, limits_of, plan, run_search, search, varied_noise

# --- blocks ---


# --- in a search ---


def weak(point: Point) -> float:
    """The guide is good; without it, and with other personas, everything is noise."""
    return 0.2 if point.knowledge == "guide" and point.persona == "strict" else 50.0


def pruned(fake: FakeScores, storage: Path | None = None, **options: Any) -> SearchResult:
    return run_search(fake, storage, options.pop("limits", NINE_TRIALS), prune=True, **options)


def test_weak_points_are_pruned_after_a_few_groups_and_the_choice_is_the_same() -> None:
    fewer, whole = FakeScores(weak), FakeScores(weak)
    found, expected = pruned(fewer), run_search(whole, None, NINE_TRIALS)
    assert found.chosen.point == expected.chosen.point
    others = [point for point in fewer.asked if point.persona != "strict"]
    assert others
    assert {fewer.groups_asked[point] for point in others} <= {3, 6}
    assert set(found.pruned) >= set(others)
    # Known for all groups, and nothing else, is what may be chosen.
    assert {point for point, groups in fewer.groups_asked.items() if groups == 10} == {o.point for o in found.outcomes}
    assert not {o.point for o in found.outcomes} & set(found.pruned)
    assert {(d.groups, d.total_groups) for d in found.pruned.values()} <= {(3, 10), (6, 10)}
    assert all(dropped.difference_to_best < 0 for dropped in found.pruned.values())


def test_a_debate_that_may_win_after_one_round_is_held_no_longer_on_further_groups() -> None:
    space = replace(SPACE, knowledge=("none",), personas=("strict",), tie_breakers=(False,), granularities=("given",))
    fake = FakeScores(lambda p: {0: 2.0, 1: 0.1}.get(p.rounds, 60.0))
    found = pruned(fake, space=space)
    asked = {point.rounds: groups for point, groups in fake.groups_asked.items()}
    assert asked[0] == asked[1] == 10
    assert asked[2] <= 6 >= asked[3]
    assert found.chosen.point.rounds == 1


def test_of_equal_agreement_what_is_more_expensive_is_pruned() -> None:
    space = SearchSpace(("none",), ("strict",), (0,), (False,), ("given",), readings=("alone", "side by side"))
    for expensive, groups in (("side by side", 3), ("alone", 10)):
        fake = FakeScores(lambda p: 0.0, lambda p, expensive=expensive: 8.0 if p.reading == expensive else 1.0)
        pruned(fake, space=space)
        assert [fake.groups_asked[point] for point in fake.asked] == [10, groups]


def test_a_reading_whose_single_calls_were_pruned_has_no_debates() -> None:
    space = replace(SPACE, readings=("side by side", "alone"), tie_breakers=(False,), granularities=("given",))
    fake = FakeScores(lambda p: 50.0 if p.reading == "alone" else 0.1 * varied_noise(p))
    pruned(fake, space=space, limits=limits_of(9))
    assert {p.rounds for p in fake.asked if p.reading == "alone"} == {0}


def test_pruned_trials_are_stored_with_their_record(tmp_path: Path) -> None:
    reported: dict[Point, TrialOutcome] = {}
    found = pruned(FakeScores(weak), tmp_path / "s.log", on_trial=reported.__setitem__)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "s.log")))
    trials = optuna.load_study(study_name="s", storage=storage).get_trials()
    states = {"pruned": optuna.trial.TrialState.PRUNED, "complete": optuna.trial.TrialState.COMPLETE}
    by_state = {name: [t for t in trials if t.state == state] for name, state in states.items()}
    assert len(by_state["pruned"]) == len(found.pruned) > 0
    assert len(by_state["complete"]) == len(found.outcomes)
    assert [trial.user_attrs for trial in by_state["pruned"]] == [
        {"groups": told.groups, "total_groups": 10, "difference_to_best": told.difference_to_best}
        for told in reported.values()
        if isinstance(told, PrunedPoint)
    ]
    assert {trial.values for trial in by_state["pruned"]} == {None}
    assert list(reported) == [*dict.fromkeys(reported)]
    assert {point for point, told in reported.items() if isinstance(told, PrunedPoint)} == set(found.pruned)


def test_a_point_that_is_best_for_one_aspect_and_weak_for_another_is_not_pruned() -> None:
    """Weak for one aspect and best for the other: it is asked about everything."""
    one, other = FakeScores(lambda p: 50.0 if p.rounds else 0.5), FakeScores(lambda p: 0.1 if p.rounds else 8.0, seed=1)
    other.aspects = (Aspect("b", "?", Scale(1, 6)),)
    units = {"one": cast(ChoiceScores, one), "other": cast(ChoiceScores, other)}
    space = replace(SPACE, personas=("strict",), tie_breakers=(False,))
    found: Mapping[str, SearchResult] = search(units, space, plan(None, limits_of(6), prune=True))
    assert one.groups_asked == other.groups_asked
    assert found["other"].chosen.point.rounds > 0 == found["one"].chosen.point.rounds


# --- what is asked ---


def test_the_order_of_groups_depends_on_the_seed_alone() -> None:
    names = [f"g{i}" for i in range(20)]
    assert shuffled_groups(names, 1) == shuffled_groups(names[::-1] * 2, 1) != shuffled_groups(names, 2)
    assert sorted(shuffled_groups(names, 1)) == sorted(names)


def test_groups_that_were_scored_are_not_scored_again_with_the_others() -> None:
    lm, point = scripted_lm(NOISY), Point("none", "strict", 2, True, "given")
    with JudgeRunner(lm, progress=False) as runner:
        scores = scores_of(runner, ASPECTS)
        some, _ = scores.scores(point, group_ids=["g1"])
        assert {group.group for groups in some.values() for group in groups} == {"g1"}
        assert {section(prompt, "source") for prompt in lm.prompts} == {"Source 1."}
        # Nothing is known for all groups, so that nothing may be read off without asking.
        assert scores.debated_rounds == {}
        first = len(lm.prompts)
        everything, _ = scores.scores(point)
        assert {section(prompt, "source") for prompt in lm.prompts[first:]} == {"Source 0.", "Source 2."}
        assert len(set(lm.prompts)) == len(lm.prompts)
        assert scores.debated_rounds == {JudgeVariant("none", "strict"): 2}
        assert [g for g in everything["clear"] if g.group == "g1"] == some["clear"]
