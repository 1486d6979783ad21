"""What is said about one call: that it is about this very call, and what came of it by the raters' measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy
import pytest

from debate_judge.data.schema import Aspect, Candidate, RatedGroup, Scale, Task
from debate_judge.optimize.tuners.call_feedback import call_feedback, cited
from debate_judge.optimize.tuners.guide import guided
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.devset import group_feedback
from debate_judge.programs.judge import DebateConfig, Judge, items_of
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, requested, scripted_lm, section

ASPECT = Aspect("clarity", "Is it easy to follow?", Scale(1, 5))
GUIDE = "A missing verdict costs these raters two points. Long sentences are let pass."


def example_of(ratings: Sequence[float]) -> dspy.Example:
    """One group whose candidates are the texts `Text 1`, `Text 2`, ... with these ratings."""
    candidates = tuple(Candidate(f"c{i}", f"Text {i}", {"clarity": (r,)}) for i, r in enumerate(ratings, start=1))
    group = RatedGroup("g", "A source.", candidates)
    questions = items_of(Task("t", "article", "summary", (ASPECT,)), group, ASPECT)
    return dspy.Example(questions=questions, ratings=group.ratings("clarity")).with_inputs("questions")


def by_turn(*scores: str) -> Script:
    """A Scorer that gives the n-th text the scores between slashes, one a turn; a Critic that counts rounds.

    A turn `-` is a Critic's NO ISSUE.
    """

    def planned(prompt: str) -> list[str]:
        return scores[int(section(prompt, "candidate").split()[-1]) - 1].split("/")

    def turn(prompt: str) -> int:
        return section(prompt, "debate").count("Critic, round")

    return debater(
        score=lambda prompt: planned(prompt)[turn(prompt)],
        decision=lambda prompt: "NO ISSUE" if planned(prompt)[turn(prompt) + 1] == "-" else "ISSUE",
        feedback="Look at it again.",
        final_score="1",
    )


class Held:
    """A group's debates, traced, and what is said about each call."""

    def __init__(self, script: Script, ratings: Sequence[float], rounds: int, judge: Judge | None = None) -> None:
        self.example = example_of(ratings)
        judge = judge or guided(Debate(STRICT, DebateConfig(rounds)), GUIDE)
        traces: dict[str, list[Any]] = {}
        with JudgeRunner(scripted_lm(script), progress=False) as runner:
            transcripts = runner.converse(judge, self.example.questions, rounds, traces=traces)
            if judge.debate_config.tie_breaker:
                transcripts = runner.break_tie(judge, self.example.questions, transcripts)
        self.trace = [call for item in self.example.questions for call in traces.get(item.key, ())]
        self.prediction = dspy.Prediction(judgements=[judge.verdict(t, rounds) for t in transcripts], guide=GUIDE)

    def calls(self, role: str, text: int) -> list[Any]:
        field = {"scorer": "score", "critic": "decision"}[role]
        return [
            call for call in self.trace if call[2].get(field) is not None and call[1]["candidate"] == f"Text {text}"
        ]

    def told(self, role: str, text: int, number: int) -> list[str]:
        _, inputs, reply = self.calls(role, text)[number]
        return call_feedback(self.example, self.prediction, self.trace, (inputs, reply), role).splitlines()


def test_a_trace_holds_every_call_of_an_item_in_order() -> None:
    held = Held(by_turn("2/3/4", "3/2/1"), [4, 3], 2)
    for text in (1, 2):
        own = [call for call in held.trace if call[1]["candidate"] == f"Text {text}"]
        assert [sorted(call[2].keys())[0] for call in own] == ["rationale", "decision"] * 2 + ["rationale"]
        assert [call[1].get("debate", "").count("Critic, round") for call in own] == [0, 0, 1, 1, 2]


