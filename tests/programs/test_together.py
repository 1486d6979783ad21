"""Candidates of one source in one call: who is asked about what, and what is done with calls that fail."""

from __future__ import annotations

import re
from dataclasses import replace

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.programs import preset
from debate_judge.programs.debate import table
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.grouping import grouped
from debate_judge.programs.judge import DebateConfig, Item
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.offline.engine import OfflineEngine
from tests.fakes import Script, in_turn, scripted_lm, section
from tests.programs.debates import hold
from tests.programs.four_candidates import FOUR, by_text
from tests.programs.tables import items, judged, part, reading, reply_limits, shown, table_judge, values, wanted


def test_one_call_scores_all_candidates_of_a_source() -> None:
    judgements, lm = judged(table_judge(), reading(by_text), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 1
    assert sorted(shown(lm.prompts[0]).values()) == ["four", "one", "three", "two"]
    assert [(j.calls, j.transcript.together) for j in judgements] == [(0.25, 4)] * 4
    assert [j.transcript.turns[0].text for j in judgements][1] == "It reads:\ntwo\nso."
    # The call that opens a debate is the single call: it names no other role.
    assert not re.search("Critic|Tie-breaker", lm.prompts[0])


def test_tables_hold_at_most_k_and_are_of_even_size() -> None:
    many = items(*(f"{word} {n}" for n in range(3) for word in ("one", "two", "three", "four")))[:11]
    _, lm = judged(table_judge(together=4), reading(lambda p, text: by_text(p, text.split()[0])), many)
    assert sorted(len(shown(prompt)) for prompt in lm.prompts) == [3, 4, 4]


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


def test_the_seed_of_the_order_leaves_each_in_its_company() -> None:
    many = items(*(f"text {n}" for n in range(16)))

    def tables(seed: int) -> list[list[str]]:
        judge = table_judge(together=6)
        judge.order = seed
        return [[item.text for item in table.items] for table in grouped(judge, many).tables]

    for seed in (1, 2):
        assert [set(table) for table in tables(seed)] == [set(table) for table in tables(0)]
        assert not [table for table in tables(seed) if table in tables(0)]


def test_equal_texts_are_shown_once() -> None:
    judgements, lm = judged(table_judge(), reading(by_text), items("one", "two", "one"))
    assert values(judgements) == [1, 2, 1]
    assert sorted(shown(lm.prompts[0]).values()) == ["one", "two"]


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


def test_later_turns_and_the_tie_breaker_keep_to_the_parts() -> None:
    _, lm = judged(table_judge(1, tie_breaker=True), with_context(3), FOUR)
    # The whole table is tried once; then opening, review, revision and tie-break, each in two halves.
    assert [len(shown(prompt)) for prompt in lm.prompts] == [4] + [2] * 8


def with_context(most: int) -> Script:
    honest = reading(by_text, lambda prompt, text: "TOO LOW")

    def script(prompt: str) -> str:
        if len(shown(prompt)) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    return script


def test_a_prompt_that_is_known_to_be_too_long_is_not_sent() -> None:
    lm = scripted_lm(too_small(1))
    lm.context = 10
    judgements = hold(lm, table_judge().judge(FOUR))
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 4
    assert [(j.calls, j.transcript.together) for j in judgements] == [(1, 1)] * 4


@pytest.mark.parametrize("context", [None, 10])
@pytest.mark.parametrize(("mode", "samples"), [("text", 1), ("sampled:4", 4)])
def test_only_calls_that_were_made_are_counted(mode: str, samples: int, context: int | None) -> None:
    lm = scripted_lm(too_small(1))
    lm.context = context
    judgements = hold(lm, table_judge(score_mode=mode).judge(FOUR))
    assert len(lm.prompts) == samples * (4 if context else 7)
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


@pytest.mark.parametrize("sent", [False, True])
def test_where_the_second_try_is_too_long_what_is_missing_is_asked_about_in_halves(
    monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    honest = reading(by_text)

    def script(prompt: str) -> str:
        if section(prompt, "correction"):
            raise lm15.ContextLengthError("prompt is too long", status=400)
        reply = honest(prompt)
        return re.sub("candidate_[14]: .*", "", reply) if len(shown(prompt)) == 4 else reply

    lm = scripted_lm(script)
    if not sent:
        lm.context = 10
        monkeypatch.setattr(table, "_exceeds", lambda asked: "could not be used" in asked[-1]["content"])
    judgements = hold(lm, table_judge().judge(FOUR))
    assert values(judgements) == [1, 2, 3, 4]
    assert [len(shown(prompt)) for prompt in lm.prompts] == [4] * (2 if sent else 1) + [2, 2]
    assert [wanted(prompt, "scores") for prompt in lm.prompts[-2:]] == [[1], [4]]
    assert [j.calls for j in judgements] == [1.75 if sent else 1.25, 0.25, 0.25, 1.75 if sent else 1.25]
    assert {j.transcript.together for j in judgements} == {2}


@pytest.mark.parametrize(("limit", "given"), [(2000, 2000), (300, 1000), (None, None)])
def test_a_reply_about_several_has_room_for_all(limit: int | None, given: int | None) -> None:
    assert reply_limits(table_judge(), FOUR, limit) == [given]


def test_the_context_of_a_known_model_is_known() -> None:
    known, own = (
        make_lm("openai/gpt-4o-mini", api_base=base, engine=OfflineEngine()) for base in (None, "http://x/v1")
    )
    assert (known.context, known.without_batches().context, own.context) == (128_000, 128_000, None)


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
