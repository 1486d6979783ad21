"""Candidates of one source in one call: order, rounds, shares of calls, and what becomes of candidates whose part of
the reply cannot be read and of calls that fail."""

from __future__ import annotations

import re

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.lm.settings import LMOptions
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import Script, hold, requested, scripted_lm, section
from tests.programs.tables import items, judged, shown_candidates, table_script, values

FOUR = items("one", "two", "three", "four")
WORTH = {"one": 1, "two": 2, "three": 3, "four": 4}


def worth(prompt: str, text: str) -> float:
    return WORTH[text]


HONEST = table_script(worth)
DISPUTING = table_script(worth, lambda *_: "Too low.")
JUDGE = Debate(rounds=1, tie_breaker=True, together=8)


def asked_about(prompt: str) -> list[str]:
    """The texts that a prompt is about."""
    return sorted(shown_candidates(prompt).values()) or [section(prompt, "candidate")]


def test_a_call_from_python_sends_what_a_run_sends_whatever_the_order_of_arrival() -> None:
    judge, first = Debate(rounds=0, together=3), FOUR[0]
    _, by_run = judged(judge, HONEST, FOUR)
    by_call = scripted_lm(HONEST)
    with dspy.context(lm=by_call):
        texts = [item.text for item in FOUR[::-1]]
        prediction = judge(source=first.source, texts=texts, aspect=first.aspect, task=first.task)
    assert prediction.scores == [4, 3, 2, 1]
    assert sorted(by_call.prompts) == sorted(by_run.prompts)
    assert sorted(len(shown_candidates(prompt)) for prompt in by_run.prompts) == [2, 2]


def test_only_open_candidates_are_debated_further_and_each_call_counts_in_equal_shares() -> None:
    def score(prompt: str, text: str) -> float:
        return WORTH[text] + (0.5 if section(prompt, "debate") else 0)

    def issues(prompt: str, text: str) -> str | None:
        later = "Critic, round 1" in section(prompt, "debate")
        return "Too low." if text == "two" or (text == "three" and not later) else None

    judgements, lm = judged(Debate(rounds=2, tie_breaker=True, together=8), table_script(score, issues), FOUR)
    assert values(judgements) == [1, 2.5, 3.5, 4]
    ends = [(1, "no issue"), (2, "tie-breaker"), (2, "no issue"), (1, "no issue")]
    assert [(j.rounds, j.stop_reason) for j in judgements] == ends
    everything, disputed = sorted(WORTH), ["three", "two"]
    assert [asked_about(p) for p in lm.prompts] == [everything, everything, disputed, disputed, ["two"], ["two"]]
    assert [j.calls for j in judgements] == pytest.approx([0.5, 3.5, 1.5, 0.5])
    number = next(n for n, text in shown_candidates(lm.prompts[3]).items() if text == "two")
    shown = section(lm.prompts[3], "debate").split("\n")
    assert [line for line in shown if line.startswith(f"candidate_{number}: Critic, round 1: Too low. It says two so.")]


def test_a_candidate_whose_part_cannot_be_read_is_asked_about_alone_from_then_on() -> None:
    def script(prompt: str) -> str:
        number = next((n for n, text in shown_candidates(prompt).items() if text == "three"), None)
        return DISPUTING(prompt).replace(f"[[ ## score_{number} ## ]]\n3", f"[[ ## score_{number} ## ]]\ngreat")

    judgements, lm = judged(Debate(rounds=1, together=8), script, FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    others = ["four", "one", "two"]
    assert [asked_about(p) for p in lm.prompts] == [
        sorted(WORTH), ["three"], *[asked_about(p) for p in lm.prompts[2:]]
    ]  # fmt: skip
    assert sorted(map(asked_about, lm.prompts[2:])) == [others, others, ["three"], ["three"]]
    assert [j.calls for j in judgements] == pytest.approx([1 / 4 + 2 / 3] * 2 + [1 / 4 + 3] + [1 / 4 + 2 / 3])
    # Alone, it is asked with the prompts of a debate about one candidate.
    alone = judged(Debate(rounds=1), DISPUTING, [FOUR[2]])[1].prompts
    assert [p for p in lm.prompts if asked_about(p) == ["three"]] == alone


def failing(words: str, error: Exception) -> Script:
    def script(prompt: str) -> str:
        if re.search(words, "\n".join(asked_about(prompt))):
            raise error
        return DISPUTING(prompt)

    return script


UNUSABLE = {
    **{
        text: lambda prompt, text=text: text if shown_candidates(prompt) else DISPUTING(prompt)
        for text in ("They are all fine.", " ", "[[ ## score_1 ## ]]\n3\n\n[[ ## score_1 ## ]]\n4")
    },
    "too long": failing("one\n|\none", lm15.ContextLengthError("prompt is too long", status=400)),
}


@pytest.mark.parametrize("reply", UNUSABLE)
def test_of_a_table_that_cannot_be_read_or_is_too_long_every_candidate_is_asked_about_alone(reply: str) -> None:
    judgements, lm = judged(JUDGE, UNUSABLE[reply], FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    # The debates and the Tie-breaker's turn each begin together.
    assert len(lm.prompts) == 1 + 4 * 3 + 1 + 4
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


def test_one_refused_text_leaves_the_others_of_its_table_scored() -> None:
    judgements, lm = judged(JUDGE, failing("three", lm15.InvalidRequestError("this text is not allowed")), FOUR)
    assert values(judgements) == [1, 2, "lm error", 4]
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


def test_an_error_of_the_server_does_not_split_the_table() -> None:
    """Split, it would be scored otherwise than by the next run, which finds the server well."""

    def script(prompt: str) -> str:
        if "Reply with OK" in prompt:
            return "OK"
        if requested(prompt)[0].startswith("feedback"):
            raise lm15.RateLimitError("slow down", retry_after=0.001)
        return HONEST(prompt)

    lm = scripted_lm(script, options=LMOptions(first_wait=0.01))
    with JudgeRunner(lm, progress=False) as runner:
        judgements = runner.judge(JUDGE, FOUR)
    assert values(judgements) == ["lm error"] * 4
    assert {len(shown_candidates(prompt)) for prompt in lm.prompts if section(prompt, "task")} == {4}
    assert all(j.detail.startswith("critic, round 1: ") for j in judgements)
    assert [j.calls for j in judgements] == [0.5] * 4


@pytest.mark.parametrize("split_in", [1, 2])
def test_a_debate_to_the_maximum_begins_with_every_shorter_one(split_in: int) -> None:
    """The context holds several candidates until a round."""
    judge = Debate(rounds=2, tie_breaker=True, together=8)
    script = table_script(worth, lambda prompt, text: None if text == "four" else "Too low.")

    def limited(prompt: str) -> str:
        if f"Critic, round {split_in}" in section(prompt, "debate") and shown_candidates(prompt):
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return script(prompt)

    longest = hold(scripted_lm(limited), judge.converse(FOUR, 2))
    for n in (0, 1, 2):
        read, straight = [t.until(n) for t in longest], hold(scripted_lm(limited), judge.converse(FOUR, n))
        assert read == straight
        lm = scripted_lm(limited)
        settled = hold(lm, judge.break_ties(FOUR, read))
        assert sum(t.calls for t in settled) == pytest.approx(sum(t.calls for t in read) + len(lm.prompts))