def test_blame_and_praise_go_to_the_call_that_earned_them() -> None:
    # The raters give 4 and 3. Text 1 is moved closer twice, text 2 first closer and then away.
    held = Held(by_turn("1/2/3.8", "5/3.5/1"), [4, 3], 2)
    assert held.told("critic", 1, 0)[:2] == [
        "An issue was to be raised: the score 1 was 3.00 too low, for the raters' mean is 4.00.",
        "The critique moved the score from 1 to 2, 1.00 closer to the raters' mean of 4.00.",
    ]
    assert held.told("critic", 1, 1)[:2] == [
        "An issue was to be raised: the score 2 was 2.00 too low, for the raters' mean is 4.00.",
        "The critique moved the score from 2 to 3.8, 1.80 closer to the raters' mean of 4.00.",
    ]
    assert held.told("critic", 2, 0)[:2] == [
        "An issue was to be raised: the score 5 was 2.00 too high, for the raters' mean is 3.00.",
        "The critique moved the score from 5 to 3.5, 1.50 closer to the raters' mean of 3.00.",
    ]
    assert held.told("critic", 2, 1)[:2] == [
        "NO ISSUE would have been right, it is too late now: the score 3.5 was as good as the raters' mean of 3.00.",
        "The critique moved the score from 3.5 to 1, 1.50 further from the raters' mean of 3.00.",
    ]
    assert held.told("scorer", 2, 0)[0] == "The score 5 is 2.00 too high, for the raters' mean is 3.00."
    assert held.told("scorer", 2, 1)[0] == (
        "The Scorer rightly followed the critique: the score went from 5 to 3.5, 1.50 closer to the raters' mean "
        "of 3.00."
    )
    assert held.told("scorer", 2, 2)[0] == (
        "The Scorer should not have followed the critique: the score went from 3.5 to 1, 1.50 further from the "
        "raters' mean of 3.00."
    )


def test_the_end_of_the_debate_is_told_to_those_who_spoke_before_it() -> None:
    held = Held(by_turn("4/2/1"), [4], 2)
    assert held.told("scorer", 1, 0)[-1] == "In the end the debate gave 1, 3.00 too low, for the raters' mean is 4.00."
    assert not any("In the end" in line for line in held.told("scorer", 1, 2))


@pytest.mark.parametrize(
    ("scores", "rating", "expected"),
    [
        ("4/-", 4.3, "NO ISSUE was right: the score 4 is as good as the raters' mean of 4.30."),
        ("4/-", 2.0, "NO ISSUE came too early: the score 4 is 2.00 too high, for the raters' mean is 2.00."),
    ],
)
def test_no_issue_is_right_or_too_early(scores: str, rating: float, expected: str) -> None:
    assert Held(by_turn(scores), [rating], 1).told("critic", 1, 0) == [expected]


def test_a_rule_is_named_where_a_critique_that_cites_it_leads_away() -> None:
    rule = "A missing verdict costs these raters two points."
    cites = debater(
        score=lambda prompt: "2" if section(prompt, "debate") else "4",
        decision="ISSUE",
        feedback="By the guide a missing verdict costs these raters their two points.",
    )
    away, toward, citing_nothing = Held(cites, [4], 1), Held(cites, [2], 1), Held(by_turn("4/2"), [4], 1)
    assert f'The reply rests on this sentence of the guide, which was misapplied here: "{rule}"' in away.told(
        "critic", 1, 0
    )
    assert not any("misapplied" in line for line in toward.told("critic", 1, 0))
    assert not any("misapplied" in line for line in citing_nothing.told("critic", 1, 0))
    # The Scorer followed, but its own reply cites nothing.
    assert not any("misapplied" in line for line in away.told("scorer", 1, 1))


def test_a_reply_cites_the_sentence_that_it_takes_up_most_of() -> None:
    assert cited(GUIDE, "long sentences: these are let pass") == ["Long sentences are let pass."]
    assert cited(GUIDE, "the verdict is there") == []
    assert cited("", "anything") == []


@pytest.mark.parametrize(("rating", "side"), [(1.0, "right"), (4.0, "wrong")])
def test_the_tie_breaker_is_told_which_side_was_right(rating: float, side: str) -> None:
    judge = Debate(STRICT, DebateConfig(1, tie_breaker=True))
    held = Held(by_turn("4/3.5"), [rating], 1, judge)
    # Only the calls of `converse` are traced; the Tie-breaker's is made up of what its prompt would hold.
    inputs = {**held.trace[0][1], "debate": "all of it"}
    trace = [*held.trace, (object(), inputs, dspy.Prediction(side="Critic"))]
    told = call_feedback(held.example, held.prediction, trace, (inputs, trace[-1][2]), "tie-breaker").splitlines()
    assert told[0].startswith(f"The Tie-breaker took the {side} side: the score went from 3.5 to 1, ")


