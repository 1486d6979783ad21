"""A Critic that scores blind: its score is one more call, and only items with a distant score are debated."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Literal

import pytest

from debate_judge.programs import build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge, shared_judges
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import BLIND
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.evaluation.entrants import entrants, named_judges
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.declaration import split_commas
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, hold, scripted_lm, section
from tests.programs.debates import (
    COHERENCE,
    TASK,
    debates_shown,
    issue_reply,
    judged,
    no_issue_reply,
    score_reply,
    tie_break_reply,
)
from tests.programs.tables import items, requested_candidates, shown_candidates, table_script, values

SECRET = "The end is odd."
"""The blind Critic's reasons, which no other role may see."""


def test_a_blind_score_close_to_the_scorers_ends_the_debate() -> None:
    judgement, lm = judged(Debate("blind", rounds=3, tie_breaker=True), score_reply(4), score_reply(3.8, SECRET))
    assert (judgement.score, judgement.rounds, judgement.stop_reason, judgement.calls) == (4, 1, "no issue", 2)
    assert judgement.reason == "Because."
    single, blind = lm.prompts
    # The same prompt but for the last section, so that a provider's cache serves it.
    assert single.partition("[[ ## role ## ]]")[0] == blind.partition("[[ ## role ## ]]")[0]
    assert "before you have seen any score" in section(blind, "role")


def test_the_tie_breaker_reads_no_blind_score() -> None:
    replies = [score_reply(4), score_reply(3, SECRET), issue_reply(), score_reply(4), tie_break_reply(3.5)]
    judgement, lm = judged(Debate("blind", rounds=1, tie_breaker=True), *replies)
    assert (judgement.score, judgement.stop_reason) == (3.5, "tie-breaker")
    assert SECRET not in debates_shown(lm)[-1]


def test_a_distant_blind_score_starts_a_debate_and_stays_hidden() -> None:
    replies = [
        score_reply(4),
        score_reply(3, SECRET),
        issue_reply('Too high: "Roads".'),
        score_reply(3.5, "Granted."),
        no_issue_reply(),
    ]
    judgement, lm = judged(Debate("blind", rounds=2), *replies)
    assert (judgement.score, judgement.rounds, judgement.stop_reason, judgement.calls) == (3.5, 2, "no issue", 5)
    said = debates_shown(lm)
    assert [SECRET in text for text in said] == [False, False, True, False, True]
    assert "Blind critic, round 1, score 3" in said[2]
    assert "score 3:" not in said[3]
    assert "withheld from the Scorer on purpose" in lm.prompts[3]
    assert "at least 0.25 apart" in lm.prompts[2]


@pytest.mark.parametrize(
    ("persona", "blind", "debated"),
    [
        ("blind", 3.8, False), ("blind", 3.75, True), ("blind-half", 3.6, False), ("blind-half", 4.5, True),
        ("blind-every", 4, True), ("second-reading", 1, False),
    ],
)  # fmt: skip
def test_the_distance_decides(persona: str, blind: float, debated: bool) -> None:
    judgement, lm = judged(Debate(persona, rounds=1), score_reply(4), score_reply(blind), no_issue_reply())
    assert len(lm.prompts) == 2 + debated
    assert judgement.score == ((4 + blind) / 2 if persona == "second-reading" else 4)


def far_about(far: str, blind: float) -> ScriptedLM:
    """Everything is a 4, and for the blind Critic what has this text is another score; the Critic disputes all."""

    def score(prompt: str, text: str) -> float:
        if "before you have seen any score" in prompt:
            return blind if text == far else 4
        return 3 if section(prompt, "debate") else 4

    return scripted_lm(table_script(score, lambda prompt, text: "TOO HIGH"))


def test_in_a_table_only_items_with_distant_blind_scores_are_debated() -> None:
    lm = far_about("two", 2)
    found = hold(lm, Debate("blind", rounds=1, together=8).judge(items("one", "two", "three")))
    assert values(found) == [4, 3, 4]
    assert [judgement.calls for judgement in found] == [2 / 3, 2 / 3 + 2, 2 / 3]
    opening, blind, review, revision = lm.prompts
    assert shown_candidates(opening) == shown_candidates(blind) == shown_candidates(review)
    assert requested_candidates(review, "decisions") == requested_candidates(revision, "scores") == [2]
    assert section(blind, "debate") == ""


def test_the_distance_is_exported_and_calls_are_shared_only_at_equal_distances() -> None:
    for name, persona in BLIND.items():
        judge = build("debate", Debate(name, rounds=1, together=4).config())
        assert isinstance(judge, Debate)
        assert (judge.persona, judge.critic.signature.instructions) == (persona, persona.text)
    half, every = Debate("blind-half", rounds=1, joint=True), Debate("blind-every", rounds=1, joint=True)
    assert len(shared_judges({"a": half, "b": Debate("blind-half", rounds=1, joint=True)})) == 1
    assert len(shared_judges({"a": half, "b": every})) == 2
    assert BLIND["second-reading"].gap == inf


def test_a_comparison_takes_personas_by_name(tmp_path: Path) -> None:
    found = judges_of("debate[rounds=1,persona=blind|second-reading|plain]")
    assert [(one.persona.name, one.persona.gap) for one in found] == [
        ("blind", 0.25), ("second-reading", inf), ("plain", None),
    ]  # fmt: skip
    export = save(
        tmp_path / "export",
        CompiledJudge(TASK, {"coherence": AspectJudge(found[0])}),
        lm={"spec": "offline"}, evidence={}, name="x",
    )  # fmt: skip
    again = judges_of(f"{export},{export}[persona=plain],{export}[persona=blind-half]")
    assert [one.persona.gap for one in again] == [0.25, None, 0.5]


def judges_of(named: str) -> list[Debate]:
    found = []
    for one in entrants(named_judges(split_commas(named)), [COHERENCE]):
        judge = one.aspects["coherence"].judge
        assert isinstance(judge, Debate)
        found.append(judge)
    return found


@pytest.mark.parametrize(("name", "calls"), [("lower", 2), ("upper", 6)])
def test_an_estimate_knows_its_bounds(name: Literal["lower", "upper"], calls: int) -> None:
    lm = make_lm("offline", engine=DryRunEngine(EstimateCase(name, 80)))
    with JudgeRunner(lm, progress=False) as runner:
        for judge in (Debate("blind", rounds=2), Debate("blind", rounds=2, together=4)):
            found = runner.judge(judge, items("One thing.", "And another thing.")[: 1 + (judge.together > 0)])
            assert sum(judgement.calls for judgement in found) == pytest.approx(calls)
