"""ChatEval's figures: samples and their average, the number of turns, and agents that fail."""

from __future__ import annotations

import pytest

from debate_judge.programs.chateval.judge import ChatEval
from debate_judge.programs.judge import Unscored, Verdict
from debate_judge.programs.transcript import Transcript
from tests.fakes import ScriptedLM, debater, in_turn, only, scripted_lm, section, settings_seen
from tests.programs.chateval_talks import ITEM, ROLES, numbered, run, speaker


def test_the_final_score_is_the_average_of_the_latest_scores() -> None:
    judge = ChatEval(ROLES, "simultaneous", turns=2)
    transcript = run(numbered(), only(judge.converse([ITEM], 1)))
    # Turn 1: 1, 2, 3. Turn 2: 2, 3, 4.
    assert judge.verdict(transcript, 1) == Verdict(3.0, 1, "rounds over", 6, transcript)
    first = judge.verdict(transcript.until(0), 0)
    assert isinstance(first, Verdict)
    assert (first.score, first.rounds, first.calls) == (2.0, 0, 3)


@pytest.mark.parametrize("communication", ["one-by-one", "one-by-one-printed", "simultaneous", "summarizer"])
def test_a_talk_holds_every_shorter_talk(communication: str) -> None:
    judge = ChatEval(ROLES, communication)
    longer: Transcript = run(numbered(), only(judge.converse([ITEM], 2)))
    for rounds in (0, 1):
        assert run(numbered(), only(judge.converse([ITEM], rounds))) == longer.until(rounds)


def test_multiple_evidence_averages_samples_of_its_own_for_each_referee(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [f'{{"rationale": "evidence {n}", "score": {score}}}' for n, score in enumerate((1, 2, 4, 5))]
    lm = scripted_lm(in_turn(replies))
    seen = settings_seen(lm, monkeypatch)
    judge = ChatEval({"alpha": "You are same.", "beta": "You are same."}, "none", turns=1, samples=2)
    verdict = run(lm, only(judge.judge([ITEM])))
    # The two share a role, so the four questions are one text; the number of the sample tells them apart.
    assert len(set(lm.prompts)) == 1
    assert seen == [{"temperature": 1.0, "sample": number} for number in range(4)]
    turns = [(t.score, t.text, t.calls) for t in verdict.transcript.turns]
    assert turns == [(1.5, "evidence 0", 2), (4.5, "evidence 2", 2)]
    assert (verdict.score, verdict.calls) == (3.0, 4)


def silent(name: str) -> ScriptedLM:
    return scripted_lm(debater(score=lambda prompt: "no number" if speaker(prompt) == name else "3"))


def test_one_agent_without_a_score_leaves_the_item_unscored_and_is_named() -> None:
    lm = silent("beta")
    judgement = run(lm, only(ChatEval(ROLES, "one-by-one").judge([ITEM])))
    assert isinstance(judgement, Unscored)
    assert judgement.reason == "unreadable reply"
    assert judgement.detail.startswith("beta, round 0: no score could be found")
    # beta is asked again with what was wrong; then the talk is over and gamma is not asked.
    assert [speaker(prompt) for prompt in lm.prompts] == ["alpha", "beta", "beta"]
    assert "could not be used" in section(lm.prompts[2], "correction")
    assert judgement.calls == 3
