"""Several aspects in one call: who is asked about which cells, what is read of a reply, and what it costs."""

from __future__ import annotations

import re

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs import preset
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Judgement, Verdict
from tests.fakes import Script, requested, section
from tests.programs.joint_cells import HONEST, THREE, TRUE, WORTH, limited, name_of, true
from tests.programs.tables import (
    joint_judge,
    joint_reading,
    judged,
    part,
    shown,
    table_judge,
    values,
    wanted_cells,
)


def shapes(judgements: list[Judgement]) -> set[tuple[float, int, int]]:
    """Calls, candidates and aspects of each judgement."""
    return {(round(j.calls, 9), j.transcript.together, j.transcript.joint) for j in judgements}


def test_one_call_scores_all_candidates_in_all_aspects() -> None:
    judgements, lm = judged(joint_judge(), HONEST, THREE)
    assert values(judgements) == TRUE
    (prompt,) = lm.prompts
    assert sorted(shown(prompt).values()) == ["one", "three", "two"]
    assert shapes(judgements) == {(round(1 / 6, 9), 3, 2)}
    assert judgements[1].transcript.turns[0].text == "coherence of:\ntwo\nso."
    assert judgements[4].transcript.turns[0].text == "plain_style of:\ntwo\nso."
    assert not re.search("Critic|Tie-breaker", prompt)
    # Candidates are held against each other aspect by aspect.
    order = [name.split("_", 2)[2] for name in wanted_cells(prompt, "scores")]
    assert order == ["coherence"] * 3 + ["plain_style"] * 3


@pytest.mark.parametrize("rounds", [0, 1])
def test_asked_about_one_aspect_it_is_the_judge_that_it_would_be_otherwise(rounds: int) -> None:
    script = joint_reading(lambda prompt, text, aspect: WORTH[text], lambda *_: "TOO LOW")
    coherence = THREE[:3]
    for together in (0, 4):
        joint, prompts = judged(joint_judge(rounds, together=together), _or_alone(script), coherence)
        other, expected = judged(table_judge(rounds, together=together), _or_alone(script), coherence)
        assert sorted(prompts.prompts) == sorted(expected.prompts)
        assert joint == other


def _or_alone(script: Script) -> Script:
    """`script`, and an LM that scores the first candidate of all that it is asked about one alone."""

    def alone(prompt: str) -> str:
        if "decision" in requested(prompt):
            return "\n\n".join([part("review", "Well."), part("decision", "ISSUE"), part("feedback", "It is.")])
        return f"{part('rationale', 'So.')}\n\n{part('score', WORTH[section(prompt, 'candidate')])}"

    return lambda prompt: alone(prompt) if section(prompt, "candidate") else script(prompt)


# --- the debate ---


def test_only_disputed_cells_are_revised_and_debated_further() -> None:
    def score(prompt: str, text: str, aspect: str) -> float:
        return true(prompt, text, aspect) + (0.5 if section(prompt, "debate") else 0)

    def issues(prompt: str, text: str, aspect: str) -> str | None:
        later = "Critic, round 1" in section(prompt, "debate")
        return "TOO LOW" if text == "two" and (aspect == "coherence" or not later) else None

    judgements, lm = judged(joint_judge(2, tie_breaker=True), joint_reading(score, issues), THREE)
    assert values(judgements) == [1, 2.5, 3, 10, 9.5, 8]
    reasons = [(j.rounds, j.stop_reason) for j in judgements if isinstance(j, Verdict)]
    assert reasons == [(1, "no issue"), (2, "tie-breaker"), *[(1, "no issue")] * 2, (2, "no issue"), (1, "no issue")]
    first = lm.prompts[0]
    both = [name_of(first, "two", aspect) for aspect in ("coherence", "plain_style")]
    # In a revision the scores of every disputed aspect are given anew, those that nobody disputes too.
    assert len(wanted_cells(lm.prompts[2], "scores")) == 6
    assert {name.split("_", 2)[2] for name in wanted_cells(lm.prompts[4], "scores")} == {"coherence"}
    assert wanted_cells(lm.prompts[3], "decisions") == both
    assert wanted_cells(lm.prompts[5], "final_scores") == both[:1]
    assert len(lm.prompts) == 6
    # Opening and review 1/6 each; revision and second review 1/2; then one cell alone: 1 and 1.
    assert [round(j.calls, 9) for j in judgements] == [round(x, 9) for x in (1 / 3, 10 / 3, 1 / 3, 1 / 3, 4 / 3, 1 / 3)]
    told = section(lm.prompts[3], "debate").split("\n")
    assert f"{both[1]}: Critic, round 1: Too low. It says two" in told


# --- cells ---


def test_candidates_need_not_be_asked_about_in_the_same_aspects() -> None:
    ragged = [*THREE[:3], THREE[4]]
    judgements, lm = judged(joint_judge(), HONEST, ragged)
    assert values(judgements) == [1, 2, 3, 9]
    (prompt,) = lm.prompts
    assert len(wanted_cells(prompt, "scores")) == 4
    assert {j.calls for j in judgements} == {0.25}
    cut, lm = judged(joint_judge(), limited(2), ragged)
    assert values(cut) == [1, 2, 3, 9]
    assert sum(j.calls for j in cut) == pytest.approx(len(lm.prompts))


# --- the judge ---


def test_what_cannot_be_read_jointly_is_refused() -> None:
    for options in ({"joint": True, "score_mode": "expected"}, {"joint": 1}, {"joint": "yes"}):
        with pytest.raises(InputError, match="joint"):
            preset("debate", options)


def test_the_configuration_holds_it_and_variants_and_exports_have_it() -> None:
    judge = preset("debate", {"joint": True, "together": 4, "order": 2})
    assert isinstance(judge, Debate)
    assert {(v.joint, v.together, v.order) for v in judge.variants({"a": "A.", "b": "B."}).values()} == {(True, 4, 2)}
    assert Debate.from_config(judge.config()).joint
    assert not Debate.from_config({k: v for k, v in judge.config().items() if k != "joint"}).joint
