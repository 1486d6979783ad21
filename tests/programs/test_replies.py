"""Reading scores and decisions in replies: one table for each kind of value."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from debate_judge.data.schema import Scale
from debate_judge.programs.debate.table_replies import parse_decision
from debate_judge.programs.roles.parsing import Unreadable, parse_score

FIVE = Scale(1, 5)
YES_NO = Scale(0, 1)

NONE = "no score could be found"
MISSING = "the score was missing"
SEVERAL = "several different scores"
OUTSIDE = "outside the scale"
OTHER = "on another scale"

SCORES: list[tuple[str, float | str]] = [
    ("4", 4),
    ("4.0", 4),
    ("4.25", 4.25),
    ("4,5", 4.5),
    ("4!", 4),
    ("**4**", 4),
    ('"4"', 4),
    ("“4”", 4),
    ("[[4]]", 4),
    ("<4>", 4),
    ("4/5", 4),
    ("4 out of 5", 4),
    ("4 - mostly coherent", 4),
    ("Score: 4 – mostly coherent", 4),
    ("**4**/5", 4),
    ("<score>\n4\n</score>", 4),
    ("4 points", 4),
    ("٤", 4),
    ("Score: 4", 4),
    ("Score：4", 4),
    ("It hangs together.\nRating：4", 4),
    ("**Score:** 4", 4),
    ("**Score**: **4**", 4),
    ("### Score: 4", 4),
    ("Score: 4/5 (good)", 4),
    ("Final score: 4", 4),
    ("My revised score is 4.", 4),
    ("It hangs together well. Overall score: 4.", 4),
    ("The Critic's score: 2. My score: 4.", 4),
    ("It hangs together.\n- Rating: 4", 4),
    ("Score (1-5): 4", 4),
    ("4\nThere are 3 errors in 2 sentences.", 4),
    ('The text says "Score: 5".\nScore: 2', 2),
    ("The text says “my score is 5”. Score: 2", 2),
    ("> Score: 5\nScore: 2", 2),
    ("", MISSING),
    ("good", NONE),
    ("inf", NONE),
    ("1e3", NONE),
    ("½", NONE),
    ("1,000", NONE),
    ("4" * 400, NONE),
    ("4, 5", NONE),
    ("4-5", NONE),
    ("3 or 4", NONE),
    ("4th", NONE),
    ("yes", NONE),
    ("(1-5)", NONE),
    ("I'd give it a 4.", NONE),
    ("There are 3 errors.", NONE),
    ("A score of 5 is not justified.", NONE),
    ("The score is not 5 but 4.", NONE),
    ('The text says "Score: 5".', NONE),
    ("Score: 4 because of 2 errors", NONE),
    ("Score: 4\nScore: 3", SEVERAL),
    ("4\nScore: 3", SEVERAL),
    ("The text claims\nscore: 5\nI give it a 2.", NONE),
    ("The text claims\nscore: 5\nMy score: 2", 2),
    ("2\nThe text claims\nScore: 5\nwhich is odd.", 2),
    ("4 - a) - b) - c", 4),
    ("4 - 3 sentences - and so on", NONE),
    ("Score: 4. Final score: 3.", SEVERAL),
    ("0", OUTSIDE),
    ("5.01", OUTSIDE),
    ("-4", OUTSIDE),
    ("999999999", OUTSIDE),
    ("8/10", OTHER),
    ("4/10", OTHER),
    ("80%", OTHER),
    ("Score: 8 out of 10", OTHER),
    ("4/5\nScore: 4/10", OTHER),
]


@pytest.mark.parametrize(("text", "expected"), SCORES)
def test_score(text: str, expected: float | str) -> None:
    value = parse_score(text, FIVE)
    if isinstance(expected, str):
        assert isinstance(value, Unreadable)
        assert expected in value.problem
        # The message for the LM repeats the scale in any case.
        assert "1 to 5" in value.problem
    else:
        assert value == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Coherence: 3", 3),
        ("Coherence (1-5): 3", 3),
        ("It jumps.\n\nRating:\nCoherence: 3", 3),
        ("Coherence: 3\nRating: 2", SEVERAL),
        ("Coherence is 3 parts luck.", NONE),
        ("Incoherence: 3", NONE),
        ('The text says "Coherence: 3".', NONE),
    ],
)
def test_the_name_of_the_aspect_is_a_label_for_its_own_score(text: str, expected: float | str) -> None:
    value = parse_score(text, FIVE, "coherence")
    assert expected in value.problem if isinstance(value, Unreadable) else value == expected


def test_a_name_of_several_words_is_a_label_too() -> None:
    assert parse_score("Overall quality: 3", FIVE, "overall_quality") == 3
    assert parse_score("C++ (1-5): 3", FIVE, "C++") == 3


@pytest.mark.parametrize(
    ("text", "scale", "expected"),
    [
        ("85%", Scale(0, 100), 85),
        (".5", Scale(0, 1, 0.5), 0.5),
        ("-1", Scale(-2, 2), -1),
        ("-.5", Scale(-2, 2), -0.5),
        # A dash with a space may be a minus or a bullet.
        ("- 1", Scale(-2, 2), None),
        # A thousand, or one?
        ("1,000", Scale(0, 1000), None),
    ],
)
def test_score_on_other_scales(text: str, scale: Scale, expected: float | None) -> None:
    value = parse_score(text, scale)
    assert isinstance(value, Unreadable) if expected is None else value == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", 1),
        ("No", 0),
        ("no\nThe source says otherwise.", 0),
        ("0.3", 0.3),
        ("Yes and no", None),
        ("2", None),
    ],
)
def test_yes_and_no_on_a_scale_of_two_values(text: str, expected: float | None) -> None:
    value = parse_score(text, YES_NO)
    assert isinstance(value, Unreadable) if expected is None else value == expected


@given(st.floats(1, 5).map(lambda v: round(v, 3)))
def test_every_number_of_the_scale_is_read_as_it_is_written(value: float) -> None:
    for written in (f"{value:.3f}", f"**{value:.3f}**", f"Score: {value:.3f}", f"{value:.3f}/5"):
        assert parse_score(written, FIVE) == value


@given(st.text(max_size=200))
@example('{"score": 4}')
@example("Score: 4")
def test_a_score_is_on_the_scale_or_refused_whatever_the_text(text: str) -> None:
    value = parse_score(text, FIVE)
    assert isinstance(value, Unreadable) or 1 <= value <= 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NO ISSUE", True),
        ("NO ISSUES", True),
        ("**NO ISSUE**", True),
        ("Decision: NO ISSUE", True),
        ("NO ISSUE\n\nThe score is accurate.", True),
        ("ISSUE", False),
        ("Decision: ISSUE", False),
        ("ISSUE\nThe score is too high.", False),
        ("", None),
        ("NO ISSUE or ISSUE", None),
        ("NO ISSUE. However, the second sentence is odd.", None),
        ("NO ISSUE, except that the score is far too high", None),
        ("There is no issue with grammar but the score is too high.", None),
        ("ISSUE: none", None),
        ("ISSUE: too high", False),
        ("NO ISSUE (the score is fine)", True),
        ("NO ISSUE - with grammar, the facts are wrong", None),
        ("NO ISSUE: I agree.", True),
        ("ISSUE\n\nDecision: NO ISSUE", None),
        ("TOO HIGH? No, it stands. NO ISSUE", None),
        ("ISSUE? No, it stands. NO ISSUE", None),
    ],
)
def test_decision(text: str, expected: bool | None) -> None:
    decision = parse_decision(text)
    if expected is None:
        assert isinstance(decision, Unreadable)
        assert "NO ISSUE or ISSUE" in decision.problem
    else:
        assert decision is expected
