"""The Scorer of a debate in each score mode, and the weighted mean over a scale's points."""

from __future__ import annotations

import math
from typing import Any

import pytest
from dspy.lm15 import Request

from debate_judge.data.schema import Scale
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.reply import Messages, Reply
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.score_modes import point_probabilities
from tests.fakes import debater, hold, only, requested, scripted_lm, section
from tests.programs.debates import ITEM, issue_reply, no_issue_reply, score_reply


def token(*alternatives: tuple[str, float]) -> tuple[tuple[str, float], ...]:
    """The token first that was chosen, each with its probability."""
    return tuple((text, math.log(probability)) for text, probability in alternatives)


TWO_OR_FOUR = {4: 0.5, 2: 0.5}


@pytest.mark.parametrize(
    ("written", "tokens", "score", "weights"),
    [
        ("4", [token(("4", 0.5), ("2", 0.5))], 3, TWO_OR_FOUR),
        # Tokens off the scale have no weight; the others are normalized: (0.6 * 4 + 0.2 * 2) / 0.8
        ("4", [token(("4", 0.6), ("2", 0.2), ("9", 0.1), ("four", 0.1))], 3.5, {4: 0.75, 2: 0.25}),
        # The chosen token listed once more counts once; tokens that differ by a blank are one point.
        ("4", [token(("4", 0.4), ("4", 0.4), (" 4", 0.1), ("2", 0.5))], 3, TWO_OR_FOUR),
        ("4/5", [token(("4", 0.5), ("2", 0.5)), token(("/", 1)), token(("5", 1))], 3, TWO_OR_FOUR),
        # The score is at the end, and its token may include the blank before it.
        ("4", [token(("4", 1)), token((" pages:", 1)), token((" 4", 0.5), (" 2", 0.5))], 3, TWO_OR_FOUR),
        # Neither -1 nor 0 is a point.
        ("1", [token(("1", 0.25), ("-1", 0.25), ("0", 0.25), ("2", 0.25))], 1.5, {1: 0.5, 2: 0.5}),
    ],
)
def test_points_are_weighed_where_the_score_stands(
    written: str, tokens: Any, score: float, weights: dict[int, float]
) -> None:
    found = point_probabilities(written, tokens, Scale(1, 5))
    assert found == pytest.approx(weights)
    assert isinstance(found, dict)
    assert sum(point * weight for point, weight in found.items()) == pytest.approx(score)


@pytest.mark.parametrize(
    ("written", "tokens", "why"),
    [
        ("10", [token(("1", 1)), token(("0", 1))], "no token of its own"),
        ("3.5", [token(("3", 1)), token((".", 1)), token(("5", 1))], "between two points"),
        ("4", [token(("three", 1))], "no token of its own"),
        ("12", [token(("12", 1))], "outside the scale"),
    ],
)
def test_a_score_that_is_no_single_token_cannot_be_weighed(written: str, tokens: Any, why: str) -> None:
    found = point_probabilities(written, tokens, Scale(1, 10))
    assert isinstance(found, Unreadable)
    assert why in found.problem


def test_points_that_are_all_called_impossible_are_weighed_all_the_same() -> None:
    found = point_probabilities("4", [(("4", -9999.0), ("5", -9999.0), ("x", -9999.0))], Scale(1, 5))
    assert found == {4: 0.5, 5: 0.5}


class Likely:
    """An engine that replies to the Scorer with `weights` over the points, if log-probabilities are requested."""

    def __init__(self, *weights: dict[str, float], answers: bool = True) -> None:
        self.weights = list(weights)
        self.answers = answers
        self.settings: list[dict[str, Any]] = []
        self.prompts: list[str] = []

    async def complete(self, request: Request) -> Any:
        raise AssertionError("the debate's calls go through chat")

    async def chat(self, model: str, messages: Messages, settings: dict[str, Any]) -> Reply:
        prompt = messages[-1]["content"]
        self.prompts.append(prompt)
        self.settings.append(settings)
        if requested(prompt)[0] != "rationale":
            return Reply(issue_reply() if len(self.prompts) == 2 else no_issue_reply())
        weights = self.weights.pop(0)
        likeliest = max(weights, key=lambda point: weights[point])
        text = score_reply(likeliest)
        if not (self.answers and settings.get("logprobs")):
            return Reply(text)
        listed = tuple((point, math.log(weight)) for point, weight in weights.items())
        return Reply(text, logprobs=[[(text[:-1], 0.0)], ((likeliest, math.log(weights[likeliest])), *listed)])


