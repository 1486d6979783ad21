"""How a score comes about: the score modes, G-Eval's steps and form, and feedback on a group's scores."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.geval import GEval
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.replies import Messages, Reply
from debate_judge.programs.role import point_probabilities
from tests.fakes import ScriptedLM, debater, hold, only, requested, scripted_lm, section
from tests.programs.debates import ITEM, issue_reply, judged, no_issue_reply, score_reply


def token(*alternatives: tuple[str, float]) -> tuple[tuple[str, float], ...]:
    """The token first that was chosen, each with its probability."""
    return tuple((text, math.log(probability)) for text, probability in alternatives)


@pytest.mark.parametrize(
    ("written", "tokens", "weights"),
    [
        ("4", [token(("4", 0.5), ("2", 0.5))], {4: 0.5, 2: 0.5}),
        # Tokens off the scale have no weight; the others are normalized.
        ("4", [token(("4", 0.6), ("2", 0.2), ("9", 0.1), ("four", 0.1))], {4: 0.75, 2: 0.25}),
        # The chosen token listed once more counts once; tokens that differ by a blank are one point.
        ("4", [token(("4", 0.4), ("4", 0.4), (" 4", 0.1), ("2", 0.5))], {4: 0.5, 2: 0.5}),
        # The score is at the end, and its token may include the blank before it.
        ("4", [token(("4", 1)), token((" pages:", 1)), token((" 4", 0.5), (" 2", 0.5))], {4: 0.5, 2: 0.5}),
        # Neither -1 nor 0 is a point.
        ("1", [token(("1", 0.25), ("-1", 0.25), ("0", 0.25), ("2", 0.25))], {1: 0.5, 2: 0.5}),
        # All are called impossible.
        ("4", [(("4", -9999.0), ("5", -9999.0), ("x", -9999.0))], {4: 0.5, 5: 0.5}),
    ],
)
def test_points_are_weighed_where_the_score_stands(written: str, tokens: Any, weights: dict[int, float]) -> None:
    assert point_probabilities(written, tokens, Scale(1, 5)) == pytest.approx(weights)


class Endpoint:
    """An engine whose scores have `weights` over the points, one after the other or for ever the last, as
    log-probabilities where they are requested and `given`; it leaves them out or refuses them otherwise. Its Critic
    objects once.
    """

    def __init__(self, *weights: dict[str, float], logprobs: str = "given") -> None:
        self.weights, self.logprobs = list(weights), logprobs
        self.prompts: list[str] = []
        self.requests: list[bool] = []
        """Whether each call requested log-probabilities."""

    async def chat(self, model: str, messages: Messages, settings: dict[str, Any]) -> Reply:
        self.prompts.append(messages[-1]["content"])
        asked = bool(settings.get("logprobs"))
        self.requests.append(asked)
        if asked and self.logprobs == "refused":
            raise lm15.InvalidRequestError("logprobs is not supported")
        if asked and self.logprobs == "unsupported":
            raise lm15.CapabilityError("no log-probabilities")
        name = requested(self.prompts[-1])[0]
        if name == "steps":
            return Reply("[[ ## steps ## ]]\n1. Read.")
        if name == "feedback":
            return Reply(issue_reply() if len(self.prompts) == 2 else no_issue_reply())
        weights = self.weights.pop(0) if len(self.weights) > 1 else self.weights[0]
        likeliest = max(weights, key=lambda point: weights[point])
        text = score_reply(likeliest) if name == "rationale" else f"[[ ## score ## ]]\n{likeliest}"
        if not asked or self.logprobs != "given":
            return Reply(text)
        listed = ((likeliest, math.log(weights[likeliest])), *token(*weights.items()))
        return Reply(text, logprobs=[[(text[:-1], 0.0)], listed])


def expected_by(endpoint: Endpoint, rounds: int) -> Any:
    judge = Debate(rounds=rounds, score_mode="expected")
    return hold(JudgeLM("scripted/likely", transport=endpoint), only(judge.judge([ITEM])))


def test_expected_weighs_the_points_of_the_first_score_and_of_every_revision() -> None:
    engine = Endpoint({"4": 0.75, "5": 0.25}, {"2": 0.5, "3": 0.3, "4": 0.2})
    verdict = expected_by(engine, rounds=2)
    first, _, revised, _ = verdict.transcript.turns
    assert (first.score, revised.score) == (pytest.approx(4.25), pytest.approx(2.7))
    assert verdict.score == pytest.approx(2.7)
    # Only the Scorer's calls request log-probabilities, and the Critic gets the weighted score.
    assert engine.requests == [True, False, True, False]
    assert "Scorer, round 0, score 4.25: Because." in section(engine.prompts[1], "debate")


def test_an_endpoint_without_probabilities_leaves_the_item_unscored_and_no_other_mode_is_taken() -> None:
    engine = Endpoint({"4": 1.0}, logprobs="left out")
    detail = expected_by(engine, rounds=3).detail
    assert "log-probabilities" in detail
    assert "sampled:20" in detail
    assert len(engine.prompts) == 1


def test_sampled_averages_the_samples_and_takes_the_reasons_of_the_nearest() -> None:
    samples = iter([score_reply(2), score_reply(4, "High."), score_reply(4, "High too."), score_reply(5)])
    lm = scripted_lm(lambda prompt: next(samples) if requested(prompt)[0] == "rationale" else no_issue_reply())
    verdict = hold(lm, only(Debate(rounds=1, score_mode="sampled:4").judge([ITEM])))
    assert (verdict.score, verdict.calls) == (3.75, 5)
    assert "score 3.75: High." in section(lm.prompts[-1], "debate")
    # Four samples are four calls of one text.
    assert len(set(lm.prompts[:4])) == 1


def test_an_unreadable_sample_is_left_out_and_too_many_leave_the_item_unscored() -> None:
    judge = Debate(rounds=0, score_mode="sampled:3")
    verdict, _ = judged(judge, *map(score_reply, (2, "none", 4, "never")))
    assert (verdict.score, verdict.calls) == (3.0, 4)
    unscored, _ = judged(judge, *map(score_reply, (2, "none", "no", "never", "not")))
    assert "2 of 3 samples" in unscored.detail
    assert unscored.calls == 5


# --- G-Eval: steps are derived once and reused ---

WARMTH = Aspect("warmth", "Is the text friendly?", Scale(1, 5))


def rater(**options: Any) -> ScriptedLM:
    """Derives steps that name the aspect, and scores."""
    script = debater(score="4", steps=lambda prompt: f"1. Read for {section(prompt, 'aspect').split()[0]}.")
    return scripted_lm(script, **options)


async def judge_all(judge: GEval, items: list[Item]) -> list[Any]:
    return await asyncio.gather(*(only(judge.judge([item])) for item in items))


def notes(number: int, aspect: Aspect = ITEM.aspect) -> list[Item]:
    return [replace(ITEM, aspect=aspect, text=f"Note {n}.", source=f"Letter {n}.") for n in range(number)]


def test_steps_are_derived_once_for_each_aspect_and_reused() -> None:
    lm = rater(latency=0.01)
    judgements = hold(lm, judge_all(GEval("text"), [*notes(3), *notes(3, WARMTH)]))
    assert lm.meter.requested == {"steps": 2, "scorer": 6}
    forms = sorted(section(prompt, "steps") for prompt in lm.prompts if section(prompt, "candidate"))
    assert forms == ["1. Read for coherence."] * 3 + ["1. Read for warmth."] * 3
    # Of each aspect, one item caused the derivation and counts it.
    assert [j.calls for j in judgements] == [2, 1, 1, 2, 1, 1]
    # Task and aspect alone: no text has a part in the steps of the others.
    assert all(
        "Note" not in prompt and "Letter" not in prompt for prompt in lm.prompts if requested(prompt) == ["steps"]
    )


def test_an_exported_judge_does_not_ask_for_steps_again() -> None:
    judge = GEval("sampled:3")
    hold(rater(), only(judge.judge([ITEM])))
    config = json.loads(json.dumps(judge.config()))
    assert config == {"score_mode": "sampled:3", "steps": {ITEM.task.name: {"coherence": "1. Read for coherence."}}}
    again, lm = GEval.from_config(config), rater()
    again.load_state(judge.dump_state())
    assert hold(lm, only(again.judge([ITEM]))).calls == 3
    assert lm.meter.requested["steps"] == 0
    # Another task may have an aspect of the same name; it gets other steps.
    hold(lm, only(again.judge([replace(ITEM, task=replace(ITEM.task, name="poems"))])))
    assert lm.meter.requested["steps"] == 1


FOUR = {"4": 0.75, "5": 0.25}


def test_by_default_geval_weighs_the_points_of_the_scale_where_the_lm_gives_probabilities() -> None:
    lm = JudgeLM("scripted/weighing", transport=(endpoint := Endpoint(FOUR)))
    judge = GEval()
    judgements = hold(lm, judge_all(judge, notes(3)))
    assert [j.score for j in judgements] == [4.25] * 3
    assert sorted(endpoint.requests) == [False, True, True, True]  # the first derives the steps
    assert judgements[0].reason.startswith("probabilities: 4 (75.0%), 5 (25.0%). By these steps")
    assert judge.config()["score_mode"] == "auto"


@pytest.mark.parametrize("logprobs", ["left out", "refused", "unsupported"])
def test_where_the_lm_gives_none_geval_takes_twenty_samples_and_says_so(
    logprobs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lm = JudgeLM(f"scripted/{logprobs.replace(' ', '-')}", transport=(endpoint := Endpoint(FOUR, logprobs=logprobs)))
    judge = GEval()
    judgements = hold(lm, judge_all(judge, notes(3)))
    hold(lm, judge_all(judge.deepcopy(), notes(1)))
    # One item finds out, the others need not ask; the steps count for it, too.
    assert [j.calls for j in judgements] == [22, 20, 20]
    # With the derivation of the steps.
    assert (endpoint.requests.count(True), endpoint.requests.count(False)) == (1, 61)
    assert all("the LM gives no log-probabilities: 20 samples: 4 (x20)" in j.reason for j in judgements)
    assert [record.getMessage() for record in caplog.records if "G-Eval" in record.getMessage()] == [
        f"G-Eval: {lm.model} gives no log-probabilities; scores are the mean of 20 samples"
    ]
