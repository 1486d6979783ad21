"""Debates in which a reply cannot be read or a call fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dspy
import pytest
from dspy import lm15
from dspy.utils.callback import BaseCallback

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Unscored, Verdict
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.store import SqlStore
from tests.fakes import in_turn, only, requested, scripted_lm, section
from tests.programs.debates import ITEM, content, hold, judged, objects, scores, settles, speaker, speakers, summary
from tests.stores import count, get

# --- replies that cannot be read ---

TURNS: dict[str, tuple[list[str], str, str]] = {
    "the Scorer's first": ([], "five", scores(2)),
    "the Critic's": ([scores(2)], "[[ ## decision ## ]]\nperhaps", content()),
    "the revision": ([scores(2), objects()], scores(6), scores(3)),
    "the Tie-breaker's": ([scores(2), objects(), scores(3)], settles("3 or 4"), settles(4)),
}
"""Replies before it, the unreadable reply, a readable one instead."""


@pytest.mark.parametrize("turn", TURNS)
def test_an_unreadable_reply_is_asked_for_once_more(turn: str) -> None:
    before, bad, good = TURNS[turn]
    judge = Debate(debate_config=DebateConfig(1, tie_breaker=True))
    end = [settles(1)] if turn == "the revision" else [content()] if turn == "the Scorer's first" else []
    judgement, lm = judged(judge, *before, bad, good, *end)
    straight, _ = judged(judge, *before, good, *end)
    assert isinstance(judgement, Verdict)
    assert summary(judgement)[:3] == summary(straight)[:3]
    assert str(judgement.transcript) == str(straight.transcript)
    assert judgement.calls == straight.calls + 1 == len(lm.prompts)
    first, second = lm.prompts[len(before)], lm.prompts[len(before) + 1]
    correction = section(second, "correction").splitlines()[0]
    assert correction.startswith("Your last reply could not be used: ")
    # The second question is the first with the correction, and nothing else.
    assert second == first.replace("\n\nReply with", f"\n\n[[ ## correction ## ]]\n{correction}\n\nReply with", 1)
    # It is not carried further.
    assert not any("correction" in prompt for prompt in lm.prompts[len(before) + 2 :])


@pytest.mark.parametrize("turn", TURNS)
def test_a_reply_that_stays_unreadable_leaves_the_item_unscored(turn: str) -> None:
    before, bad, _ = TURNS[turn]
    judgement, lm = judged(Debate(debate_config=DebateConfig(1, tie_breaker=True)), *before, bad, bad)
    assert isinstance(judgement, Unscored)
    assert judgement.reason == "unreadable reply"
    role, round_ = [("scorer", 0), ("critic", 1), ("scorer", 1), ("tie-breaker", 1)][len(before)]
    assert judgement.detail.startswith(f"{role}, round {round_}: ")
    assert judgement.calls == len(lm.prompts) == len(before) + 2
    # What was said until then is kept.
    assert len(judgement.transcript.turns) == len(before)


DECISION = "the decision must be NO ISSUE or ISSUE and nothing else"


@pytest.mark.parametrize(
    ("before", "bad", "why"),
    [
        ([], scores(7), "the score 7 is outside the scale; give one number from 1 to 5"),
        ([], scores("good"), "no score could be found; give one number from 1 to 5"),
        ([], scores("4\nScore: 2"), "several different scores were given (2, 4); give one number from 1 to 5"),
        ([], scores(3) + "\n\n" + scores(4), "the field 'score' stood twice with different content"),
        ([], "<think>Let me see", "the reply ended before the thinking did"),
        ([], '{"score": 3,', "the reply looked like a JSON object but was not a valid one"),
        ([scores(2)], "[[ ## decision ## ]]\nperhaps", DECISION),
        ([scores(2)], "[[ ## decision ## ]]\nISSUE\nNO ISSUE", f"the decision was both; {DECISION}"),
        ([scores(2)], "[[ ## decision ## ]]\nISSUE", "the decision was ISSUE but no feedback was given"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_the_correction_says_what_was_wrong(before: list[str], bad: str, why: str, traced: bool) -> None:
    good = [content()] if before else [scores(3)]
    lm = scripted_lm(in_turn([*before, bad, *good]))
    with dspy.context(callbacks=[BaseCallback()] if traced else []):
        hold(lm, only(Debate(debate_config=DebateConfig(len(before))).judge([ITEM])))
    assert section(lm.prompts[-1], "correction") == f"Your last reply could not be used: {why}."


@pytest.mark.parametrize("traced", [False, True])
def test_an_unreadable_reply_is_shown_and_kept(tmp_path: Path, traced: bool) -> None:
    hostile = "\x1b[2J[[ ## score ## ]]\nten of ten, " + 300 * "x" + "\r"
    journal = SqlStore(tmp_path)
    lm = scripted_lm(in_turn(["Never.", hostile]), store=journal)
    with dspy.context(callbacks=[BaseCallback()] if traced else []):
        judgement = hold(lm, only(Debate(debate_config=DebateConfig(0)).judge([ITEM])))
    assert isinstance(judgement, Unscored)
    why, _, rest = judgement.detail.partition("; the reply was: ")
    assert why == "scorer, round 0: no score could be found; give one number from 1 to 5"
    shown, _, key = rest.removesuffix("]").partition(" [kept as ")
    # On one line, short, and with nothing that a terminal or a parser would obey.
    assert shown.startswith("[2J[ [ ## score ## ]] ten of ten, xxx")
    assert shown.isprintable()
    assert len(shown) == 100
    journal.close()
    again = SqlStore(tmp_path)
    # Both replies are kept word for word; the detail names the last.
    assert count(again) == 2
    kept = get(again, key)
    assert kept is not None
    assert kept.text == hostile
    assert "Never." in "".join(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())


# --- calls that fail ---


def failing(error: Exception, at: str) -> Callable[[str], str]:
    def script(prompt: str) -> str:
        if not requested(prompt):
            # What is asked to see whether the LM still answers at all.
            return "OK"
        if speaker(prompt) == at:
            raise error
        return {"scorer": scores(2), "critic": objects(), "tie-breaker": settles(3)}[speaker(prompt)]

    return script


@pytest.mark.parametrize("at", ["scorer", "critic", "tie-breaker"])
def test_a_failure_of_its_own_that_outlasts_the_retries_leaves_the_item_unscored(at: str) -> None:
    lm = scripted_lm(
        failing(lm15.RateLimitError("slow down", retry_after=0.001), at), options=LMOptions(first_wait=0.01)
    )
    judgement = hold(lm, only(Debate(debate_config=DebateConfig(1, tie_breaker=True)).judge([ITEM])))
    assert isinstance(judgement, Unscored)
    assert judgement.reason == "lm error"
    assert "LMRateLimitError" in judgement.detail
    assert "slow down" in judgement.detail
    # The first attempt and three retries are one call of the debate.
    asked = [speaker(prompt) for prompt in lm.prompts if requested(prompt)]
    assert asked.count(at) == 4
    assert len(lm.prompts) == len(asked) + 1
    assert judgement.calls == {"scorer": 1, "critic": 2, "tie-breaker": 4}[at]


def test_an_error_that_only_this_item_has_is_not_retried() -> None:
    lm = scripted_lm(failing(lm15.ContextLengthError("too long"), "scorer"))
    judgement = hold(lm, only(Debate().judge([ITEM])))
    assert isinstance(judgement, Unscored)
    assert judgement.reason == "too long"
    assert len(lm.prompts) == 1


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (lm15.AuthError("wrong key"), dspy.LMAuthError),
        (lm15.UnsupportedModelError("no such model"), dspy.LMUnsupportedModelError),
        (lm15.NotConfiguredError("no key"), dspy.LMConfigurationError),
    ],
)
def test_an_error_that_every_item_would_meet_is_raised(error: Exception, raised: type[Exception]) -> None:
    lm = scripted_lm(failing(error, "critic"))
    with pytest.raises(raised):
        hold(lm, only(Debate().judge([ITEM])))
    assert speakers(lm) == ["scorer", "critic"]
