"""Several aspects in one call: who is asked about which cells, what is read of a reply, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.programs import preset
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.table_cells import aspect_labels, cells_of
from debate_judge.programs.judge import Judgement, Unscored, Verdict
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, requested, scripted_lm, section
from tests.programs.debates import hold
from tests.programs.tables import (
    cell_lines,
    cells,
    headers,
    items,
    joint_judge,
    joint_reading,
    judged,
    part,
    reply_limits,
    shown,
    table_judge,
    values,
    wanted_cells,
)

THREE = cells("one", "two", "three")
"""Three candidates in two aspects; all of coherence come first."""

WORTH = {"one": 1, "two": 2, "three": 3}

TRUE = [1, 2, 3, 10, 9, 8]
"""Their scores: coherence as `WORTH` has it, plain style the other way round on its own scale."""


def true(prompt: str, text: str, aspect: str) -> float:
    return WORTH[text] if aspect == "coherence" else 11 - WORTH[text]


HONEST = joint_reading(true)


def name_of(prompt: str, text: str, aspect: str) -> str:
    number = next(number for number, told in shown(prompt).items() if told == text)
    return f"candidate_{number}_{aspect}"


def line_of(prompt: str, text: str, aspect: str) -> str:
    return f"{name_of(prompt, text, aspect)}: {true(prompt, text, aspect):g}"


def first_changed(change: Callable[[str, str], str]) -> Script:
    """The honest LM, whose first reply is changed by `change` of the prompt and the reply."""
    seen: list[str] = []

    def script(prompt: str) -> str:
        seen.append(prompt)
        return change(prompt, HONEST(prompt)) if len(seen) == 1 else HONEST(prompt)

    return script


def shapes(judgements: list[Judgement]) -> set[tuple[float, int, int]]:
    """Calls, candidates and aspects of each judgement."""
    return {(round(j.calls, 9), j.transcript.together, j.transcript.joint) for j in judgements}


def test_one_call_scores_all_candidates_in_all_aspects() -> None:
    judgements, lm = judged(joint_judge(), HONEST, THREE)
    assert values(judgements) == TRUE
    (prompt,) = lm.prompts
    assert sorted(shown(prompt).values()) == ["one", "three", "two"]
    assert shapes(judgements) == {(round(1 / 6, 9), 3, 2)}
    assert judgements[1].transcript.turns[0].text == "coherence of:\ntwo\nso."
    assert judgements[4].transcript.turns[0].text == "plain_style of:\ntwo\nso."
    assert not re.search("Critic|Tie-breaker", prompt)
    # Candidates are held against each other aspect by aspect.
    order = [name.split("_", 2)[2] for name in wanted_cells(prompt, "scores")]
    assert order == ["coherence"] * 3 + ["plain_style"] * 3


def test_one_call_scores_a_candidate_in_all_aspects() -> None:
    judgements, lm = judged(joint_judge(together=0), HONEST, THREE)
    assert values(judgements) == TRUE
    assert sorted(text for prompt in lm.prompts for text in shown(prompt).values()) == ["one", "three", "two"]
    assert len(lm.prompts) == 3
    assert shapes(judgements) == {(0.5, 1, 2)}


def test_each_aspect_has_its_own_sections_and_the_rest_is_said_once() -> None:
    _, lm = judged(joint_judge(1), joint_reading(true, lambda *_: "TOO LOW"), THREE)
    opening, review, revision = lm.prompts
    order = ["standard", "task", "source", "aspect", "aspect_coherence", "aspect_plain_style", "candidates"]
    assert headers(opening)[: len(order)] == order
    assert section(opening, "aspect_plain_style").startswith("plain style (0 to 10, 0 worst, 10 best): Are the")
    assert "each by its own definition alone" in section(opening, "role")
    assert section(review, "rules").count("at least 0.5 apart") == 1
    assert revision.startswith(review.partition("\n\n[[ ## role ## ]]")[0])


@pytest.mark.parametrize("rounds", [0, 1])
def test_asked_about_one_aspect_it_is_the_judge_that_it_would_be_otherwise(rounds: int) -> None:
    script = joint_reading(lambda prompt, text, aspect: WORTH[text], lambda *_: "TOO LOW")
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
            return "\n\n".join([part("review", "Well."), part("decision", "ISSUE"), part("feedback", "It is.")])
        return f"{part('rationale', 'So.')}\n\n{part('score', WORTH[section(prompt, 'candidate')])}"

    return lambda prompt: alone(prompt) if section(prompt, "candidate") else script(prompt)


# --- what is read of a reply ---


def nested(prompt: str) -> str:
    found: dict[str, dict[str, float]] = {}
    for name in wanted_cells(prompt, "scores"):
        _, number, aspect = name.split("_", 2)
        text = shown(prompt)[int(number)]
        found.setdefault(f"candidate_{number}", {})[aspect.replace("_", " ")] = true(prompt, text, aspect)
    return json.dumps({"scores": found})


DRESSES: dict[str, Callable[[str, str], str]] = {
    "backwards": lambda prompt, reply: "\n\n".join(reply.split("\n\n")[::-1]),
    "no underscores": lambda prompt, reply: re.sub(r"^(candidate)_(\d)_(\w+): ", r"\1 \2 \3: ", reply, flags=re.M),
    "its name": lambda prompt, reply: reply.replace("_plain_style: ", ", Plain style: "),
    "numbers alone": lambda prompt, reply: re.sub(r"^candidate_(\d_\w+: )", r"\1", reply, flags=re.M),
    "in brackets": lambda p, reply: re.sub(r"^candidate_(\d)_(\w+): ", r"- **Candidate \1** (\2): ", reply, flags=re.M),
    "a table": lambda p, reply: re.sub(r"^(candidate_\d)_(\w+): (\d+)$", r"| \1 | \2 | \3 |", reply, flags=re.M),
    "of the scale": lambda prompt, reply: re.sub(r"^(\w+_plain_style: \d+)$", r"\1/10", reply, flags=re.M),
    "nothing but the lines": lambda prompt, reply: reply.partition("[[ ## scores ## ]]\n")[2],
    "an object of objects": lambda prompt, reply: nested(prompt),
    "the same line twice": lambda prompt, reply: f"{reply}\n{line_of(prompt, 'two', 'coherence')}",
    "words around": lambda p, reply: reply.replace("scores ## ]]\n", "scores ## ]]\nBest is 1:\n") + "\nDone.",
    "thoughts first": lambda prompt, reply: f"<think>\ncandidate_1_coherence: 5\n</think>\n{reply}",
}  # fmt: skip


@pytest.mark.parametrize("dress", DRESSES)
def test_scores_are_read_in_any_order_and_dress(dress: str) -> None:
    judgements, lm = judged(joint_judge(), first_changed(DRESSES[dress]), THREE)
    assert values(judgements) == TRUE
    assert len(lm.prompts) == 1


def instead(text: str, aspect: str, line: str) -> Callable[[str, str], str]:
    """Another line for a cell; `line` has its name in place of {}."""
    return lambda prompt, reply: reply.replace(
        line_of(prompt, text, aspect), line.format(name_of(prompt, text, aspect))
    )


ALL = [(item.text, "plain_style" if "style" in item.aspect.name else "coherence") for item in THREE]
GAPS: dict[str, tuple[Callable[[str, str], str], list[tuple[str, str]], str]] = {
    "one cell missing": (instead("two", "coherence", ""), [("two", "coherence")], "it was missing"),
    "an aspect missing": (
        lambda prompt, reply: re.sub(r"^\w+_plain_style: \d+$", "", reply, flags=re.MULTILINE),
        ALL[3:],
        "it was missing",
    ),
    "twice, and different": (
        instead("one", "plain_style", "{0}: 3\n{0}: 4"),
        [("one", "plain_style")],
        "twice with different content",
    ),
    "on the other aspect's scale": (instead("three", "coherence", "{}: 9"), [("three", "coherence")], "outside the"),
    "no number": (instead("one", "coherence", "{}: fine"), [("one", "coherence")], "no score could be found"),
    "its section twice": (
        lambda prompt, reply: part(name_of(prompt, "two", "coherence"), "Other.") + "\n\n" + reply,
        [("two", "coherence")],
        "twice with different content",
    ),
    "no aspect": (
        lambda prompt, reply: re.sub(r"^candidate_(\d)_\w+: (\d+)$", r"candidate_\1: \2", reply, flags=re.MULTILINE),
        ALL,
        "it was missing",
    ),
    "a foreign candidate": (lambda p, reply: f"{reply}\ncandidate_4_coherence: 3", ALL, "no candidate_4_coherence"),
    "a foreign aspect": (lambda p, reply: f"{reply}\ncandidate_1_overall: 3", ALL, "no candidate_1_overall"),
    "nothing": (lambda p, reply: " ", ALL, "empty"),
}  # fmt: skip


@pytest.mark.parametrize("gap", GAPS)
def test_what_cannot_be_read_is_asked_for_once_more_about_these_cells_alone(gap: str) -> None:
    change, lost, why = GAPS[gap]
    judgements, lm = judged(joint_judge(), first_changed(change), THREE)
    assert values(judgements) == TRUE
    first, second = lm.prompts
    assert sorted(wanted_cells(second, "scores")) == sorted(name_of(first, *cell) for cell in lost)
    assert why in section(second, "correction")
    assert shown(second) == shown(first)
    calls = [1 / 6 + (1 / len(lost) if cell in lost else 0) for cell in ALL]
    assert [j.calls for j in judgements] == [pytest.approx(share) for share in calls]


def test_what_stays_unreadable_leaves_its_cell_unscored_and_no_other() -> None:
    def script(prompt: str) -> str:
        reply = HONEST(prompt)
        return instead("three", "coherence", "{}: great")(prompt, reply) if "scores" in requested(prompt) else reply

    judgements, lm = judged(joint_judge(1), script, THREE)
    assert values(judgements) == [*TRUE[:2], "unreadable reply", *TRUE[3:]]
    lost = judgements[2]
    assert isinstance(lost, Unscored)
    assert re.match(r"scorer, round 0: candidate_\d_coherence: no score could be found", lost.detail)
    assert "[kept as " in lost.detail
    assert name_of(lm.prompts[0], "three", "coherence") not in wanted_cells(lm.prompts[-1], "decisions")
    assert name_of(lm.prompts[0], "three", "plain_style") in wanted_cells(lm.prompts[-1], "decisions")


# --- the debate ---


def test_only_disputed_cells_are_revised_and_debated_further() -> None:
    def score(prompt: str, text: str, aspect: str) -> float:
        return true(prompt, text, aspect) + (0.5 if section(prompt, "debate") else 0)

    def issues(prompt: str, text: str, aspect: str) -> str | None:
        later = "Critic, round 1" in section(prompt, "debate")
        return "TOO LOW" if text == "two" and (aspect == "coherence" or not later) else None

    judgements, lm = judged(joint_judge(2, tie_breaker=True), joint_reading(score, issues), THREE)
    assert values(judgements) == [1, 2.5, 3, 10, 9.5, 8]
    reasons = [(j.rounds, j.stop_reason) for j in judgements if isinstance(j, Verdict)]
    assert reasons == [(1, "no issue"), (2, "tie-breaker"), *[(1, "no issue")] * 2, (2, "no issue"), (1, "no issue")]
    first = lm.prompts[0]
    both = [name_of(first, "two", aspect) for aspect in ("coherence", "plain_style")]
    # In a revision the scores of every disputed aspect are given anew, those that nobody disputes too.
    assert len(wanted_cells(lm.prompts[2], "scores")) == 6
    assert {name.split("_", 2)[2] for name in wanted_cells(lm.prompts[4], "scores")} == {"coherence"}
    assert wanted_cells(lm.prompts[3], "decisions") == both
    assert wanted_cells(lm.prompts[5], "final_scores") == both[:1]
    assert len(lm.prompts) == 6
    # Opening and review 1/6 each; revision and second review 1/2; then one cell alone: 1 and 1.
    assert [round(j.calls, 9) for j in judgements] == [round(x, 9) for x in (1 / 3, 10 / 3, 1 / 3, 1 / 3, 4 / 3, 1 / 3)]
    told = section(lm.prompts[3], "debate").split("\n")
    assert f"{both[1]}: Critic, round 1: Too low. It says two" in told


def test_one_debate_to_the_maximum_answers_every_smaller_n() -> None:
    def issues(prompt: str, text: str, aspect: str) -> str | None:
        return "TOO LOW" if section(prompt, "debate").count("Critic") < 9 and text != "one" else None

    longest: list[str] = []
    for rounds in (3, 0, 1, 2):
        judge, lm = joint_judge(rounds), scripted_lm(joint_reading(true, issues))
        items = [item for pair in zip(THREE[:3], THREE[3:], strict=True) for item in pair]
        transcripts = hold(lm, judge.converse_table(items, rounds))
        longest = longest or lm.prompts
        assert longest[: len(lm.prompts)] == lm.prompts
        if rounds == 3:
            held = transcripts
        read = [judge.verdict(t, rounds) for t in held]
        assert values(read) == values([judge.verdict(t, rounds) for t in transcripts])
        assert sum(j.calls for j in read) == pytest.approx(len(lm.prompts))


def test_samples_are_averaged_cell_by_cell() -> None:
    replies = iter([0, 1, 1, 0])

    def script(prompt: str) -> str:
        more = next(replies)
        return joint_reading(lambda p, text, aspect: true(p, text, aspect) - more * (aspect == "plain_style"))(prompt)

    judgements, lm = judged(joint_judge(score_mode="sampled:4"), script, THREE)
    assert values(judgements) == [1, 2, 3, 9.5, 8.5, 7.5]
    assert len(lm.prompts) == 4


def test_a_trace_tells_each_cells_turns_as_calls_about_it_alone() -> None:
    judge, traces = joint_judge(1), dict[str, list[Any]]()
    script = joint_reading(true, lambda p, text, aspect: "TOO LOW" if (text, aspect) == ("two", "coherence") else None)
    with JudgeRunner(scripted_lm(script), progress=False) as runner:
        runner.converse(judge, THREE, 1, traces=traces)
    ((calls),) = traces.values()
    assert len(calls) == 6 + 6 + 1
    two = [dict(reply) for _, inputs, reply in calls if (inputs["candidate"], inputs["aspect"][:5]) == ("two", "plain")]
    assert two[0] == {"rationale": "plain_style of:\ntwo\nso.", "score": "9"}
    revision = calls[-1][1]
    assert revision["aspect"].startswith("coherence (1 to 5")
    assert revision["debate"].startswith("Scorer, round 0, score 2: coherence of")


# --- calls that fail ---


def limited(most: int) -> Script:
    """An LM whose context holds no more than `most` cells; it finds an issue in everything."""
    honest = joint_reading(true, lambda *_: "TOO LOW")

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            score = true(prompt, section(prompt, "candidate"), section(prompt, "aspect").partition(" (")[0])
            field = "final_score" if "final_score" in requested(prompt) else "score"
            if "decision" in requested(prompt):
                return "\n\n".join([part("review", "Well."), part("decision", "ISSUE"), part("feedback", "It is.")])
            return f"{part('rationale', 'So.')}\n\n{part('reasoning', 'So.')}\n\n{part(field, f'{score:g}')}"
        if len(shown(prompt)) * max(1, len(re.findall("## aspect_", prompt))) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    return script


@pytest.mark.parametrize(
    ("most", "shape", "calls"),
    # Whole; a pair and one; then candidates by themselves; then every cell alone.
    [(6, {(3, 2)}, 1), (4, {(1, 2), (2, 2)}, 3), (2, {(1, 2)}, 5), (1, {(1, 1)}, 11)],
)
def test_what_is_too_long_is_cut_between_candidates_and_then_between_aspects(
    most: int, shape: set[tuple[int, int]], calls: int
) -> None:
    judgements, lm = judged(joint_judge(), limited(most), THREE)
    assert values(judgements) == TRUE
    assert {(j.transcript.together, j.transcript.joint) for j in judgements} == shape
    assert len(lm.prompts) == calls
    assert sum(j.calls for j in judgements) == pytest.approx(calls)


@pytest.mark.parametrize(("limit", "given"), [(2000, 2000), (300, 900), (None, None)])
def test_a_reply_about_several_cells_has_room_for_all(limit: int | None, given: int | None) -> None:
    assert reply_limits(joint_judge(), THREE, limit) == [given]


@pytest.mark.parametrize(("most", "parts", "tried"), [(6, 1, 0), (4, 2, 1), (2, 3, 2), (1, 6, 5)])
def test_later_turns_and_the_tie_breaker_keep_to_the_parts(most: int, parts: int, tried: int) -> None:
    judgements, lm = judged(joint_judge(1, tie_breaker=True), limited(most), THREE)
    assert values(judgements) == TRUE
    # Opening, review, revision and tie-break of each part, and once what was too long.
    assert len(lm.prompts) == tried + 4 * parts
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


# --- cells ---


def test_candidates_need_not_be_asked_about_in_the_same_aspects() -> None:
    ragged = [*THREE[:3], THREE[4]]
    judgements, lm = judged(joint_judge(), HONEST, ragged)
    assert values(judgements) == [1, 2, 3, 9]
    (prompt,) = lm.prompts
    assert len(wanted_cells(prompt, "scores")) == 4
    assert {j.calls for j in judgements} == {0.25}
    cut, lm = judged(joint_judge(), limited(2), ragged)
    assert values(cut) == [1, 2, 3, 9]
    assert sum(j.calls for j in cut) == pytest.approx(len(lm.prompts))


def test_a_cell_beyond_those_asked_for_is_no_harm() -> None:
    def script(prompt: str) -> str:
        return f"{HONEST(prompt)}\n{name_of(prompt, 'one', 'plain_style')}: 3"

    judgements, lm = judged(joint_judge(), script, [*THREE[:3], THREE[4]])
    assert values(judgements) == [1, 2, 3, 9]
    assert len(lm.prompts) == 1


def test_equal_texts_are_candidates_of_their_own_where_they_come_as_such() -> None:
    twice = items("one", "one", "two")
    assert [cell.candidate for cell in cells_of(twice)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["coherence"], [""]),
        (["Plain style", "plain-style", "PLAIN  STYLE!"], ["plain_style", "plain_style_2", "plain_style_3"]),
        (["a_2", "a", "A"], ["a_2", "a", "a_3"]),
        (["?!", "…"], ["aspect", "aspect_2"]),
        (["Größe", "Τόνος"], ["größe", "τόνος"]),
    ],
)
def test_labels_of_aspects_are_words_and_no_two_alike(names: list[str], labels: list[str]) -> None:
    assert list(aspect_labels(names).values()) == labels


def test_aspects_whose_names_hold_each_other_are_told_apart() -> None:
    names = ("style", "style of words", "2nd style")
    labels = tuple(aspect_labels(names).values())
    texts = [f"{name}: {value}" for value, name in enumerate((f"candidate_1_{one}" for one in labels), 1)]

    def script(prompt: str) -> str:
        return part("scores", cell_lines(dict(text.split(": ") for text in texts)))

    task = replace(THREE[0].task, aspects=tuple(replace(THREE[0].aspect, name=name) for name in names))
    asked = [replace(THREE[0], task=task, aspect=aspect) for aspect in task.aspects]
    assert values(judged(joint_judge(together=0), script, asked)[0]) == [1, 2, 3]


# --- the judge ---


def test_what_cannot_be_read_jointly_is_refused() -> None:
    for options in ({"joint": True, "score_mode": "expected"}, {"joint": 1}, {"joint": "yes"}):
        with pytest.raises(InputError, match="joint"):
            preset("debate", options)


def test_the_configuration_holds_it_and_variants_and_exports_have_it() -> None:
    judge = preset("debate", {"joint": True, "together": 4, "order": 2})
    assert isinstance(judge, Debate)
    assert {(v.joint, v.together, v.order) for v in judge.variants({"a": "A.", "b": "B."}).values()} == {(True, 4, 2)}
    assert Debate.from_config(judge.config()).joint
    assert not Debate.from_config({k: v for k, v in judge.config().items() if k != "joint"}).joint
