"""What is asked of the judges: groups until a point is pruned, none of them twice, and scores as a judge gives them."""

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
from debate_judge.programs.judge import Verdict, corpus_items
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm, section
from tests.optimize.noisy_judges import ASPECTS, CORPUS, NOISY, scores_of, variants
from tests.optimize.searches import (
    NINE_TRIALS,
    SPACE,
    FakeScores,
    limits_of,
    plan,
    run_search,
    search,
    stored_trials,
)  # fmt: skip


def weak(point: Point) -> float:
    """The guide is good; without it, and with other personas, everything is noise."""
    return 0.2 if point.knowledge == "guide" and point.persona == "strict" else 50.0


def pruned(fake: FakeScores, storage: Path | None = None, **options: Any) -> SearchResult:
    return run_search(fake, storage, NINE_TRIALS, prune=True, **options)


def test_weak_points_are_pruned_after_a_few_groups_and_the_choice_is_the_same() -> None:
    fewer, whole = FakeScores(weak), FakeScores(weak)
    result, expected = pruned(fewer), run_search(whole, None, NINE_TRIALS)
    assert result.chosen.point == expected.chosen.point
    others = [point for point in fewer.asked if point.persona != "strict"]
    assert others
    assert {fewer.groups_asked[point] for point in others} <= {3, 6}
    assert set(result.pruned) >= set(others)
    # Known for all groups, and nothing else, is what may be chosen.
    assert {point for point, groups in fewer.groups_asked.items() if groups == 10} == {o.point for o in result.outcomes}
    assert not {o.point for o in result.outcomes} & set(result.pruned)
    assert {(d.groups, d.total_groups) for d in result.pruned.values()} <= {(3, 10), (6, 10)}
    assert all(dropped.difference_to_best < 0 for dropped in result.pruned.values())


def test_a_debate_that_may_win_after_one_round_is_held_no_longer_on_further_groups() -> None:
    space = replace(SPACE, knowledge=("none",), personas=("strict",), tie_breakers=(False,), granularities=("given",))
    fake = FakeScores(lambda p: {0: 2.0, 1: 0.1}.get(p.rounds, 60.0))
    assert pruned(fake, space=space).chosen.point.rounds == 1
    groups_by_rounds = {point.rounds: groups for point, groups in fake.groups_asked.items()}
    assert groups_by_rounds[0] == groups_by_rounds[1] == 10
    assert groups_by_rounds[2] <= 6 >= groups_by_rounds[3]


def test_pruned_trials_are_stored_with_their_record(tmp_path: Path) -> None:
    reported: dict[Point, TrialOutcome] = {}
    result = pruned(FakeScores(weak), tmp_path / "s.log", on_trial=reported.__setitem__)
    dropped = {point: outcome for point, outcome in reported.items() if isinstance(outcome, PrunedPoint)}
    assert set(dropped) == set(result.pruned)
    trials = stored_trials(tmp_path / "s.log", optuna.trial.TrialState.PRUNED)
    assert [trial.user_attrs for trial in trials] == [
        {"groups": outcome.groups, "total_groups": 10, "difference_to_best": outcome.difference_to_best}
        for outcome in dropped.values()
    ]
    assert {trial.values for trial in trials} == {None}
    assert len(stored_trials(tmp_path / "s.log", optuna.trial.TrialState.COMPLETE)) == len(result.outcomes)


def test_a_point_that_is_best_for_one_aspect_and_weak_for_another_is_not_pruned() -> None:
    first = FakeScores(lambda p: 50.0 if p.rounds else 0.5)
    second = FakeScores(lambda p: 0.1 if p.rounds else 8.0, seed=1)
    second.aspects = (Aspect("b", "?", Scale(1, 6)),)
    units = {"one": cast(ChoiceScores, first), "other": cast(ChoiceScores, second)}
    space = replace(SPACE, personas=("strict",), tie_breakers=(False,))
    results: Mapping[str, SearchResult] = search(units, space, plan(None, limits_of(6), prune=True))
    assert first.groups_asked == second.groups_asked
    assert results["other"].chosen.point.rounds > 0 == results["one"].chosen.point.rounds


# --- scores of judges ---


def test_scores_of_a_point_are_those_of_its_judge_and_no_longer_debate_is_asked_again() -> None:
    space, lm = SearchSpace(("none",), ("strict", "plain"), (0, 1, 2), (False, True)), scripted_lm(NOISY)
    with JudgeRunner(lm, progress=False) as runner, JudgeRunner(scripted_lm(NOISY), progress=False) as fresh:
        scores = scores_of(runner, ASPECTS[:1])
        for point in reversed(space.points()):
            by_aspect, calls = scores.scores(point)
            judge = variants()[point.persona].with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
            judgements = fresh.judge(judge, corpus_items(CORPUS, ASPECTS[0]))
            assert calls == sum(j.calls for j in judgements) / len(judgements)
            scale = ASPECTS[0].scale
            expected = [scale.rounded(j.score, point.granularity) for j in judgements if isinstance(j, Verdict)]
            assert [s for g in by_aspect["clear"] for s in g.scores] == expected
    # Each call once, however many points are derived from it.
    assert lm.meter.requested.total() < 1.5 * len(lm.prompts)


def test_a_fixed_granularity_overrides_that_of_the_point() -> None:
    whole, given = (Point("none", "strict", 0, False, granularity) for granularity in ("whole", "given"))
    with JudgeRunner(scripted_lm(NOISY), progress=False) as runner:
        scores = scores_of(runner, ASPECTS, sound="given")
        assert scores.scores(whole)[0]["sound"] == scores.scores(given)[0]["sound"]
        assert scores.scores(whole)[0]["clear"] != scores.scores(given)[0]["clear"]


def test_groups_that_were_scored_are_not_scored_again_with_the_others() -> None:
    lm, point = scripted_lm(NOISY), Point("none", "strict", 2, True, "given")
    with JudgeRunner(lm, progress=False) as runner:
        scores = scores_of(runner, ASPECTS)
        some, _ = scores.scores(point, group_ids=["g1"])
        assert {section(prompt, "source") for prompt in lm.prompts} == {"Source 1."}
        # Nothing is known for all groups, so that nothing may be read off without asking.
        assert scores.debated_rounds == {}
        first = len(lm.prompts)
        everything, _ = scores.scores(point)
        assert {section(prompt, "source") for prompt in lm.prompts[first:]} == {"Source 0.", "Source 2."}
        assert scores.debated_rounds == {JudgeVariant("none", "strict"): 2}
        assert [g for g in everything["clear"] if g.group == "g1"] == some["clear"]
