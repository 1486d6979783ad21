"""Rated examples in prompts about several items: no item of the prompt has its own rating among them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item
from debate_judge.programs.roles.examples import RatedExample, with_examples
from tests.fakes import section
from tests.programs.debates import ITEM
from tests.programs.tables import JOINT_TASK, joint_reading, judged, reading

COHERENCE, STYLE = JOINT_TASK.aspects


def rated(item: Item, rating: float = 3.0) -> RatedExample:
    return RatedExample(item.aspect.name, item.group, item.source, "", item.text, rating)


def texts(count: int) -> list[Item]:
    """Candidates of a group without a source."""
    return [replace(ITEM, group="one", context="", source="", text=f"Text number {n}.") for n in range(count)]


def candidates(prompt: str, field: str) -> set[str]:
    """Those with their ratings in a field of a prompt."""
    told = section(prompt, field).splitlines()[1:]
    return {candidate["candidate"] for line in told for candidate in json.loads(line)["candidates"]}


@pytest.mark.parametrize("nearest", [0, 1])
def test_no_candidate_of_a_group_without_a_source_has_its_own_rating(nearest: int) -> None:
    items = texts(3)
    other = replace(rated(items[0]), candidate="Another text.")
    judge = with_examples(Debate(debate_config=DebateConfig(0), together=3), [*map(rated, items), other], nearest)
    assert isinstance(judge, Debate)
    _, lm = judged(judge, reading(lambda _, text: 3), items)
    assert [candidates(prompt, "similar" if nearest else "examples") for prompt in lm.prompts] == [{"Another text."}]


def test_a_joint_prompt_has_no_rating_of_its_items_in_an_aspect_that_they_are_not_asked_about() -> None:
    one, two = (replace(item, task=JOINT_TASK) for item in texts(2))
    asked = [one, replace(two, aspect=STYLE)]
    known = [rated(two), rated(replace(one, aspect=STYLE))]
    judge = Debate(debate_config=DebateConfig(0), together=2, joint=True)
    told, plain = (
        judged(own, joint_reading(lambda *_: 3), asked)[1].prompts
        for own in (with_examples(judge, known), judge)
        if isinstance(own, Debate)
    )
    assert len(plain) == 1
    assert told == plain