def likely(engine: Likely) -> JudgeLM:
    return JudgeLM("scripted/likely", engine=engine)


def test_expected_weighs_the_points_of_the_first_score_and_of_every_revision() -> None:
    engine = Likely({"4": 0.75, "5": 0.25}, {"2": 0.5, "3": 0.3, "4": 0.2})
    verdict = hold(
        likely(engine), only(Debate(debate_config=DebateConfig(rounds=2), score_mode="expected").judge([ITEM]))
    )
    first, _, revised, _ = verdict.transcript.turns
    assert (first.score, revised.score) == (pytest.approx(4.25), pytest.approx(2.7))
    assert verdict.score == pytest.approx(2.7)
    # Only the Scorer's calls request log-probabilities, and the Critic gets the weighted score.
    assert [bool(s.get("logprobs")) for s in engine.settings] == [True, False, True, False]
    assert "Scorer, round 0, score 4.25: Because." in section(engine.prompts[1], "debate")


def test_expected_asks_for_whole_points_and_text_for_any_number() -> None:
    engine = Likely({"4": 1.0})
    hold(likely(engine), only(Debate(debate_config=DebateConfig(0), score_mode="expected").judge([ITEM])))
    assert section(engine.prompts[0], "aspect").endswith("\nScores are whole points of the scale.")
    lm = scripted_lm(debater())
    hold(lm, only(Debate(debate_config=DebateConfig(0)).judge([ITEM])))
    assert section(lm.prompts[0], "aspect").endswith(
        "\nA score may lie between two points of the scale, where the candidate does."
    )


def test_an_endpoint_without_probabilities_leaves_the_item_unscored_and_no_other_mode_is_taken() -> None:
    engine = Likely({"4": 1.0}, answers=False)
    found = hold(likely(engine), only(Debate(debate_config=DebateConfig(3), score_mode="expected").judge([ITEM])))
    assert "log-probabilities" in found.detail
    assert "sampled:20" in found.detail
    assert len(engine.prompts) == 1


def test_sampled_averages_the_samples_and_takes_the_reasons_of_the_nearest() -> None:
    samples = iter(
        [score_reply(2, "Low."), score_reply(4, "High."), score_reply(4, "High too."), score_reply(5, "Top.")]
    )
    lm = scripted_lm(lambda prompt: next(samples) if requested(prompt)[0] == "rationale" else no_issue_reply())
    verdict = hold(lm, only(Debate(debate_config=DebateConfig(rounds=1), score_mode="sampled:4").judge([ITEM])))
    assert verdict.score == 3.75
    assert verdict.calls == 5
    assert "score 3.75: High." in section(lm.prompts[-1], "debate")
    # Four samples are four calls of one text.
    assert len(set(lm.prompts[:4])) == 1


def test_an_unreadable_sample_is_left_out_and_too_many_leave_the_item_unscored() -> None:
    samples = iter([score_reply(2), score_reply("none"), score_reply(4), score_reply("never")])
    judge = Debate(debate_config=DebateConfig(0), score_mode="sampled:3")
    verdict = hold(scripted_lm(lambda prompt: next(samples)), only(judge.judge([ITEM])))
    assert (verdict.score, verdict.calls) == (3.0, 4)
    samples = iter([score_reply(2), score_reply("none"), score_reply("no"), score_reply("never"), score_reply("not")])
    found = hold(scripted_lm(lambda prompt: next(samples)), only(judge.judge([ITEM])))
    assert "2 of 3 samples, e.g. sample 2" in found.detail
    assert found.calls == 5
