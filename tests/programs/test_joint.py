"""Several aspects in one call: the cells of each call, reading of replies, and costs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from dspy import lm15

from debate_judge.programs import build_preset
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Judgement, Verdict
from tests.fakes import Script, debater, requested, section
from tests.programs.tables import (
    block,
    cells,
    joint_judge,
    joint_table_script,
    judged,
    reply_limits,
    requested_cells,
    shown_candidates,
    table_judge,
    values,
)

THREE = cells("one", "two", "three")
"""Three candidates in two aspects; all of coherence come first."""

WORTH = {"one": 1, "two": 2, "three": 3}

TRUE = [1, 2, 3, 10, 9, 8]
"""Their scores: coherence as in `WORTH`, plain style in reverse order on its own scale."""


def true(prompt: str, text: str, aspect: str) -> float:
    return WORTH[text] if aspect == "coherence" else 11 - WORTH[text]


HONEST = joint_table_script(true)


def name_of(prompt: str, text: str, aspect: str) -> str:
    number = next(number for number, told in shown_candidates(prompt).items() if told == text)
    return f"candidate_{number}_{aspect}"


# --- calls that fail ---


def limited(most: int) -> Script:
    """An LM whose context holds no more than `most` cells; it finds an issue in everything."""
    honest = joint_table_script(true, lambda *_: "TOO LOW")

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            score = true(prompt, section(prompt, "candidate"), section(prompt, "aspect").partition(" (")[0])
            field = "final_score" if "final_score" in requested(prompt) else "score"
            if "decision" in requested(prompt):
                return "\n\n".join([block("review", "Well."), block("decision", "ISSUE"), block("feedback", "It is.")])
            return f"{block('rationale', 'So.')}\n\n{block('reasoning', 'So.')}\n\n{block(field, f'{score:g}')}"
        if len(shown_candidates(prompt)) * max(1, len(re.findall("## aspect_", prompt))) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    return script


def shapes(judgements: list[Judgement]) -> set[tuple[float, int, int]]:
    """Calls, candidates and aspects of each judgement."""
    return {(round(j.calls, 9), j.transcript.together, j.transcript.joint) for j in judgements}


def test_one_call_scores_all_candidates_in_all_aspects() -> None:
    judgements, lm = judged(joint_judge(), HONEST, THREE)
    assert values(judgements) == TRUE
    (prompt,) = lm.prompts
    assert sorted(shown_candidates(prompt).values()) == ["one", "three", "two"]
    assert shapes(judgements) == {(round(1 / 6, 9), 3, 2)}
    assert judgements[1].transcript.turns[0].text == "coherence of:\ntwo\nso."
    assert judgements[4].transcript.turns[0].text == "plain_style of:\ntwo\nso."
    assert not re.search("Critic|Tie-breaker", prompt)
    # Candidates are compared aspect by aspect.
    order = [name.split("_", 2)[2] for name in requested_cells(prompt, "scores")]
    assert order == ["coherence"] * 3 + ["plain_style"] * 3


@pytest.mark.parametrize("rounds", [0, 1])
def test_with_one_aspect_a_joint_judge_equals_the_ordinary_one(rounds: int) -> None:
    script = joint_table_script(lambda prompt, text, aspect: WORTH[text], lambda *_: "TOO LOW")
    coherence = THREE[:3]
    for together in (0, 4):
        joint, prompts = judged(joint_judge(rounds, together=together), _or_alone(script), coherence)
        other, expected = judged(table_judge(rounds, together=together), _or_alone(script), coherence)
        assert sorted(prompts.prompts) == sorted(expected.prompts)
        assert joint == other


def _or_alone(script: Script) -> Script:
    """`script`, and an LM that scores the first candidate of all that it is asked about one alone."""

    def alone(prompt: str) -> str:
        if "decision" in requested(prompt):
            return "\n\n".join([block("review", "Well."), block("decision", "ISSUE"), block("feedback", "It is.")])
        return f"{block('rationale', 'So.')}\n\n{block('score', WORTH[section(prompt, 'candidate')])}"

    return lambda prompt: alone(prompt) if section(prompt, "candidate") else script(prompt)


# --- the debate ---


def test_only_disputed_cells_are_revised_and_debated_further() -> None:
    def score(prompt: str, text: str, aspect: str) -> float:
        return true(prompt, text, aspect) + (0.5 if section(prompt, "debate") else 0)

    def issues(prompt: str, text: str, aspect: str) -> str | None:
        later = "Critic, round 1" in section(prompt, "debate")
        return "TOO LOW" if text == "two" and (aspect == "coherence" or not later) else None

    judgements, lm = judged(joint_judge(2, tie_breaker=True), joint_table_script(score, issues), THREE)
    assert values(judgements) == [1, 2.5, 3, 10, 9.5, 8]
    reasons = [(j.rounds, j.stop_reason) for j in judgements if isinstance(j, Verdict)]
    assert reasons == [(1, "no issue"), (2, "tie-breaker"), *[(1, "no issue")] * 2, (2, "no issue"), (1, "no issue")]
    first = lm.prompts[0]
    both = [name_of(first, "two", aspect) for aspect in ("coherence", "plain_style")]
    # A revision has new scores of all cells of the disputed aspects, also of undisputed ones.
    assert len(requested_cells(lm.prompts[2], "scores")) == 6
    assert {name.split("_", 2)[2] for name in requested_cells(lm.prompts[4], "scores")} == {"coherence"}
    assert requested_cells(lm.prompts[3], "decisions") == both
    assert requested_cells(lm.prompts[5], "final_scores") == both[:1]
    assert len(lm.prompts) == 6
    # Opening and review 1/6 each; revision and second review 1/2; then one cell alone: 1 and 1.
    assert [round(j.calls, 9) for j in judgements] == [round(x, 9) for x in (1 / 3, 10 / 3, 1 / 3, 1 / 3, 4 / 3, 1 / 3)]
    told = section(lm.prompts[3], "debate").split("\n")
    assert f"{both[1]}: Critic, round 1: Too low. It says two" in told


# --- cells ---


# --- the judge ---


def test_joint_is_part_of_configuration_variants_and_exports() -> None:
    judge = build_preset("debate", {"joint": True, "together": 4, "order": 2})
    assert isinstance(judge, Debate)
    assert {(v.joint, v.together, v.order) for v in judge.variants({"a": "A.", "b": "B."}).values()} == {(True, 4, 2)}
    assert Debate.from_config(judge.config()).joint
    assert not Debate.from_config({k: v for k, v in judge.config().items() if k != "joint"}).joint


def line_of(prompt: str, text: str, aspect: str) -> str:
    return f"{name_of(prompt, text, aspect)}: {true(prompt, text, aspect):g}"


# --- reading of replies ---


def instead(text: str, aspect: str, line: str) -> Callable[[str, str], str]:
    """Another line for a cell; `line` has its name in place of {}."""
    return lambda prompt, reply: reply.replace(
        line_of(prompt, text, aspect), line.format(name_of(prompt, text, aspect))
    )


def test_an_unreadable_cell_is_unscored_and_no_other() -> None:
    alone = debater(score="great")

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            return alone(prompt)
        reply = HONEST(prompt)
        return instead("three", "coherence", "{}: great")(prompt, reply) if "scores" in requested(prompt) else reply

    judgements, lm = judged(joint_judge(1), script, THREE)
    assert values(judgements) == [*TRUE[:2], "unreadable reply", *TRUE[3:]]
    lost = judgements[2]
    assert lost.detail.startswith("scorer, round 0: no score could be found")
    assert "[kept as " in lost.detail
    # It is no longer debated, and the other aspect of the same candidate is: alone, as the table was divided.
    debated = [prompt for prompt in lm.prompts if {"decision", "decisions"} & set(requested(prompt))]
    tables = [prompt for prompt in debated if "three" in shown_candidates(prompt).values()]
    assert not [p for p in tables if name_of(p, "three", "coherence") in requested_cells(p, "decisions")]
    aspects = [section(p, "aspect").partition(" (")[0] for p in debated if section(p, "candidate") == "three"]
    assert aspects == ["plain style"]


@pytest.mark.parametrize(
    ("most", "shape", "calls"),
    # Whole; a pair and one; then candidates by themselves; then every cell alone.
    [(6, {(3, 2)}, 1), (4, {(1, 2), (2, 2)}, 3), (2, {(1, 2)}, 5), (1, {(1, 1)}, 11)],
)
def test_long_tables_are_split_between_candidates_and_then_between_aspects(
    most: int, shape: set[tuple[int, int]], calls: int
) -> None:
    judgements, lm = judged(joint_judge(), limited(most), THREE)
    assert values(judgements) == TRUE
    assert {(j.transcript.together, j.transcript.joint) for j in judgements} == shape
    assert len(lm.prompts) == calls
    assert sum(j.calls for j in judgements) == pytest.approx(calls)


@pytest.mark.parametrize(("limit", "given"), [(2000, 2000), (300, 900), (None, None)])
def test_the_token_limit_grows_with_the_number_of_cells(limit: int | None, given: int | None) -> None:
    assert reply_limits(joint_judge(), THREE, limit) == [given]


@pytest.mark.parametrize(("most", "parts", "tried"), [(6, 1, 0), (4, 2, 1), (2, 3, 2), (1, 6, 5)])
def test_later_turns_and_the_tie_breaker_use_the_split_tables(most: int, parts: int, tried: int) -> None:
    judgements, lm = judged(joint_judge(1, tie_breaker=True), limited(most), THREE)
    assert values(judgements) == TRUE
    # Opening, review, revision and tie-break of each part, and once what was too long.
    assert len(lm.prompts) == tried + 4 * parts
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))
