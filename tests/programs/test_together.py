"""Candidates of one source in one call: who is asked about what, and what is done with calls that fail."""

from __future__ import annotations

import re
from dataclasses import replace

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.programs import preset
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.grouping import grouped
from debate_judge.programs.judge import DebateConfig, Item
from tests.fakes import Script, in_turn, scripted_lm, section
from tests.programs.debates import hold
from tests.programs.four_candidates import FOUR, by_text
from tests.programs.tables import items, judged, part, reading, shown, table_judge, values


def test_one_call_scores_all_candidates_of_a_source() -> None:
    judgements, lm = judged(table_judge(), reading(by_text), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 1
    assert sorted(shown(lm.prompts[0]).values()) == ["four", "one", "three", "two"]
    assert [(j.calls, j.transcript.together) for j in judgements] == [(0.25, 4)] * 4
    assert [j.transcript.turns[0].text for j in judgements][1] == "It reads:\ntwo\nso."
    # The call that opens a debate is the single call: it names no other role.
    assert not re.search("Critic|Tie-breaker", lm.prompts[0])


def test_the_order_depends_on_texts_and_seed_and_not_on_arrival() -> None:
    def order(candidates: list[Item], seed: int = 0) -> list[str]:
        judge = table_judge()
        judge.order = seed
        _, lm = judged(judge, reading(by_text), candidates)
        return list(shown(lm.prompts[0]).values())

    first = order(FOUR)
    assert order(FOUR[::-1]) == first
    assert {tuple(order(FOUR, seed)) for seed in range(6)} != {tuple(first)}


def test_a_call_from_python_sends_what_a_run_sends() -> None:
    _, by_run = judged(table_judge(together=3), reading(by_text), FOUR)
    by_call = scripted_lm(reading(by_text))
    with dspy.context(lm=by_call):
        texts = [item.text for item in FOUR[::-1]]
        found = table_judge(together=3)(
            source=FOUR[0].source, texts=texts, aspect=FOUR[0].aspect, task=FOUR[0].task, context=FOUR[0].context
        )
    assert found.scores == [4, 3, 2, 1]
    assert sorted(by_call.prompts) == sorted(by_run.prompts)


@pytest.mark.parametrize("joint", [False, True])
def test_equal_texts_without_a_source_have_a_place_in_the_table_of_each_group(joint: bool) -> None:
    groups = [
        [replace(item, source="", context="", group=f"g{n}") for item in items("same text", f"text of {n}")]
        for n in (1, 2)
    ]
    judge = Debate(debate_config=DebateConfig(1, tie_breaker=True), together=4, joint=joint)
    script = reading(lambda _, text: 2 if text == "same text" else 4, lambda _, text: "TOO LOW")
    judgements, lm = judged(judge, script, [*groups[0], *groups[1]])
    assert values(judgements) == [2, 4, 2, 4]
    assert len(lm.prompts) == 2 * 4
    assert sum(j.calls for j in judgements) == 8
    assert {tuple(sorted(shown(prompt).values())) for prompt in lm.prompts} == {
        ("same text", "text of 1"),
        ("same text", "text of 2"),
    }


def test_a_candidate_that_comes_alone_is_judged_by_the_ordinary_prompt() -> None:
    lm = scripted_lm(in_turn(["[[ ## rationale ## ]]\nSo.\n\n[[ ## score ## ]]\n4"]))
    judgement = hold(lm, table_judge().judge(FOUR[:1]))[0]
    assert values([judgement]) == [4]
    assert (judgement.calls, judgement.transcript.together) == (1, 1)
    assert section(lm.prompts[0], "candidate") == "one"


# --- calls that fail ---


def too_small(most: int) -> Script:
    """An LM whose context holds no more than `most` candidates."""
    honest = reading(by_text)

    def script(prompt: str) -> str:
        if len(shown(prompt)) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        if section(prompt, "candidate"):
            return f"{part('rationale', 'So.')}\n\n{part('score', by_text('', section(prompt, 'candidate')))}"
        return honest(prompt)

    return script


@pytest.mark.parametrize(("most", "size", "calls"), [(3, 2, 3), (1, 1, 7)])
def test_a_table_that_is_too_long_is_cut_into_halves(most: int, size: int, calls: int) -> None:
    judgements, lm = judged(table_judge(), too_small(most), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert {j.transcript.together for j in judgements} == {size}
    assert len(lm.prompts) == calls
    assert sum(j.calls for j in judgements) == pytest.approx(calls)


def test_a_text_that_is_refused_takes_nobody_along() -> None:
    honest = too_small(4)

    def script(prompt: str) -> str:
        if "three" in (*shown(prompt).values(), section(prompt, "candidate")):
            raise lm15.InvalidRequestError("this text is not allowed", status=400)
        return honest(prompt)

    judgements, lm = judged(table_judge(), script, FOUR)
    assert values(judgements) == [1, 2, "lm error", 4]
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


def test_what_goes_not_together_is_refused() -> None:
    for options in (
        {"together": -1},
        {"together": "many"},
        {"together": True},
        {"together": 4, "score_mode": "expected"},
    ):
        with pytest.raises(InputError, match=r"together|candidates"):
            preset("debate", options)
    judge = preset("debate", {"together": 4, "order": 2})
    assert isinstance(judge, Debate)
    assert {(v.together, v.order) for v in judge.variants({"a": "A.", "b": "B."}).values()} == {(4, 2)}
    assert Debate.from_config(judge.config()).together == 4


def test_texts_without_a_source_are_no_candidates_of_one() -> None:
    alone = [replace(item, source="", context="", group=str(i)) for i, item in enumerate(items("a", "b"))]
    assert [len(table.items) for table in grouped(table_judge(), alone).tables] == [1, 1]
    together = [replace(item, group="g") for item in alone]
    assert [len(table.items) for table in grouped(table_judge(), together).tables] == [2]
