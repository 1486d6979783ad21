"""What is read of a reply about several candidates, and what is asked again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from debate_judge.programs.judge import Unscored
from tests.fakes import Script, debater, requested, section
from tests.programs.four_candidates import FOUR, by_text, line_of, number_of
from tests.programs.tables import judged, part, reading, shown, table_judge, values, wanted


def replying(change: Callable[[str, str], str]) -> Script:
    """The honest script, whose first reply is changed by `change` of the prompt and the reply."""
    honest, seen = reading(by_text), list[str]()

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
    "no number": (instead("one", "{}: excellent"), ["one"], "no score could be found"),
    "two numbers": (instead("one", "{}: 1 or 2"), ["one"], "no score could be found"),
    "off the scale": (instead("four", "{}: 9"), ["four"], "outside the scale"),
    "of another scale": (instead("four", "{}: 4/10"), ["four"], "on another scale"),
    "its section twice": (
        lambda prompt, reply: part(line_of(prompt, "two").split(":")[0], "Other reasons.") + "\n\n" + reply,
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
def test_what_cannot_be_read_is_asked_for_once_more_about_these_alone(gap: str) -> None:
    change, texts, why = GAPS[gap]
    judgements, lm = judged(table_judge(), replying(change), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    first, second = lm.prompts
    asked = sorted(number_of(first, text) for text in texts)
    assert sorted(wanted(second, "scores")) == asked
    assert why in section(second, "correction")
    # The company stays: the table is the same.
    assert shown(second) == shown(first)
    again = {item.text for item in FOUR if item.text in texts}
    calls = [j.calls for j in judgements]
    assert calls == [pytest.approx(0.25 + (1 / len(again) if item.text in again else 0)) for item in FOUR]
    assert sum(calls) == pytest.approx(2)


def spoiling(text: str) -> Script:
    """An LM whose replies about a table with `text` cannot be read, as if it repeated the headers in that text."""
    honest = reading(by_text)

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            return debater(score=str(by_text(prompt, section(prompt, "candidate"))))(prompt)
        return "They are all fine." if text in shown(prompt).values() else honest(prompt)

    return script


def test_a_table_whose_reply_stays_unreadable_is_asked_again_in_halves() -> None:
    judgements, lm = judged(table_judge(), spoiling("three"), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    # Twice about all, once about the half without the text, twice about the other, and about either of its two alone.
    assert sorted(len(shown(p)) for p in lm.prompts if not section(p, "candidate")) == [2, 2, 2, 4, 4]
    alone = [section(p, "candidate") for p in lm.prompts if section(p, "candidate")]
    assert len(alone) == 2
    assert "three" in alone
    assert sum(judgement.calls for judgement in judgements) == pytest.approx(len(lm.prompts))


def test_what_cannot_be_read_alone_either_leaves_its_candidate_unscored_and_no_other() -> None:
    honest = spoiling("three")
    judgements, lm = judged(
        table_judge(1), lambda p: "Great." if section(p, "candidate") == "three" else honest(p), FOUR
    )
    assert values(judgements)[2] == "unreadable reply"
    assert not [judgement for judgement in judgements[:2] + judgements[3:] if isinstance(judgement, Unscored)]
    lost = judgements[2]
    assert isinstance(lost, Unscored)
    assert "no score could be found" in lost.detail
    assert "[kept as " in lost.detail
    # It is no longer debated.
    assert "three" not in [section(prompt, "candidate") for prompt in lm.prompts if "decision" in requested(prompt)]
