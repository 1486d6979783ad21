"""Aspects in one call: with whose judges that is tried, and how held-out data are scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from debate_judge.optimize.evaluation.held_out import evaluate_held_out
from debate_judge.optimize.job import _preflight_checks
from debate_judge.optimize.plan import CompileRun
from debate_judge.optimize.search.knowledge import Knowledge
from debate_judge.optimize.search.points import Point
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners.guide import add_guide
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.judge import DebateConfig
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm, section
from tests.optimize.compiles import plan_of
from tests.optimize.joint_space import SPACE, true_rating, units
from tests.programs.tables import joint_table_script, requested_cells, shown_candidates


def guide(aspect: str, folds: Mapping[str, str]) -> Knowledge:
    """A guide, and another one for each train group, which was learnt without it."""

    def giving(text: str) -> Any:
        return lambda judge: add_guide(judge, text)

    made = tuple((giving(f"{aspect} {text}."), frozenset({(aspect, group)})) for group, text in folds.items())
    return Knowledge("guide", giving(f"{aspect} whole."), made)


def test_train_is_judged_by_what_each_aspect_has_learnt_without_the_source() -> None:
    space = replace(SPACE, knowledge=("none", "guide"), rounds=(0, 1), tie_breakers=(False, True))
    kinds = {
        "clear": [guide("clear", {"g0": "first", "g1": "second"})],
        # Of one train source nothing about warm was learnt without it.
        "warm": [guide("warm", {"g0": "first"})],
    }
    lm = scripted_lm(joint_table_script(true_rating, lambda *_: "TOO LOW"))
    at = Point("guide", "strict", 1, True, "given", reading="joint")
    with JudgeRunner(lm, progress=False) as runner:
        made = units(runner, space, kinds, Debate(STRICT, DebateConfig(1), together=8), train=(0, 1))
        scores, calls = made["warm"].scores(at)
        prompts = list(lm.prompts)
        other, _ = made["clear"].scores(at)
        # The other aspect was asked about in the same calls; so was what fewer rounds would have given.
        made["clear"].scores(replace(at, rounds=0, tie_breaker=False))
    assert lm.prompts == prompts
    assert ([g.group for g in scores["warm"]], [g.group for g in other["clear"]]) == (
        ["g2", "g3", "g4", "g5", "g0"],
        ["g2", "g3", "g4", "g5", "g0", "g1"],
    )
    # Opening, review, revision and tie-break of six sources.
    assert len(prompts) == 4 * 6
    told = {
        section(p, "source"): (section(p, "guide_clear"), section(p, "guide_warm"), len(requested_cells(p, "scores")))
        for p in prompts
        if not section(p, "debate")
    }
    assert told["Source 0."] == ("clear first.", "warm first.", 8)
    assert told["Source 4."] == ("clear whole.", "warm whole.", 8)
    assert told["Source 1."] == ("", "", 4)
    one = next(p for p in prompts if section(p, "source") == "Source 1.")
    assert section(one, "standard").endswith("clear second.")
    assert calls == pytest.approx(4 / 8)
    assert all(len(shown_candidates(p)) == 4 for p in prompts)


# --- where it is tried ---


@pytest.mark.parametrize(
    ("settings", "joint", "reading"),
    [
        ({}, True, "side by side"),
        ({"judge": "single"}, True, "side by side"),
        ({"aspects": ("fluency",)}, False, "side by side"),
        ({"joint": True}, False, "joint"),
        ({"joint": True, "together": 4}, False, "joint"),
        ({"together": 4}, False, "side by side"),
        ({"together": 0}, False, "alone"),
        ({"judge_option": ("joint=false",)}, False, "alone"),
        ({"judge": "geval"}, False, "alone"),
        ({"score_mode": "expected"}, False, "alone"),
    ],
    ids=str,
)
def test_it_is_tried_where_the_judge_can_and_the_user_has_not_said_how_it_reads(
    settings: dict[str, Any], joint: bool, reading: str
) -> None:
    found = plan_of(Settings(**settings), {STRICT.name: STRICT.text})
    assert (found.joint_allowed, found.readings[0]) == (joint, reading)
    tried = {(t.judge.together, t.judge.joint) for t in _preflight_checks(found)}
    assert ((16, True) in tried) == joint
    assert len(tried) == len(found.readings) + joint


# --- held-out ---


def test_held_out_is_scored_in_shared_calls_and_no_first_turn_is_made_twice() -> None:
    settings = Settings(aspects=("coherence", "fluency", "relevance"), folds=1)
    plan = plan_of(settings, {STRICT.name: STRICT.text})
    sources = len(plan.data.splits.held_out.groups)

    def judge(rounds: int, text: str) -> AspectJudge:
        return AspectJudge(add_guide(Debate(STRICT, DebateConfig(rounds), together=8, joint=True), text), "half")

    # Two of three go together.
    own = {"coherence": judge(1, "One."), "fluency": judge(1, "Two."), "relevance": judge(0, "Three.")}
    lm = make_lm("offline")
    with JudgeRunner(lm, progress=False) as runner:
        run = CompileRun(plan, runner, None, cast(Any, None), lm)
        found = evaluate_held_out(without_debate(run), CompiledJudge(plan.data.corpus.task, own), {}).judgements
    assert {granularity for _, granularity in found["compiled"].values()} == {"half"}
    shapes = {a: {j.transcript.joint for j in judgements} for a, (judgements, _) in found["compiled"].items()}
    assert shapes == {"coherence": {2}, "fluency": {2}, "relevance": {1}}
    # Three aspects of eight candidates alone; the uncompiled judge is the same here; two tables of each source.
    assert lm.meter.executed["scorer"] == sources * (3 * 8 + 1 + 1 + 1)
    assert lm.meter.executed["critic"] == sources


def without_debate(run: CompileRun) -> CompileRun:
    """The run with a single call for the uncompiled judge, so that its debates do not count."""
    settings = replace(run.plan.settings, together=0)
    return replace(run, plan=replace(run.plan, settings=settings, judge=run.plan.single))
