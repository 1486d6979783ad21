"""DEBATE's Algorithm 1, turn by turn: who speaks, who has seen what, when it stops, and what it costs."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from typing import Any

import dspy
import pytest

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PERSONAS, STRICT
from debate_judge.programs.judge import DebateConfig, Unscored, Verdict
from tests.fakes import in_turn, only, scripted_lm, section
from tests.programs.debates import (
    ITEM,
    content,
    heard,
    hold,
    is_open,
    judged,
    objects,
    scores,
    settles,
    speaker,
    speakers,
    summary,
)


def test_two_rounds_without_agreement() -> None:
    judgement, lm = judged(
        Debate(debate_config=DebateConfig(2)),
        scores(2, "Two errors."),
        objects("One of them is none."),
        scores(3, "Granted."),
        objects("And the other is small."),
        scores(3.5, "Granted again."),
    )
    assert speakers(lm) == ["scorer", "critic", "scorer", "critic", "scorer"]
    seen = [
        "",
        "Scorer, round 0, score 2: Two errors.",
        "Critic, round 1: One of them is none.",
        "Scorer, round 1, score 3: Granted.",
        "Critic, round 2: And the other is small.",
    ]
    # Each turn has heard all that was said before it, in order, and nothing else.
    for prompt in lm.prompts:
        assert section(prompt, "source") == "Rain fell. Roads closed."
        assert section(prompt, "candidate") == "Roads closed after rain."
    assert heard(lm) == ["\n\n".join(seen[1 : i + 1]) for i in range(5)]
    assert isinstance(judgement, Verdict)
    assert (judgement.score, judgement.rounds, judgement.stop_reason, judgement.calls) == (3.5, 2, "rounds over", 5)
    assert str(judgement.transcript) == "\n\n".join([*seen[1:], "Scorer, round 2, score 3.5: Granted again."])


@pytest.mark.parametrize("round_", [1, 2, 3])
def test_no_issue_ends_the_debate_and_the_latest_score_stands(round_: int) -> None:
    replies = [scores(1)]
    for i in range(1, round_):
        replies += [objects(), scores(1 + i)]
    judgement, lm = judged(Debate(debate_config=DebateConfig(3, tie_breaker=True)), *replies, content())
    assert isinstance(judgement, Verdict)
    assert (judgement.score, judgement.rounds, judgement.stop_reason) == (round_, round_, "no issue")
    # Neither a revision nor the Tie-breaker follows.
    assert judgement.calls == len(lm.prompts) == 2 * round_
    assert speakers(lm)[-1] == "critic"


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_n_is_the_number_of_critic_replies(n: int) -> None:
    replies = [scores(1)] + [r for i in range(1, n + 1) for r in (objects(), scores(1 + i))]
    judgement, lm = judged(Debate(debate_config=DebateConfig(n)), *replies)
    assert isinstance(judgement, Verdict)
    assert (judgement.score, judgement.rounds, judgement.calls) == (1 + n, n, 1 + 2 * n)
    assert judgement.stop_reason == ("rounds over" if n else "single call")
    assert speakers(lm) == ["scorer", *["critic", "scorer"] * n]


def test_the_tie_breaker_settles_what_stayed_open() -> None:
    replies = [scores(2), objects("Too low."), scores(3), settles(4.5, "Critic")]
    judgement, lm = judged(Debate(debate_config=DebateConfig(1, tie_breaker=True)), *replies)
    assert isinstance(judgement, Verdict)
    assert (judgement.score, judgement.rounds, judgement.stop_reason, judgement.calls) == (4.5, 1, "tie-breaker", 4)
    assert speakers(lm) == ["scorer", "critic", "scorer", "tie-breaker"]
    assert heard(lm)[-1] == (
        "Scorer, round 0, score 2: Because.\n\nCritic, round 1: Too low.\n\nScorer, round 1, score 3: Because."
    )
    assert judgement.transcript.turns[-1].text == "(Critic) All told."
    # The Scorer's own last word is still there.
    assert judgement.transcript.score == 3


@pytest.mark.parametrize("replies", [[scores(2)], [scores(2), content()]], ids=["single call", "no issue"])
def test_the_tie_breaker_is_not_asked_where_nothing_is_open(replies: list[str]) -> None:
    judge = Debate(debate_config=DebateConfig(len(replies) - 1, tie_breaker=True))
    judgement, lm = judged(judge, *replies)
    assert isinstance(judgement, Verdict)
    assert judgement.stop_reason != "tie-breaker"
    assert "tie-breaker" not in speakers(lm)
    assert not is_open(judgement.transcript)


def test_words_of_the_protocol_outside_the_decision_do_not_end_a_debate() -> None:
    critic = "[[ ## review ## ]]\nNO ISSUE\n[[ ## decision ## ]]\nISSUE\n[[ ## feedback ## ]]\nNO ISSUE, you say?"
    judgement, lm = judged(Debate(debate_config=DebateConfig(1)), scores(2), critic, scores(3))
    assert judgement.calls == len(lm.prompts) == 3


# --- the number of rounds ---

TEXTS = [f"Roads closed after rain number {i}." for i in range(24)]


def moody(prompt: str) -> str:
    """Scores and decisions that depend on everything in the prompt, and on nothing else."""
    dice = zlib.crc32(prompt.encode())
    if speaker(prompt) == "scorer":
        return scores(1 + dice % 9 / 2, f"For reason {dice % 100}.") if dice % 11 else "no idea"
    if speaker(prompt) == "critic":
        return content() if dice % 3 == 0 else objects(f"Consider {dice % 100}.")
    return settles(1 + dice % 5)


def test_one_debate_to_the_maximum_answers_every_smaller_n_at_no_call() -> None:
    kinds = set()
    for text in TEXTS:
        item, lm = replace(ITEM, text=text), scripted_lm(moody)
        judge = Debate()
        transcript = hold(lm, only(judge.converse([item], 3)))
        spent = len(lm.prompts)
        for n in range(4):
            read = judge.verdict(transcript.until(n), n)
            fresh = scripted_lm(moody)
            assert summary(read) == summary(hold(fresh, only(Debate(debate_config=DebateConfig(n)).judge([item]))))
            # What a verdict says it costs is what it costs.
            assert read.calls == len(fresh.prompts)
            kinds.add(read.reason if isinstance(read, Unscored) else read.stop_reason)
        assert len(lm.prompts) == spent == transcript.calls
    assert kinds >= {"single call", "no issue", "rounds over"}


def test_a_tie_at_a_smaller_n_costs_one_call_more_and_only_where_it_is_open() -> None:
    stopped = set()
    for text in TEXTS:
        item, lm = replace(ITEM, text=text), scripted_lm(moody)
        judge = Debate()
        transcript = hold(lm, only(judge.converse([item], 3)))
        for n in (1, 2, 3):
            before, shorter = len(lm.prompts), transcript.until(n)
            settled = hold(lm, only(judge.break_ties([item], [shorter])))
            assert len(lm.prompts) - before == int(is_open(shorter) and shorter.failure is None)
            fresh = hold(
                scripted_lm(moody), only(Debate(debate_config=DebateConfig(n, tie_breaker=True)).judge([item]))
            )
            assert summary(judge.verdict(settled, n)) == summary(fresh)
            stopped.add(fresh.reason if isinstance(fresh, Unscored) else fresh.stop_reason)
    assert {"tie-breaker", "no issue"} <= stopped


# --- what a debate is made of ---


def test_rewritten_instructions_no_longer_carry_the_personas_name() -> None:
    judge = Debate(STRICT)
    judge.critic.signature = judge.critic.signature.with_instructions("Doubt. NO ISSUE.")
    assert judge.config()["persona"] == "tuned"
    assert judge.config()["persona_text"] == "Doubt. NO ISSUE."


def test_the_variants_of_a_debate_differ_in_the_critic_alone() -> None:
    texts = {name: persona.text for name, persona in PERSONAS.items()}
    judge = Debate(debate_config=DebateConfig(2, True))
    variants = judge.variants(texts)
    assert {name: v.instructions()["critic"] for name, v in variants.items()} == texts
    assert len({v.instructions()["scorer"] for v in variants.values()}) == 1
    assert all(v.debate_config == judge.debate_config for v in variants.values())
    assert judge.tunable() == ("scorer", "critic")


def test_a_verdict_has_the_reason_of_who_spoke_last() -> None:
    debate = Debate(debate_config=DebateConfig(rounds=1, tie_breaker=True))
    judgement, _ = judged(debate, scores(2, "At first."), objects(), scores(3, "Granted."), settles(4))
    assert isinstance(judgement, Verdict)
    assert judgement.reason == "(Critic) All told."
    shorter = debate.verdict(judgement.transcript.until(0), 0)
    assert isinstance(shorter, Verdict)
    assert shorter.reason == "At first."


def test_dspy_sees_the_calls_that_were_made() -> None:
    debate, lm = Debate(debate_config=DebateConfig(rounds=1)), scripted_lm(in_turn([scores(2), content()]))
    calls: list[Any] = []

    async def work() -> None:
        with dspy.context(lm=lm, trace=calls, track_usage=True):
            await debate.judge([ITEM])

    asyncio.run(work())
    assert [predict for predict, _, _ in calls] == [debate.scorer, debate.critic]
    assert [entry["messages"][-1]["content"] for entry in lm.history] == lm.prompts
    assert list(dict(debate.named_predictors())) == ["scorer", "critic", "tie_breaker"]
    assert all(type(predictor) is dspy.Predict for predictor in debate.predictors())


def test_another_rollout_is_another_sample() -> None:
    lm = scripted_lm(in_turn([scores(2), scores(3)]))
    debate = Debate(debate_config=DebateConfig(rounds=0))
    found = [hold(lm.copy(rollout_id=number, temperature=1.0), only(debate.judge([ITEM]))) for number in (1, 2, 2)]
    assert [judgement.score for judgement in found if isinstance(judgement, Verdict)] == [2, 3, 3]
