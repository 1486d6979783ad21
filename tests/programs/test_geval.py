"""G-Eval: steps are derived once and reused; how each mode gets a score from the form."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.geval.judge import GEval
from debate_judge.programs.judge import Item, Verdict
from debate_judge.programs.roles.score_modes import ScoreMode
from tests.fakes import ScriptedLM, debater, hold, in_turn, only, requested, scripted_lm, section

CLARITY = Aspect("clarity", "Is the text easy to follow?", Scale(1, 5))
WARMTH = Aspect("warmth", "Is the text friendly?", Scale(1, 5))
TASK = Task("notes", "letter", "note", (CLARITY, WARMTH))
ITEM = Item("g", "c", TASK, CLARITY, "A long letter.", "A short note.")


def rater(score: str = "4", **options: Any) -> ScriptedLM:
    """Derives steps that name the aspect, and fills in `score`."""
    script = debater(score=score, steps=lambda prompt: f"1. Read for {section(prompt, 'aspect').split()[0]}.")
    return scripted_lm(script, **options)


def derivations(lm: ScriptedLM) -> int:
    return sum(requested(prompt) == ["steps"] for prompt in lm.prompts)


def headers(prompt: str) -> list[str]:
    return re.findall(r"^\[\[ ## (\w+) ## \]\]", prompt, re.MULTILINE)


async def judge_all(judge: GEval, items: list[Item]) -> list[Any]:
    return await asyncio.gather(*(only(judge.judge([item])) for item in items))


def notes(number: int, aspect: Aspect = CLARITY) -> list[Item]:
    return [replace(ITEM, aspect=aspect, text=f"Note {n}.", source=f"Letter {n}.") for n in range(number)]


def test_steps_are_derived_once_for_each_aspect_and_reused() -> None:
    lm = rater(latency=0.01)
    judgements = hold(lm, judge_all(GEval(), [*notes(3), *notes(3, WARMTH)]))
    assert lm.meter.requested == {"steps": 2, "scorer": 6}
    forms = [(section(p, "aspect").split()[0], section(p, "steps")) for p in lm.prompts if "candidate" in headers(p)]
    assert sorted(forms) == 3 * [("clarity", "1. Read for clarity.")] + 3 * [("warmth", "1. Read for warmth.")]
    # Of each aspect, one item caused the derivation and counts it.
    assert [j.calls for j in judgements] == [2, 1, 1, 2, 1, 1]
    assert judgements[0].transcript.turns[0].text == "By these steps: 1. Read for clarity."


def test_steps_are_derived_from_task_and_aspect_alone() -> None:
    lm = rater()
    hold(lm, only(GEval().judge([replace(ITEM, context="Some background.")])))
    assert headers(lm.prompts[0]) == ["task", "aspect", "role", "steps"]
    assert "context" not in section(lm.prompts[0], "task")
    form = ["task", "source", "context", "aspect", "steps", "role", "candidate", "score"]
    assert headers(lm.prompts[1]) == form


def test_an_exported_judge_does_not_ask_for_steps_again() -> None:
    judge = GEval("sampled:3")
    hold(rater(), only(judge.judge([ITEM])))
    config = json.loads(json.dumps(judge.config()))
    assert config == {"score_mode": "sampled:3", "steps": {"notes": {"clarity": "1. Read for clarity."}}}
    again, lm = GEval.from_config(config), rater()
    again.load_state(judge.dump_state())
    assert hold(lm, only(again.judge([ITEM]))).calls == 3
    assert derivations(lm) == 0
    assert again.config() == config
    # Another task may have an aspect of the same name; it gets other steps.
    hold(lm, only(again.judge([replace(ITEM, task=replace(TASK, name="poems"))])))
    assert derivations(lm) == 1


def test_a_tuner_finds_both_predictors_and_new_instructions_give_new_steps() -> None:
    judge, lm = GEval(), rater()
    assert judge.tunable() == tuple(judge.instructions()) == ("steps", "scorer")
    hold(lm, only(judge.judge([ITEM])))
    tuned = judge.deepcopy()
    predictor = tuned.steps
    predictor.signature = predictor.signature.with_instructions("Think of steps.")
    # Steps of other instructions are not this judge's.
    assert tuned.config()["steps"] == {}
    hold(lm, only(tuned.judge([ITEM])))
    assert section(lm.prompts[2], "role").startswith("Think of steps.")
    hold(lm, only(judge.judge([ITEM])))
    assert derivations(lm) == 2


def test_failed_steps_leave_every_waiting_item_unscored_and_are_asked_for_anew_later() -> None:
    judge = GEval()
    lm = scripted_lm(in_turn(["", ""]), latency=0.01)
    first = hold(lm, judge_all(judge, notes(3)))
    assert [j.reason for j in first] == 3 * ["unreadable reply"]
    assert all(j.detail.startswith("steps, round 0: ") and "[kept as " in j.detail for j in first)
    # One question and its correction; the others get the stored replies.
    assert len(lm.prompts) == 2
    assert isinstance(hold(rater(), only(judge.judge([ITEM]))), Verdict)


def test_an_item_that_waits_for_steps_derives_them_when_the_first_is_interrupted() -> None:
    async def interrupt(judge: GEval) -> Any:
        first = asyncio.create_task(only(judge.judge([ITEM])))
        second = asyncio.create_task(only(judge.judge([replace(ITEM, text="Another note.")])))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    verdict = hold(rater(latency=0.01), interrupt(GEval()))
    assert isinstance(verdict, Verdict)
    assert verdict.calls == 2


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("text", ScoreMode("text")),
        ("expected", ScoreMode("expected")),
        ("sampled", ScoreMode("sampled", 20)),
        ("sampled:5", ScoreMode("sampled", 5)),
    ],
)
def test_modes_are_read_and_written(text: str, mode: ScoreMode) -> None:
    assert ScoreMode.parse(text) == mode
    assert ScoreMode.parse(str(mode)) == mode
