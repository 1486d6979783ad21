"""Candidates of one source, and several aspects, in one call: order, splitting, later rounds, calls that fail; which
judges of several aspects share a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import ADVOCATE, PLAIN
from debate_judge.programs.debate.table import Scoring
from debate_judge.programs.geval.judge import GEval
from debate_judge.programs.judge import Item, Judge
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.roles.guide import with_guide
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, hold, requested, scripted_lm, section, settings_seen
from tests.programs.tables import (
    cells,
    items,
    joint_judge,
    joint_table_script,
    judged,
    or_single_script,
    requested_cells,
    shown_candidates,
    table_script,
    values,
)

THREE = cells("one", "two", "three")
"""Three candidates in two aspects; all of coherence come first."""
FOUR = items("one", "two", "three", "four")
TABLE_JUDGE = Debate(rounds=0, together=8)
WORTH = {"one": 1, "two": 2, "three": 3, "four": 4}
TRUE = [1, 2, 3, 10, 9, 8]
"""Their scores: coherence as in `WORTH`, plain style in reverse order on its own scale."""


def true_score(prompt: str, text: str, aspect: str) -> float:
    return WORTH[text] if aspect == "coherence" else 11 - WORTH[text]


HONEST = joint_table_script(true_score)


def name_of(prompt: str, text: str, aspect: str) -> str:
    return f"{label_of(prompt, text)}_{aspect}"


def limited(most: int) -> Script:
    """An LM whose context holds no more than `most` cells; it finds an issue in everything."""
    honest = joint_table_script(true_score, lambda *_: "TOO LOW")

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            score = str(true_score(prompt, section(prompt, "candidate"), section(prompt, "aspect").partition(" (")[0]))
            return debater(score=score, final_score=score, decision="ISSUE")(prompt)
        if len(shown_candidates(prompt)) * max(1, len(re.findall("## aspect_", prompt))) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    return script


@pytest.mark.parametrize("together", [0, 4])
def test_with_one_aspect_a_joint_judge_equals_the_ordinary_one(together: int) -> None:
    script = or_single_script(joint_table_script(lambda _, text, aspect: WORTH[text], lambda *_: "TOO LOW"))
    joint, prompts = judged(joint_judge(1, together=together), script, THREE[:3])
    ordinary, expected = judged(Debate(rounds=1, together=together), script, THREE[:3])
    assert sorted(prompts.prompts) == sorted(expected.prompts)
    assert joint == ordinary


def test_only_disputed_cells_are_revised_and_debated_further() -> None:
    def score(prompt: str, text: str, aspect: str) -> float:
        return true_score(prompt, text, aspect) + (0.5 if section(prompt, "debate") else 0)

    def issues(prompt: str, text: str, aspect: str) -> str | None:
        later = "Critic, round 1" in section(prompt, "debate")
        return "TOO LOW" if text == "two" and (aspect == "coherence" or not later) else None

    judgements, lm = judged(joint_judge(2, tie_breaker=True), joint_table_script(score, issues), THREE)
    assert values(judgements) == [1, 2.5, 3, 10, 9.5, 8]
    reasons = [(j.rounds, j.stop_reason) for j in judgements]
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
    expected = [1 / 3, 10 / 3, 1 / 3, 1 / 3, 4 / 3, 1 / 3]
    assert [j.calls for j in judgements] == pytest.approx(expected)
    assert f"{both[1]}: Critic, round 1: Too low. It says two" in section(lm.prompts[3], "debate").split("\n")


def test_an_unreadable_cell_is_unscored_and_no_other() -> None:
    alone = debater(score="great")

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            return alone(prompt)
        if "scores" not in requested(prompt):
            return HONEST(prompt)
        name = name_of(prompt, "three", "coherence")
        return re.sub(rf"^{name}: 3$", f"{name}: great", HONEST(prompt), flags=re.MULTILINE)

    judgements, lm = judged(joint_judge(1), script, THREE)
    assert values(judgements) == [*TRUE[:2], "unreadable reply", *TRUE[3:]]
    assert judgements[2].detail.startswith("scorer, round 0: no score could be found")
    assert "[kept as " in judgements[2].detail
    # It is no longer debated, and the other aspect of the same candidate is: alone, as the table was divided.
    debated = [prompt for prompt in lm.prompts if {"decision", "decisions"} & set(requested(prompt))]
    tables = [prompt for prompt in debated if "three" in shown_candidates(prompt).values()]
    assert not [p for p in tables if name_of(p, "three", "coherence") in requested_cells(p, "decisions")]
    aspects = [section(p, "aspect").partition(" (")[0] for p in debated if section(p, "candidate") == "three"]
    assert aspects == ["plain style"]


@pytest.mark.parametrize(
    ("most", "shape", "tried", "parts"),
    # Whole; a pair and one; then candidates by themselves; then every cell alone.
    [(6, {(3, 2)}, 0, 1), (4, {(1, 2), (2, 2)}, 1, 2), (2, {(1, 2)}, 2, 3), (1, {(1, 1)}, 5, 6)],
)
def test_long_tables_are_split_between_candidates_and_then_between_aspects(
    most: int, shape: set[tuple[int, int]], tried: int, parts: int
) -> None:
    judgements, lm = judged(joint_judge(1, tie_breaker=True), limited(most), THREE)
    assert values(judgements) == TRUE
    assert {(j.transcript.together, j.transcript.joint) for j in judgements} == shape
    # Opening, review, revision and tie-break of each part, and once what was too long.
    assert len(lm.prompts) == tried + 4 * parts
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


@pytest.mark.parametrize(("limit", "given"), [(2000, 2000), (300, 900), (None, None)])
def test_the_token_limit_grows_with_the_number_of_cells(
    limit: int | None, given: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = scripted_lm(HONEST, max_tokens=limit)
    seen = settings_seen(lm, monkeypatch)
    hold(lm, joint_judge().judge(THREE))
    assert [settings.get("max_tokens") for settings in seen] == [given]


def by_text(prompt: str, text: str) -> int:
    return WORTH[text]


def label_of(prompt: str, text: str) -> str:
    return next(f"candidate_{number}" for number, shown in shown_candidates(prompt).items() if shown == text)


def test_a_call_from_python_sends_what_a_run_sends_whatever_the_order_of_arrival() -> None:
    _, by_run = judged(Debate(rounds=0, together=3), table_script(by_text), FOUR)
    by_call = scripted_lm(table_script(by_text))
    first = FOUR[0]
    with dspy.context(lm=by_call):
        prediction = Debate(rounds=0, together=3)(
            source=first.source, texts=[item.text for item in FOUR[::-1]], aspect=first.aspect, task=first.task
        )
    assert prediction.scores == [4, 3, 2, 1]
    assert sorted(by_call.prompts) == sorted(by_run.prompts)


@pytest.mark.parametrize("joint", [False, True])
def test_equal_texts_without_a_source_have_a_place_in_the_table_of_each_group(joint: bool) -> None:
    groups = [
        [replace(item, source="", context="", group=f"g{n}") for item in items("same text", f"text of {n}")]
        for n in (1, 2)
    ]
    judge = Debate(rounds=1, tie_breaker=True, together=4, joint=joint)
    script = table_script(lambda _, text: 2 if text == "same text" else 4, lambda _, text: "TOO LOW")
    judgements, lm = judged(judge, script, [*groups[0], *groups[1]])
    assert values(judgements) == [2, 4, 2, 4]
    assert len(lm.prompts) == 2 * 4
    assert sum(j.calls for j in judgements) == 8
    assert {tuple(sorted(shown_candidates(prompt).values())) for prompt in lm.prompts} == {
        ("same text", "text of 1"),
        ("same text", "text of 2"),
    }


def test_a_refused_text_leaves_the_others_scored() -> None:
    honest = limited(99)

    def script(prompt: str) -> str:
        if "three" in (*shown_candidates(prompt).values(), section(prompt, "candidate")):
            raise lm15.InvalidRequestError("this text is not allowed", status=400)
        return honest(prompt)

    judgements, lm = judged(joint_judge(), script, THREE)
    assert values(judgements) == [1, 2, "lm error", 10, 9, "lm error"]
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


Change = Callable[[str, str], str]
"""From a prompt and the honest reply to another reply."""


def instead(lines: str, text: str) -> Change:
    """Other lines for a candidate; `lines` has its label in place of {}."""
    return lambda prompt, reply: reply.replace(
        f"{label_of(prompt, text)}: {WORTH[text]}", lines.format(label_of(prompt, text))
    )


ALL = [*WORTH]
GAPS: dict[str, tuple[Change, list[str], str]] = {
    "one missing": (instead("", "two"), ["two"], "it was missing"),
    "twice, and different": (instead("{0}: 3\n{0}: 4", "three"), ["three"], "twice with different content"),
    "no number": (instead("{}: excellent", "one"), ["one"], "no score"),
    "a foreign name": (lambda p, reply: f"{reply}\ncandidate_5: 3", ALL, "no candidate_5"),
    "counted from zero": (lambda p, reply: reply.replace("\ncandidate_4:", "\ncandidate_0:"), ALL, "no candidate_0"),
    "no lines at all": (lambda p, reply: "They are all fine.", ALL, "it was missing"),
    "nothing": (lambda p, reply: " ", ALL, "empty"),
    "lines elsewhere": (lambda p, reply: reply.replace("## scores ##", "## summary ##"), ALL, "'scores' was missing"),
}


@pytest.mark.parametrize("gap", GAPS)
def test_only_unreadable_candidates_are_requested_again(gap: str) -> None:
    change, texts, why = GAPS[gap]
    honest, replies = table_script(by_text), count()
    judgements, lm = judged(TABLE_JUDGE, lambda p: honest(p) if next(replies) else change(p, honest(p)), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    first, second = lm.prompts
    again = sorted(label_of(first, text) for text in texts)
    assert sorted(requested_cells(second, "scores")) == again
    assert why in section(second, "correction")
    # The company stays: the table is the same.
    assert shown_candidates(second) == shown_candidates(first)
    expected = [0.25 + (1 / len(texts) if item.text in texts else 0) for item in FOUR]
    assert [j.calls for j in judgements] == pytest.approx(expected)


def test_a_table_whose_reply_stays_unreadable_is_asked_again_in_halves() -> None:
    honest = table_script(by_text)

    def script(prompt: str) -> str:
        """As if the LM repeated the headers in a text."""
        if text := section(prompt, "candidate"):
            return debater(score=str(WORTH[text]))(prompt)
        return "They are all fine." if "three" in shown_candidates(prompt).values() else honest(prompt)

    judgements, lm = judged(TABLE_JUDGE, script, FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    # Twice about all, once about the half without the text, twice about the other, and about either of its two alone.
    assert sorted(len(shown_candidates(p)) for p in lm.prompts if not section(p, "candidate")) == [2, 2, 2, 4, 4]
    alone = [section(p, "candidate") for p in lm.prompts if section(p, "candidate")]
    assert len(alone) == 2
    assert "three" in alone
    assert sum(judgement.calls for judgement in judgements) == pytest.approx(len(lm.prompts))


def test_a_server_error_does_not_split_the_table() -> None:
    """Cut, it would be scored otherwise than by the next run, which finds the server well."""

    def script(prompt: str) -> str:
        if "Reply with OK" in prompt:
            return "OK"
        if "decisions" in requested(prompt):
            raise lm15.RateLimitError("slow down", retry_after=0.001)
        return table_script(by_text)(prompt)

    lm = scripted_lm(script, options=LMOptions(first_wait=0.01))
    with JudgeRunner(lm, progress=False) as runner:
        judgements = runner.judge(Debate(rounds=1, tie_breaker=True, together=8), FOUR)
    assert values(judgements) == ["lm error"] * 4
    assert {len(shown_candidates(prompt)) for prompt in lm.prompts if section(prompt, "task")} == {4}
    assert all(j.detail.startswith("critic, round 1: ") for j in judgements)
    assert [j.calls for j in judgements] == [0.5] * 4


@pytest.mark.parametrize(("cut_in", "left"), [(1, 2), (2, 2), (2, 1)])
@pytest.mark.parametrize("joint", [False, True])
def test_a_table_split_in_a_later_round_has_the_prefixes_of_shorter_debates(
    joint: bool, cut_in: int, left: int
) -> None:
    """The context holds the whole table until a round, and from then on `left` candidates."""
    candidates = THREE if joint else FOUR
    judge = Debate(rounds=2, tie_breaker=True, together=8, joint=joint)
    disputed = table_script(by_text, lambda prompt, text: None if text == "four" else "TOO LOW")
    honest = limited(99) if joint else or_single_script(disputed)

    def script(prompt: str) -> str:
        if f"Critic, round {cut_in}" in section(prompt, "debate") and len(shown_candidates(prompt)) > left:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    longest = hold(scripted_lm(script), judge.converse(candidates, 2))
    assert {t.until(cut_in - 1).together for t in longest} == {len(candidates) // (2 if joint else 1)}
    assert min(t.together for t in longest) <= left
    for n in (0, 1, 2):
        read, straight = [t.until(n) for t in longest], hold(scripted_lm(script), judge.converse(candidates, n))
        assert read == straight
        lm = scripted_lm(script)
        settled = hold(lm, judge.break_ties(candidates, read))
        assert settled == hold(scripted_lm(script), judge.break_ties(candidates, straight))
        assert sum(t.calls for t in settled) == pytest.approx(sum(t.calls for t in read) + len(lm.prompts))


TWO = cells("one", "two")
NAMES = ("coherence", "plain style")


def guided(guide: str) -> Debate:
    judge = joint_judge(1, tie_breaker=True)
    judge.scorer.signature = Scoring.with_instructions(with_guide(Scoring.instructions, guide))
    return judge


def prompts(judge: Debate, other: Debate, about: Sequence[Item] = TWO) -> list[str]:
    (shared,) = shared_judges(dict(zip(NAMES, (judge, other), strict=True)))
    script = joint_table_script(lambda *_: 3, lambda *_: "TOO LOW")
    judgements, lm = judged(shared.judge, script, about)
    assert values(judgements) == [3] * 4
    return lm.prompts


def test_the_prompt_has_guide_and_scale_for_each_aspect() -> None:
    for prompt in prompts(guided("They like rain."), guided("They like sun.")):
        assert section(prompt, "guide_coherence") == "They like rain."
        assert section(prompt, "guide_plain_style") == "They like sun."
        assert "They like" not in section(prompt, "standard")
        for name in ("aspect_coherence", "aspect_plain_style"):
            assert section(prompt, name).endswith("where the candidate does.")


SAME = [
    (guided("Rain."), guided("Sun.")),
    (guided("Rain."), joint_judge(1, tie_breaker=True)),
    # No Critic speaks in a single call, and no Tie-breaker where there is none.
    (Debate(ADVOCATE, rounds=0, joint=True), Debate(PLAIN, rounds=0, tie_breaker=True, joint=True)),
]
OTHER = [
    (joint_judge(1), joint_judge(2)),
    (joint_judge(1), joint_judge(1, tie_breaker=True)),
    (joint_judge(1, together=4), joint_judge(1, together=8)),
    (joint_judge(1), joint_judge(1, score_mode="sampled:2")),
    (Debate(ADVOCATE, rounds=1, joint=True), Debate(PLAIN, rounds=1, joint=True)),
    (Debate(joint=True, order=1), Debate(joint=True)),
    (Debate(joint=True), Debate()),
    (Debate(), Debate()),
    (GEval(), GEval()),
    # Personas that score blind, at another distance.
    (Debate("blind-half", rounds=1, joint=True), Debate("blind-every", rounds=1, joint=True)),
]
REWRITTEN = joint_judge(1)
REWRITTEN.scorer.signature = REWRITTEN.scorer.signature.with_instructions("Judge otherwise.")


@pytest.mark.parametrize(
    ("pair", "groups"),
    [
        *((pair, [NAMES]) for pair in SAME),
        *((pair, [NAMES[:1], NAMES[1:]]) for pair in (*OTHER, (joint_judge(1), REWRITTEN))),
    ],
)
def test_judges_share_a_call_where_only_what_they_know_differs(
    pair: tuple[Judge, Judge], groups: list[tuple[str, ...]]
) -> None:
    assert [shared.aspects for shared in shared_judges(dict(zip(NAMES, pair, strict=True)))] == groups
