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
from tests.programs.tables import JOINT_TASK, joint_reading, judged, or_alone, reading, shown

COHERENCE, STYLE = JOINT_TASK.aspects


def rated(item: Item, rating: float = 3.0) -> RatedExample:
    return RatedExample(item.aspect.name, item.group, item.source, "", item.text, rating)


def texts(count: int, *, source: bool, group: str = "") -> list[Item]:
    return [
        replace(ITEM, group=group or str(n), context="", source=f"Source {n}." * source, text=f"Text number {n}.")
        for n in range(count)
    ]


def candidates(prompt: str, field: str) -> set[str]:
    """Those with their ratings in a field of a prompt."""
    told = section(prompt, field).splitlines()[1:]
    return {candidate["candidate"] for line in told for candidate in json.loads(line)["candidates"]}


@pytest.mark.parametrize("nearest", [0, 3])
@pytest.mark.parametrize("source", [True, False])
def test_no_item_of_a_batch_has_its_rating_in_any_prompt_of_the_debate(source: bool, nearest: int) -> None:
    items = texts(9, source=source)
    judge = Debate(debate_config=DebateConfig(1, tie_breaker=True), together=3, batch_rounds=2)
    judged_by = with_examples(judge, [rated(item) for item in items], nearest)
    assert isinstance(judged_by, Debate)
    _, lm = judged(judged_by, or_alone(reading(lambda _, text: 3, lambda _, text: "TOO HIGH")), items)
    assert len(lm.prompts) == 2 * 3 + 3 + 3 + 3
    for prompt in lm.prompts:
        of_others = {item.text for item in items} - set(shown(prompt).values())
        told = candidates(prompt, "similar" if nearest else "examples")
        assert len(told) == (nearest or 6)
        assert told <= of_others


@pytest.mark.parametrize("nearest", [0, 1])
def test_no_candidate_of_a_group_without_a_source_has_its_own_rating(nearest: int) -> None:
    items = texts(3, source=False, group="one")
    other = replace(rated(items[0]), candidate="Another text.")
    judge = with_examples(Debate(debate_config=DebateConfig(0), together=3), [*map(rated, items), other], nearest)
    assert isinstance(judge, Debate)
    _, lm = judged(judge, reading(lambda _, text: 3), items)
    assert [candidates(prompt, "similar" if nearest else "examples") for prompt in lm.prompts] == [{"Another text."}]


def test_a_joint_prompt_has_no_rating_of_its_items_in_an_aspect_that_they_are_not_asked_about() -> None:
    one, two = (replace(item, task=JOINT_TASK) for item in texts(2, source=True))
    asked = [one, replace(two, aspect=STYLE)]
    known = [rated(two), rated(replace(one, aspect=STYLE))]
    judge = Debate(debate_config=DebateConfig(0), together=2, joint=True, batch_rounds=1)
    told, plain = (
        judged(own, joint_reading(lambda *_: 3), asked)[1].prompts
        for own in (with_examples(judge, known), judge)
        if isinstance(own, Debate)
    )
    assert len(plain) == 1
    assert told == plain


def test_the_nearest_examples_of_a_batch_are_like_the_sources_of_all_its_items() -> None:
    names = ("river bank", "mountain top", "winter road", "quiet harbour")
    items = [replace(item, source=f"The {name}.") for item, name in zip(texts(4, source=True), names, strict=True)]
    near = [
        replace(rated(item), source=f"That {name}.", candidate=name) for item, name in zip(items, names, strict=True)
    ]
    far = [replace(near[0], source=f"Zzz {n}.", candidate=f"Xyz {n}.") for n in range(4)]
    judge = with_examples(Debate(debate_config=DebateConfig(0), together=4, batch_rounds=1), [*far, *near], 4)
    assert isinstance(judge, Debate)
    _, lm = judged(judge, reading(lambda _, text: 3), items)
    assert candidates(lm.prompts[0], "similar") == set(names)