def test_candidates_out_of_order_are_told_with_how_much() -> None:
    held = Held(by_turn("2", "5", "3"), [4, 1, 3], 0)
    assert held.told("scorer", 1, 0)[1:] == [
        "Out of order: the raters put another candidate 3.00 below this one, but it has 5 and this one 2.",
        "Out of order: the raters put another candidate 1.00 below this one, but it has 3 and this one 2.",
    ]


def test_second_tries_and_samples_belong_to_one_turn() -> None:
    seen: list[str] = []

    def unsure(prompt: str) -> str:
        seen.append(prompt)
        return "many" if section(prompt, "debate") and not section(prompt, "correction") else "3"

    held = Held(debater(score=unsure, decision="ISSUE"), [5], 2)
    assert len(held.calls("scorer", 1)) == 5
    told = [held.told("scorer", 1, number)[0] for number in range(5)]
    assert (
        told
        == ["The score 3 is 2.00 too low, for the raters' mean is 5.00."]
        + ["After the critique the score stayed at 3, 2.00 too low, for the raters' mean is 5.00."] * 4
    )

    judge = Debate(STRICT, DebateConfig(1), score_mode="sampled:3")
    sampled = Held(debater(score="3", decision="ISSUE"), [5], 1, judge)
    assert len(sampled.calls("scorer", 1)) == 6
    assert sampled.told("scorer", 1, 5)[0] == told[1]


def test_a_call_that_ended_its_debate_unread_is_told_so() -> None:
    held = Held(debater(score="many"), [5], 1)
    assert held.told("scorer", 1, 1) == ["No score came of this call: unreadable reply."]


def test_a_call_about_no_item_gets_what_is_said_about_all() -> None:
    held = Held(by_turn("2", "5"), [4, 1], 0)
    inputs = {"question": "?"}
    told = call_feedback(held.example, held.prediction, held.trace, (inputs, dspy.Prediction()), "scorer")
    assert told == group_feedback(held.example, held.prediction)


def test_no_text_under_evaluation_is_repeated() -> None:
    held = Held(by_turn("1/2/3.8", "5/3.5/1"), [4, 3], 2)
    for role, count in (("scorer", 3), ("critic", 2)):
        for text in (1, 2):
            for number in range(count):
                told = "\n".join(held.told(role, text, number))
                assert "Text" not in told
                assert "A source" not in told


def test_a_call_about_several_candidates_is_told_what_came_of_each() -> None:
    def script(prompt: str) -> str:
        names = ["candidate_1", "candidate_2"]
        if "decisions" in requested(prompt):
            return f"[[ ## decisions ## ]]\n{names[0]}: TOO HIGH\n{names[1]}: NO ISSUE\n\n[[ ## {names[0]} ## ]]\nNo."
        lines = "\n".join(f"{name}: {3 if 'No.' in section(prompt, 'debate') else 4}" for name in names)
        return "\n\n".join([*(f"[[ ## {name} ## ]]\nSo." for name in names), f"[[ ## scores ## ]]\n{lines}"])

    held = Held(script, [4, 4], 1, Debate(STRICT, DebateConfig(1), together=2))
    opening, review, revision = held.trace
    first, *others = (
        call_feedback(held.example, held.prediction, held.trace, call[1:], role)
        for call, role in zip((opening, review, revision), ("scorer", "critic", "scorer"), strict=True)
    )
    assert [line[:12] for line in first.splitlines() if "The score 4" in line] == ["Candidate 1:", "Candidate 2:"]
    assert "Candidate 1: NO ISSUE would have been right" in others[0]
    assert "Candidate 2: NO ISSUE was right" in others[0]
    assert "Candidate 1: The Scorer should not have followed the critique" in others[1]
    assert "Candidate 2" not in others[1]
