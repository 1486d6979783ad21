"""Racing: who is dropped after how many groups, by which chance, and that a stop changes nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import optuna
import pytest
from scipy import stats

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import Aspect, Scale
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import Dropped, SearchResult
from debate_judge.optimize.search.points import JudgeVariant, Point, Space
from debate_judge.optimize.search.race import WORTH_IT, block_ends, expected_gains, race_order
from debate_judge.optimize.search.storage import Found
from debate_judge.optimize.search.study import search
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm, section
from tests.optimize.moody_judges import ASPECTS, MOODY, scores_of
from tests.optimize.searches import BROAD, SPACE, Fake, breadth, group, plan, run, varied

pytestmark = pytest.mark.usefixtures("remembered_sampler")

# --- blocks ---


def test_blocks_begin_small_and_double() -> None:
    assert block_ends(14, "summary") == [3, 6, 12, 14]
    assert block_ends(3, "summary") == [3]
    assert block_ends(2, "summary") == [2]
    assert block_ends(130, "sample") == [50, 100, 130]


def test_the_order_of_groups_is_that_of_the_seed_and_of_no_list() -> None:
    names = [f"g{i}" for i in range(20)]
    shuffled = random.Random(0).sample(names, 20)
    assert race_order(names, 1) == race_order(shuffled * 2, 1)
    assert race_order(names, 1) != race_order(names, 2)
    assert sorted(race_order(names, 1)) == sorted(names)


# --- what can be expected ---

APART = np.array([[1e6]])
"""Points that differ so much that the prior says nothing."""


def gain(differences: list[float], asked: float, spread: Any = APART, ahead: float = 0.0) -> float:
    return expected_gains([np.array(differences)], asked, spread, [[0]], [ahead])[0]


def test_without_a_prior_the_gain_is_that_of_a_t_distribution_around_the_mean_so_far() -> None:
    """The mean over all G groups given k of them has the variance s^2 (G - k) / (k G)."""
    differences, k, total = [-0.3, -0.1, -0.25, 0.05], 4, 16
    deviation = np.std(differences, ddof=1) * math.sqrt((total - k) / (k * total))
    draws = np.mean(differences) + deviation * stats.t.rvs(k - 1, size=400_000, random_state=0)
    assert gain(differences, k / total) == pytest.approx(np.clip(draws, 0, None).mean(), rel=0.02)


def test_the_less_points_differ_the_less_can_be_expected() -> None:
    found = [gain([-0.3, -0.1, -0.25], 0.2, np.array([[spread]])) for spread in (1.0, 0.1, 0.01)]
    assert found == sorted(found, reverse=True)
    # That few points are known, and these alike, does not mean that all are.
    assert gain([0.3, 0.1, 0.25], 0.2, np.array([[1e-9]])) > 0.02


def test_what_is_known_of_other_aspects_counts() -> None:
    rng = np.random.default_rng(0)
    bad = [rng.normal(-0.2, 0.1, 3) for _ in range(4)]
    together, each = np.full((4, 4), 0.02) + 0.001 * np.eye(4), [[i] for i in range(4)]
    alone = expected_gains([bad[0], *(np.array([]) for _ in range(3))], 0.2, together, each, [0.0] * 4)
    assert expected_gains(bad, 0.2, together, each, [0.0] * 4)[0] < alone[0]


def test_one_group_is_no_reason_and_equal_scores_are_worth_their_price() -> None:
    assert gain([-0.9], 0.1) == math.inf
    assert gain([0.0, 0.0, 0.0], 0.3) == 0.0
    assert gain([0.0, 0.0, 0.0], 0.3, ahead=-0.005) == pytest.approx(0.005)


def test_equal_agreement_by_different_scores_is_no_certainty() -> None:
    found = [expected_gains([np.zeros(k)], k / 40, APART, [[0]], [0.0], 1.0 / (k + 2))[0] for k in (3, 6, 12)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > WORTH_IT
    # Differences that vary tell their noise themselves.
    assert expected_gains([np.array([0.0, 0.0, 0.5])], 0.1, APART, [[0]], [0.0], 9.0)[0] == gain([0.0, 0.0, 0.5], 0.1)


def test_dropping_costs_little_and_drops_the_weak() -> None:
    """400 races over 12 groups in four aspects, with noise as it is between two judges."""
    rng = np.random.default_rng(1)
    spread, each = np.full((4, 4), 0.005) + 0.005 * np.eye(4), [[i] for i in range(4)]

    def dropped(found: Any) -> bool:
        return any(
            np.mean(expected_gains(list(found[:, :k]), k / 12, spread, each, [0.0] * 4)) < WORTH_IT for k in (3, 6)
        )

    lost = []
    for _ in range(400):
        truth = rng.normal(0, 0.1) + rng.normal(0, 0.1, 4)
        found = truth[:, None] + rng.normal(0.0, 0.2, (4, 12))
        lost.append(np.clip(found.mean(axis=1), 0, None).mean() * dropped(found))
    assert np.mean(lost) < WORTH_IT
    assert np.mean([dropped(rng.normal(-0.25, 0.2, (4, 12))) for _ in range(200)]) > 0.8
    assert np.mean([dropped(rng.normal(0.0, 0.2, (4, 12))) for _ in range(200)]) < 0.2


# --- in a search ---


def weak(point: Point) -> float:
    """The guide is good; without it, and with other personas, everything is noise."""
    return 0.2 if point.knowledge == "guide" and point.persona == "strict" else 50.0


def raced(fake: Fake, storage: Path | None = None, **options: Any) -> SearchResult:
    return run(fake, storage, options.pop("broad", BROAD), race=True, **options)


def test_a_weak_challenger_costs_a_few_groups_and_the_choice_is_the_same() -> None:
    racing, whole = Fake(weak), Fake(weak)
    found, expected = raced(racing), run(whole, None, BROAD)
    assert found.chosen.point == expected.chosen.point
    others = [point for point in racing.asked if point.persona != "strict"]
    assert others
    assert {racing.blocks[point] for point in others} <= {3, 6}
    assert 3 in racing.blocks.values()
    assert set(found.dropped) >= set(others)
    # Known for all groups, and nothing else, is what may be chosen.
    assert {point for point, groups in racing.blocks.items() if groups == 10} == {o.point for o in found.outcomes}
    assert not {o.point for o in found.outcomes} & set(found.dropped)
    assert {(d.groups, d.of) for d in found.dropped.values()} <= {(3, 10), (6, 10)}
    assert all(d.behind["a"] < 0 for point, d in found.dropped.items() if point in others)


def test_the_judge_as_it_comes_is_asked_about_everything_however_weak() -> None:
    found = raced(Fake(weak))
    assert Point("none", "strict", 0, False, "given") in {o.point for o in found.outcomes}


def test_a_debate_that_may_win_after_one_round_is_held_no_longer_on_further_groups() -> None:
    space = replace(SPACE, knowledge=("none",), personas=("strict",), tie_breakers=(False,), granularities=("given",))
    fake = Fake(lambda p: {0: 2.0, 1: 0.1}.get(p.rounds, 60.0))
    found = raced(fake, space=space)
    asked = {point.rounds: groups for point, groups in fake.blocks.items()}
    assert asked[0] == asked[1] == 10
    assert asked[2] <= 6 >= asked[3]
    assert found.chosen.point.rounds == 1


def test_dearer_and_alike_is_dropped_and_cheaper_and_alike_is_not() -> None:
    space = Space(("none",), ("strict",), (0,), (False,), ("given",), readings=("alone", "side by side"))
    for dear, groups in (("side by side", 3), ("alone", 10)):
        fake = Fake(lambda p: 0.0, lambda p, dear=dear: 8.0 if p.reading == dear else 1.0)
        raced(fake, space=space)
        assert [fake.blocks[point] for point in fake.asked] == [10, groups]


def test_a_single_call_that_lost_its_race_is_not_debated_in_that_reading() -> None:
    space = replace(SPACE, readings=("side by side", "alone"), tie_breakers=(False,), granularities=("given",))
    fake = Fake(lambda p: 50.0 if p.reading == "alone" else 0.1 * varied(p))
    raced(fake, space=space, broad=breadth(9))
    assert {p.rounds for p in fake.asked if p.reading == "alone"} == {0}


def test_pruned_trials_stand_in_the_study_with_what_they_cost(tmp_path: Path) -> None:
    reported: dict[Point, Found] = {}
    found = raced(Fake(weak), tmp_path / "s.log", on_trial=reported.__setitem__)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "s.log")))
    trials = optuna.load_study(study_name="s", storage=storage).get_trials()
    states = {"pruned": optuna.trial.TrialState.PRUNED, "complete": optuna.trial.TrialState.COMPLETE}
    by_state = {name: [t for t in trials if t.state == state] for name, state in states.items()}
    assert len(by_state["pruned"]) == len(found.dropped) > 0
    assert len(by_state["complete"]) == len(found.outcomes)
    assert [trial.user_attrs for trial in by_state["pruned"]] == [
        {"groups": told.groups, "of": 10, "behind": dict(told.behind)}
        for told in reported.values()
        if isinstance(told, Dropped)
    ]
    assert {trial.values for trial in by_state["pruned"]} == {None}
    assert list(reported) == [*dict.fromkeys(reported)]
    assert {point for point, told in reported.items() if isinstance(told, Dropped)} == set(found.dropped)


def told(found: SearchResult) -> tuple[Any, ...]:
    return found.chosen.point, [(o.point, o.agreement) for o in found.outcomes], dict(found.dropped)


@pytest.mark.parametrize("stop", [1, 5, 9, 14, 23, 31, 40, 47])
def test_a_race_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path, stop: int) -> None:
    straight = raced(Fake(varied), tmp_path / "straight.log")
    assert straight.dropped
    with pytest.raises(KeyboardInterrupt):
        raced(Fake(varied, stop_at=stop), tmp_path / "stopped.log")
    assert told(raced(Fake(varied), tmp_path / "stopped.log")) == told(straight)
    assert told(raced(Fake(varied), tmp_path / "stopped.log")) == told(straight)


def test_all_units_are_raced_together_and_one_that_may_win_keeps_the_point() -> None:
    """Weak for one aspect and best for the other: it is asked about everything."""
    one, other = Fake(lambda p: 50.0 if p.rounds else 0.5), Fake(lambda p: 0.1 if p.rounds else 8.0, seed=1)
    other.aspects = (Aspect("b", "?", Scale(1, 6)),)
    units = {"one": cast(ChoiceScores, one), "other": cast(ChoiceScores, other)}
    space = replace(SPACE, personas=("strict",), tie_breakers=(False,))
    found: Mapping[str, SearchResult] = search(units, space, plan(None, breadth(6), race=True))
    assert one.blocks == other.blocks
    assert found["other"].chosen.point.rounds > 0 == found["one"].chosen.point.rounds


class Pairs(Fake):
    """40 sources of two candidates each, so that a source agrees wholly or not at all. The single call is right but for
    the last 8 sources in the order of a race, and a debate is right everywhere, with other scores if `moved`."""

    def __init__(self, moved: float) -> None:
        super().__init__(lambda point: 0.0)
        self.moved = moved
        self.groups = race_order((str(i) for i in range(40)), 0)

    def scores(
        self, point: Point, parts: object = None, only: Collection[str] | None = None
    ) -> tuple[dict[str, list[GroupScores]], float]:
        names = [name for name in self.groups if only is None or name in only]
        self.blocks[point] = max(self.blocks.get(point, 0), len(names))
        found = []
        for name in names:
            right = point.rounds > 0 or name in self.groups[:32]
            better = (self.moved if point.rounds else 0.0) + (3.0 if right else 1.0)
            found.append(group(name, (1.0, 2.0), (2.0, better)))
        return {"a": found}, self.calls(point)


@pytest.mark.parametrize(("moved", "asked"), [(0.5, 40), (0.0, 12)])
def test_of_two_candidates_equal_ranks_say_little_and_equal_scores_of_24_texts_much(moved: float, asked: int) -> None:
    fake = Pairs(moved)
    space = Space(("none",), ("strict",), (0, 1), (False,))
    found = run(fake, None, breadth(4), space=space, race=True)
    assert fake.blocks[Point("none", "strict", 1, False, "given")] == asked
    assert (found.chosen.point.rounds > 0) == (asked == 40)


# --- what is asked ---


def test_a_part_of_the_groups_is_asked_about_and_then_the_rest_alone() -> None:
    lm, point = scripted_lm(MOODY), Point("none", "strict", 2, True, "given")
    with JudgeRunner(lm, progress=False) as runner:
        scores = scores_of(runner, ASPECTS)
        some, _ = scores.scores(point, only=["g1"])
        assert {group.group for groups in some.values() for group in groups} == {"g1"}
        assert {section(prompt, "source") for prompt in lm.prompts} == {"Source 1."}
        # Nothing is known for all groups, so that nothing may be read off without asking.
        assert scores.held == {}
        first = len(lm.prompts)
        everything, _ = scores.scores(point)
        assert {section(prompt, "source") for prompt in lm.prompts[first:]} == {"Source 0.", "Source 2."}
        assert len(set(lm.prompts)) == len(lm.prompts)
        assert scores.held == {JudgeVariant("none", "strict"): 2}
        assert [g for g in everything["clear"] if g.group == "g1"] == some["clear"]
