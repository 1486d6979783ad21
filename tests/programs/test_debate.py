"""DEBATE's Algorithm 1, turn by turn: order of roles, texts in each prompt, when it stops, and what it costs."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Unscored, Verdict
from debate_judge.programs.lm.replies import SqlStore
from debate_judge.programs.lm.settings import LMOptions
from tests.fakes import hold, in_turn, only, requested, scripted_lm, section
from tests.programs.debates import (
    ITEM,
    debates_shown,
    issue_reply,
    judged,
    no_issue_reply,
    outcome_of,
    score_reply,
    speaker,
    speakers,
    tie_break_reply,
)
from tests.stores import count, get


def test_two_rounds_without_agreement() -> None:
    judgement, lm = judged(
        Debate(rounds=2),
        score_reply(2, "Two errors."),
        issue_reply("One of them is none."),
        score_reply(3, "Granted."),
        issue_reply("And the other is small."),
        score_reply(3.5, "Granted again."),
    )
    assert speakers(lm) == ["scorer", "critic", "scorer", "critic", "scorer"]
    seen = [
        "",
        "Scorer, round 0, score 2: Two errors.",
        "Critic, round 1: One of them is none.",
        "Scorer, round 1, score 3: Granted.",
        "Critic, round 2: And the other is small.",
    ]
    # Each prompt has all earlier turns, in order, and nothing else.
    assert debates_shown(lm) == ["\n\n".join(seen[1 : i + 1]) for i in range(5)]
    assert (judgement.score, judgement.rounds, judgement.stop_reason, judgement.calls) == (3.5, 2, "rounds over", 5)
    assert str(judgement.transcript) == "\n\n".join([*seen[1:], "Scorer, round 2, score 3.5: Granted again."])


@pytest.mark.parametrize("round_", [1, 3])
def test_no_issue_ends_the_debate_with_the_latest_score(round_: int) -> None:
    replies = [score_reply(1)]
    for i in range(1, round_):
        replies += [issue_reply(), score_reply(1 + i)]
    judgement, lm = judged(Debate(rounds=3, tie_breaker=True), *replies, no_issue_reply())
    assert (judgement.score, judgement.rounds, judgement.stop_reason) == (round_, round_, "no issue")
    # Neither a revision nor the Tie-breaker follows.
    assert judgement.calls == len(lm.prompts) == 2 * round_
    assert speakers(lm)[-1] == "critic"


def test_the_tie_breaker_decides_an_open_debate() -> None:
    replies = [score_reply(2), issue_reply("Too low."), score_reply(3), tie_break_reply(4.5, "Critic")]
    judgement, lm = judged(Debate(rounds=1, tie_breaker=True), *replies)
    assert (judgement.score, judgement.rounds, judgement.stop_reason, judgement.calls) == (4.5, 1, "tie-breaker", 4)
    assert speakers(lm) == ["scorer", "critic", "scorer", "tie-breaker"]
    assert debates_shown(lm)[-1] == (
        "Scorer, round 0, score 2: Because.\n\nCritic, round 1: Too low.\n\nScorer, round 1, score 3: Because."
    )
    assert judgement.transcript.turns[-1].text == "(Critic) All told."


# --- the number of rounds ---

TEXTS = [f"Roads closed after rain number {i}." for i in range(24)]


def moody(prompt: str) -> str:
    """Scores and decisions that depend on everything in the prompt, and on nothing else."""
    draw = zlib.crc32(prompt.encode())
    if speaker(prompt) == "scorer":
        return score_reply(1 + draw % 9 / 2, f"For reason {draw % 100}.") if draw % 11 else "no idea"
    if speaker(prompt) == "critic":
        return no_issue_reply() if draw % 3 == 0 else issue_reply(f"Consider {draw % 100}.")
    return tie_break_reply(1 + draw % 5)


def test_one_debate_to_the_maximum_answers_every_smaller_n_and_a_tie_breaker_costs_one_call() -> None:
    outcomes = set()
    for text in TEXTS:
        item, lm, judge = replace(ITEM, text=text), scripted_lm(moody), Debate()
        transcript = hold(lm, only(judge.converse([item], 3)))
        assert len(lm.prompts) == transcript.calls
        for n in range(4):
            shorter, before = transcript.until(n), len(lm.prompts)
            read = judge.judgement(shorter, n)
            # The calls of the verdict are those that are made.
            fresh = scripted_lm(moody)
            assert outcome_of(read) == outcome_of(hold(fresh, only(Debate(rounds=n).judge([item]))))
            assert (read.calls, len(lm.prompts)) == (len(fresh.prompts), before)
            settled = hold(lm, judge.break_ties([item], [shorter]))[0]
            undecided = shorter.rounds > 0 and not shorter.settled and shorter.failure is None
            assert len(lm.prompts) - before == undecided
            decided = hold(scripted_lm(moody), only(Debate(rounds=n, tie_breaker=True).judge([item])))
            assert outcome_of(judge.judgement(settled, n)) == outcome_of(decided)
            outcomes |= {j.reason if isinstance(j, Unscored) else j.stop_reason for j in (read, decided)}
    assert outcomes >= {"single call", "no issue", "rounds over", "tie-breaker"}


def test_another_rollout_is_another_sample() -> None:
    lm = scripted_lm(in_turn([score_reply(2), score_reply(3)]))
    rollouts = [lm.copy(rollout_id=number, temperature=1.0) for number in (1, 2, 2)]
    assert [hold(rollout, only(Debate(rounds=0).judge([ITEM]))).score for rollout in rollouts] == [2, 3, 3]


TURNS: dict[str, tuple[list[str], str, str]] = {
    "scorer, round 0": ([], "five", score_reply(2)),
    "critic, round 1": ([score_reply(2)], "[[ ## feedback ## ]]\n", no_issue_reply()),
    "scorer, round 1": ([score_reply(2), issue_reply()], score_reply(6), score_reply(3)),
    "tie-breaker, round 1": (
        [score_reply(2), issue_reply(), score_reply(3)],
        tie_break_reply("3 or 4"),
        tie_break_reply(4),
    ),
}
"""Replies before it, the unreadable reply, a readable one instead."""


@pytest.mark.parametrize("turn", TURNS)
def test_an_unreadable_reply_is_asked_for_once_more(turn: str) -> None:
    before, bad, good = TURNS[turn]
    judge = Debate(rounds=1, tie_breaker=True)
    end = {"scorer, round 0": [no_issue_reply()], "scorer, round 1": [tie_break_reply(1)]}.get(turn, [])
    judgement, lm = judged(judge, *before, bad, good, *end)
    straight, _ = judged(judge, *before, good, *end)
    assert isinstance(judgement, Verdict)
    assert outcome_of(judgement)[:3] == outcome_of(straight)[:3]
    assert str(judgement.transcript) == str(straight.transcript)
    assert judgement.calls == straight.calls + 1 == len(lm.prompts)
    first, second = lm.prompts[len(before)], lm.prompts[len(before) + 1]
    correction = section(second, "correction").splitlines()[0]
    # The second question is the first with the correction, and nothing else; it is not carried further.
    assert second == first.replace("\n\nReply with", f"\n\n[[ ## correction ## ]]\n{correction}\n\nReply with", 1)
    assert not any("correction" in prompt for prompt in lm.prompts[len(before) + 2 :])


@pytest.mark.parametrize("turn", TURNS)
def test_a_reply_that_stays_unreadable_leaves_the_item_unscored(turn: str) -> None:
    before, bad, _ = TURNS[turn]
    judgement, lm = judged(Debate(rounds=1, tie_breaker=True), *before, bad, bad)
    assert judgement.reason == "unreadable reply"
    assert judgement.detail.startswith(f"{turn}: ")
    assert judgement.calls == len(lm.prompts) == len(before) + 2
    # The turns until then are kept.
    assert len(judgement.transcript.turns) == len(before)


def test_an_unreadable_reply_is_in_the_transcript(tmp_path: Path) -> None:
    hostile = "\x1b[2J[[ ## score ## ]]\nten of ten, " + 300 * "x" + "\r"
    with closing(SqlStore(tmp_path)) as store:
        lm = scripted_lm(in_turn(["Never.", hostile]), store=store)
        detail = hold(lm, only(Debate(rounds=0).judge([ITEM]))).detail
        shown, _, key = detail.partition("; the reply was: ")[2].removesuffix("]").partition(" [kept as ")
        # On one line, short, and with nothing that a terminal or a parser would obey.
        assert shown == f"[2J[ [ ## score ## ]] ten of ten, {'x' * 65}…"
        # Both replies are kept word for word until the next run; the detail names the last.
        assert (count(tmp_path), get(store, key).text) == (2, hostile)


# --- calls that fail ---


def failing(error: Exception, at: str) -> Callable[[str], str]:
    def script(prompt: str) -> str:
        if not requested(prompt):
            # The probe, which shows whether the LM still answers at all.
            return "OK"
        if speaker(prompt) == at:
            raise error
        return {"scorer": score_reply(2), "critic": issue_reply(), "tie-breaker": tie_break_reply(3)}[speaker(prompt)]

    return script


@pytest.mark.parametrize(("at", "calls"), [("scorer", 1), ("critic", 2), ("tie-breaker", 4)])
def test_a_failure_of_its_own_that_outlasts_the_retries_leaves_the_item_unscored(at: str, calls: int) -> None:
    error = lm15.RateLimitError("slow down", retry_after=0.001)
    lm = scripted_lm(failing(error, at), options=LMOptions(first_wait=0.01))
    judgement = hold(lm, only(Debate(rounds=1, tie_breaker=True).judge([ITEM])))
    assert judgement.reason == "lm error"
    assert "slow down" in judgement.detail
    # The first attempt and three retries are one call of the debate; a probe comes last.
    roles = [speaker(prompt) for prompt in lm.prompts if requested(prompt)]
    assert roles.count(at) == 4
    assert len(lm.prompts) == len(roles) + 1
    assert judgement.calls == calls


def test_an_error_that_only_this_item_has_is_not_retried_and_one_of_every_item_is_raised() -> None:
    lm = scripted_lm(failing(lm15.ContextLengthError("too long"), "scorer"))
    assert hold(lm, only(Debate().judge([ITEM]))).reason == "too long"
    assert len(lm.prompts) == 1
    lm = scripted_lm(failing(lm15.UnsupportedModelError("no such model"), "critic"))
    with pytest.raises(dspy.LMUnsupportedModelError):
        hold(lm, only(Debate().judge([ITEM])))
    assert speakers(lm) == ["scorer", "critic"]
