"""The Scorer of a debate in each score mode: what it asks, what the debate hears, what is recorded."""

from __future__ import annotations

import math
from typing import Any

import pytest
from dspy.lm15 import Request

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Unscored, Verdict
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.reply import Messages, Reply
from tests.fakes import debater, only, requested, scripted_lm, section
from tests.programs.debates import ITEM, content, hold, objects, scores


class Likely:
    """An engine that answers the Scorer with `weights` over the points, if it is asked for probabilities."""

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
            return Reply(objects() if len(self.prompts) == 2 else content())
        weights = self.weights.pop(0)
        likeliest = max(weights, key=lambda point: weights[point])
        text = scores(likeliest)
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
    assert isinstance(verdict, Verdict)
    first, _, revised, _ = verdict.transcript.turns
    assert (first.score, revised.score) == (pytest.approx(4.25), pytest.approx(2.7))
    assert verdict.score == pytest.approx(2.7)
    # Only the Scorer is asked for probabilities, and the Critic attacks the score as it was read.
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
    assert isinstance(found, Unscored)
    assert "log-probabilities" in found.detail
    assert "sampled:20" in found.detail
    assert len(engine.prompts) == 1


def test_sampled_averages_the_samples_and_takes_the_reasons_of_the_nearest() -> None:
    samples = iter([scores(2, "Low."), scores(4, "High."), scores(4, "High too."), scores(5, "Top.")])
    lm = scripted_lm(lambda prompt: next(samples) if requested(prompt)[0] == "rationale" else content())
    verdict = hold(lm, only(Debate(debate_config=DebateConfig(rounds=1), score_mode="sampled:4").judge([ITEM])))
    assert isinstance(verdict, Verdict)
    assert verdict.score == 3.75
    assert verdict.calls == 5
    assert "score 3.75: High." in section(lm.prompts[-1], "debate")
    # Four samples are four calls of one text.
    assert len(set(lm.prompts[:4])) == 1


def test_an_unreadable_sample_is_left_out_and_too_many_leave_the_item_unscored() -> None:
    samples = iter([scores(2), scores("none"), scores(4), scores("never")])
    judge = Debate(debate_config=DebateConfig(0), score_mode="sampled:3")
    verdict = hold(scripted_lm(lambda prompt: next(samples)), only(judge.judge([ITEM])))
    assert isinstance(verdict, Verdict)
    assert (verdict.score, verdict.calls) == (3.0, 4)
    samples = iter([scores(2), scores("none"), scores("no"), scores("never"), scores("not")])
    found = hold(scripted_lm(lambda prompt: next(samples)), only(judge.judge([ITEM])))
    assert isinstance(found, Unscored)
    assert "2 of 3 samples, e.g. sample 2" in found.detail
    assert found.calls == 5
