"""What a search may choose, what it costs to read, and who judges the sources that something was learnt from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.points import Point, SearchSpace
from debate_judge.programs.judge import corpus_items
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm
from tests.optimize.noisy_judges import ASPECTS, CORPUS, NOISY, scores_of, variants
from tests.programs.debates import is_open

# --- what may be chosen ---


def every(space: SearchSpace, scores: ChoiceScores) -> Iterable[tuple[Point, Any]]:
    return ((point, scores.scores(point)) for point in reversed(space.points()))


def test_all_points_are_derived_from_one_debate_per_variant_and_one_tie_break_per_n() -> None:
    space, lm = SearchSpace(("none",), ("strict", "plain"), (0, 1, 2, 3), (False, True)), scripted_lm(NOISY)
    with JudgeRunner(lm, progress=False) as runner:
        for _, (scores, calls) in every(space, scores_of(runner, ASPECTS)):
            assert set(scores) == {"clear", "sound"}
            assert [len(groups) for groups in scores.values()] == [3, 3]
            assert calls >= 1
        debates, ties = 0, 0
        items = [item for aspect in ASPECTS for item in corpus_items(CORPUS, aspect)]
        for judge in variants().values():
            transcripts = runner.converse(judge, items, 3)
            debates += sum(t.calls for t in transcripts)
            ties += sum(is_open(t.until(n)) for t in transcripts for n in (1, 2, 3))
    assert ties > 10
    # Both variants open with the same question to the same Scorer: it is paid once.
    shared = 24
    assert len(lm.prompts) == len(set(lm.prompts)) == debates - shared + ties
    # And nothing is even asked twice by the readings themselves: what was asked beyond is this test's own.
    assert lm.meter.requested.total() == 2 * debates + ties


def test_scores_of_a_point_are_those_of_its_judge() -> None:
    space = SearchSpace(("none",), ("strict", "plain"), (0, 1, 2), (False, True))
    with (
        JudgeRunner(scripted_lm(NOISY), progress=False) as runner,
        JudgeRunner(scripted_lm(NOISY), progress=False) as fresh,
    ):
        for point, (scores, calls) in every(space, scores_of(runner, ASPECTS[:1])):
            judge = variants()[point.persona].with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
            judgements = fresh.judge(judge, corpus_items(CORPUS, ASPECTS[0]))
            assert calls == sum(j.calls for j in judgements) / 12
            reported = [ASPECTS[0].scale.rounded(j.score, point.granularity) for j in judgements if hasattr(j, "score")]
            assert [s for g in scores["clear"] for s in g.scores] == reported


def test_a_fixed_granularity_overrides_that_of_the_point() -> None:
    whole, given = (Point("none", "strict", 0, False, g) for g in ("whole", "given"))
    with JudgeRunner(scripted_lm(NOISY), progress=False) as runner:
        scores = scores_of(runner, ASPECTS, fixed_granularities={"sound": "given"})
        assert scores.scores(whole)[0]["sound"] == scores.scores(given)[0]["sound"]
        assert scores.scores(whole)[0]["clear"] != scores.scores(given)[0]["clear"]
        kept = scores_of(runner, ASPECTS, fixed_granularities={"sound": "whole"})
        assert kept.scores(given)[0]["sound"] == scores_of(runner, ASPECTS).scores(whole)[0]["sound"]


# --- who judges train ---
