"""Candidates of one source in one call: order, splitting, and calls that fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import Persona
from debate_judge.programs.grouping import group_into_questions
from debate_judge.programs.judge import DebateConfig, Item, Unscored
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.roles.examples import RatedExample, with_examples
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, hold, in_turn, requested, scripted_lm, section
from tests.programs.debates import ITEM
from tests.programs.tables import (
    block,
    items,
    judged,
    or_single_script,
    requested_candidates,
    shown_candidates,
    table_judge,
    table_script,
    values,
)
from tests.programs.test_joint import THREE, limited

FOUR = items("one", "two", "three", "four")


def by_text(prompt: str, text: str) -> int:
    return {"one": 1, "two": 2, "three": 3, "four": 4}[text]


def number_of(prompt: str, text: str) -> int:
    return next(number for number, told in shown_candidates(prompt).items() if told == text)


def line_of(prompt: str, text: str) -> str:
    return f"candidate_{number_of(prompt, text)}: {by_text(prompt, text)}"


# --- reading of replies ---


def test_one_call_scores_all_candidates_of_a_source() -> None:
    judgements, lm = judged(table_judge(), table_script(by_text), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 1
    assert sorted(shown_candidates(lm.prompts[0]).values()) == ["four", "one", "three", "two"]
    assert [(j.calls, j.transcript.together) for j in judgements] == [(0.25, 4)] * 4
    assert [j.transcript.turns[0].text for j in judgements][1] == "It reads:\ntwo\nso."
    # The call that opens a debate is the single call: it names no other role.
    assert not re.search("Critic|Tie-breaker", lm.prompts[0])


def test_the_order_depends_on_texts_and_seed_and_not_on_arrival() -> None:
    def order(candidates: list[Item], seed: int = 0) -> list[str]:
        judge = table_judge()
        judge.order = seed
        _, lm = judged(judge, table_script(by_text), candidates)
        return list(shown_candidates(lm.prompts[0]).values())

    first = order(FOUR)
    assert order(FOUR[::-1]) == first
    assert {tuple(order(FOUR, seed)) for seed in range(6)} != {tuple(first)}


def test_a_call_from_python_sends_what_a_run_sends() -> None:
    _, by_run = judged(table_judge(together=3), table_script(by_text), FOUR)
    by_call = scripted_lm(table_script(by_text))
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
    script = table_script(lambda _, text: 2 if text == "same text" else 4, lambda _, text: "TOO LOW")
    judgements, lm = judged(judge, script, [*groups[0], *groups[1]])
    assert values(judgements) == [2, 4, 2, 4]
    assert len(lm.prompts) == 2 * 4
    assert sum(j.calls for j in judgements) == 8
    assert {tuple(sorted(shown_candidates(prompt).values())) for prompt in lm.prompts} == {
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
    honest = table_script(by_text)

    def script(prompt: str) -> str:
        if len(shown_candidates(prompt)) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        if section(prompt, "candidate"):
            return f"{block('rationale', 'So.')}\n\n{block('score', by_text('', section(prompt, 'candidate')))}"
        return honest(prompt)

    return script


def test_a_refused_text_leaves_the_others_scored() -> None:
    honest = too_small(4)

    def script(prompt: str) -> str:
        if "three" in (*shown_candidates(prompt).values(), section(prompt, "candidate")):
            raise lm15.InvalidRequestError("this text is not allowed", status=400)
        return honest(prompt)

    judgements, lm = judged(table_judge(), script, FOUR)
    assert values(judgements) == [1, 2, "lm error", 4]
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


def test_texts_without_a_source_are_no_candidates_of_one() -> None:
    alone = [replace(item, source="", context="", group=str(i)) for i, item in enumerate(items("a", "b"))]
    assert [len(table.items) for table in group_into_questions(table_judge(), alone).questions] == [1, 1]
    together = [replace(item, group="g") for item in alone]
    assert [len(table.items) for table in group_into_questions(table_judge(), together).questions] == [2]


def replying(change: Callable[[str, str], str]) -> Script:
    """The honest script, whose first reply is changed by `change` of the prompt and the reply."""
    honest, seen = table_script(by_text), list[str]()

    def script(prompt: str) -> str:
        seen.append(prompt)
        return change(prompt, honest(prompt)) if len(seen) == 1 else honest(prompt)

    return script


def without(*texts: str) -> Callable[[str, str], str]:
    def change(prompt: str, reply: str) -> str:
        for text in texts:
            reply = reply.replace(line_of(prompt, text), "")
        return reply

    return change


def instead(text: str, line: str) -> Callable[[str, str], str]:
    """Another line for a candidate; `line` has its label in place of {}."""
    return lambda prompt, reply: reply.replace(
        line_of(prompt, text), line.format(f"candidate_{number_of(prompt, text)}")
    )


GAPS: dict[str, tuple[Callable[[str, str], str], list[str], str]] = {
    "one missing": (without("two"), ["two"], "it was missing"),
    "two missing": (without("two", "four"), ["two", "four"], "it was missing"),
    "twice, and different": (instead("three", "{0}: 3\n{0}: 4"), ["three"], "twice with different content"),
    "no number": (instead("one", "{}: excellent"), ["one"], "no score"),
    "two numbers": (instead("one", "{}: 1 or 2"), ["one"], "no score"),
    "off the scale": (instead("four", "{}: 9"), ["four"], "outside the scale"),
    "of another scale": (instead("four", "{}: 4/10"), ["four"], "on another scale"),
    "its section twice": (
        lambda prompt, reply: block(line_of(prompt, "two").split(":")[0], "Other reasons.") + "\n\n" + reply,
        ["two"],
        "twice with different content",
    ),
    "a foreign name": (lambda p, reply: f"{reply}\ncandidate_5: 3", ["one", "two", "three", "four"], "no candidate_5"),
    "counted from zero": (
        lambda p, reply: re.sub(r"^candidate_(\d):", lambda m: f"candidate_{int(m[1]) - 1}:", reply, flags=re.M),
        ["one", "two", "three", "four"],
        "no candidate_0",
    ),
    "no lines at all": (lambda p, reply: "They are all fine.", ["one", "two", "three", "four"], "it was missing"),
    "nested too deeply": (
        lambda p, reply: "[[ ## scores ## ]]\n" + '{"a":' * 5000,
        ["one", "two", "three", "four"],
        "'scores' looked like a JSON object but was not a valid one",
    ),
    "nothing": (lambda p, reply: " ", ["one", "two", "three", "four"], "empty"),
    "lines elsewhere": (
        lambda p, reply: reply.replace("[[ ## scores ## ]]", "[[ ## summary ## ]]"),
        ["one", "two", "three", "four"],
        "'scores' was missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("gap", GAPS)
def test_only_unreadable_candidates_are_requested_again(gap: str) -> None:
    change, texts, why = GAPS[gap]
    judgements, lm = judged(table_judge(), replying(change), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    first, second = lm.prompts
    asked = sorted(number_of(first, text) for text in texts)
    assert sorted(requested_candidates(second, "scores")) == asked
    assert why in section(second, "correction")
    # The company stays: the table is the same.
    assert shown_candidates(second) == shown_candidates(first)
    again = {item.text for item in FOUR if item.text in texts}
    calls = [j.calls for j in judgements]
    assert calls == [pytest.approx(0.25 + (1 / len(again) if item.text in again else 0)) for item in FOUR]
    assert sum(calls) == pytest.approx(2)


def spoiling(text: str) -> Script:
    """An LM whose replies about a table with `text` cannot be read, as if it repeated the headers in that text."""
    honest = table_script(by_text)

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            return debater(score=str(by_text(prompt, section(prompt, "candidate"))))(prompt)
        return "They are all fine." if text in shown_candidates(prompt).values() else honest(prompt)

    return script


def test_a_table_whose_reply_stays_unreadable_is_asked_again_in_halves() -> None:
    judgements, lm = judged(table_judge(), spoiling("three"), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    # Twice about all, once about the half without the text, twice about the other, and about either of its two alone.
    assert sorted(len(shown_candidates(p)) for p in lm.prompts if not section(p, "candidate")) == [2, 2, 2, 4, 4]
    alone = [section(p, "candidate") for p in lm.prompts if section(p, "candidate")]
    assert len(alone) == 2
    assert "three" in alone
    assert sum(judgement.calls for judgement in judgements) == pytest.approx(len(lm.prompts))


TEXTS = items("one", "two", "three")
PERSONA = Persona("mine", "You doubt everything on Mondays.")


def debate() -> Debate:
    return Debate(PERSONA, DebateConfig(1, tie_breaker=True), together=4)


def prompts(judge: Debate) -> list[str]:
    return judged(judge, table_script(lambda prompt, text: 3, lambda prompt, text: "TOO LOW"), TEXTS)[1].prompts


def test_rated_examples_are_shown_once_for_the_table_and_never_of_its_own_source() -> None:
    own = RatedExample("coherence", "g1", ITEM.source, "", "A leak.", 1.0)
    others = [
        RatedExample("coherence", f"g{n}", f"Letter {n}.", "", f"{word} text", 2.0)
        for n, word in enumerate(("one", "far"))
    ]
    for nearest, field in ((0, "examples"), (1, "similar")):
        told = [section(prompt, field) for prompt in prompts(with_examples(debate(), [own, *others], nearest))]
        assert len(set(told)) == 1
        assert "one text" in told[0]
        assert ("far text" in told[0]) == (nearest == 0)
        assert "A leak." not in told[0]


def test_a_server_error_does_not_split_the_table() -> None:
    """Cut, it would be scored otherwise than by the next run, which finds the server well."""

    def script(prompt: str) -> str:
        if "Reply with OK" in prompt:
            return "OK"
        if "decisions" in requested(prompt):
            raise lm15.RateLimitError("slow down", retry_after=0.001)
        return table_script(lambda p, text: 3)(prompt)

    lm = scripted_lm(script, options=LMOptions(first_wait=0.01))
    with JudgeRunner(lm, progress=False) as runner:
        judgements = runner.judge(debate(), TEXTS)
    assert values(judgements) == ["lm error"] * 3
    assert {len(shown_candidates(prompt)) for prompt in lm.prompts if section(prompt, "task")} == {3}
    assert all(isinstance(j, Unscored) and j.detail.startswith("critic, round 1: ") for j in judgements)
    assert [round(j.calls, 9) for j in judgements] == [round(2 / 3, 9)] * 3


def disputing(*texts: str) -> Callable[[str, str], str | None]:
    return lambda prompt, text: "TOO LOW" if text in texts else None


@pytest.mark.parametrize(("cut_in", "left"), [(1, 2), (2, 2), (2, 1)])
@pytest.mark.parametrize("joint", [False, True])
def test_a_table_split_in_a_later_round_has_the_prefixes_of_shorter_debates(
    joint: bool, cut_in: int, left: int
) -> None:
    """The context holds the whole table until a round, and from then on `left` candidates."""
    items = THREE if joint else FOUR
    judge = Debate(debate_config=DebateConfig(2, tie_breaker=True), together=8, joint=joint)
    honest = limited(99) if joint else or_single_script(table_script(by_text, disputing("one", "two", "three")))

    def script(prompt: str) -> str:
        if f"Critic, round {cut_in}" in section(prompt, "debate") and len(shown_candidates(prompt)) > left:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    def held(n: int, transcripts: list[Transcript] | None = None) -> tuple[list[Transcript], list[Transcript], int]:
        lm = scripted_lm(script)
        told = transcripts or hold(lm, judge.converse(items, n))
        return told, hold(lm, judge.break_ties(items, told)), len(lm.prompts)

    longest, _, _ = held(2)
    assert {t.until(cut_in - 1).together for t in longest} == {len(items) // (2 if joint else 1)}
    assert min(t.together for t in longest) <= left
    for n in (0, 1, 2):
        straight, settled, _ = held(n)
        read, from_longest, calls = held(n, [t.until(n) for t in longest])
        assert read == straight
        assert from_longest == settled
        assert sum(t.calls for t in settled) == pytest.approx(sum(t.calls for t in read) + calls)
