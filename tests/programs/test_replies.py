"""What a reply says, and what it does not say: one table for each kind of value."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from dspy.adapters.chat_adapter import field_header_pattern
from hypothesis import example, given
from hypothesis import strategies as st

from data.schema import Scale
from programs import replies
from programs.replies import Unreadable, disarm, no_issue, score, sections

FIVE = Scale(1, 5)
YES_NO = Scale(0, 1)
FIELDS = ("rationale", "score")
REVIEW = ("review", "decision", "feedback")

NONE = "no score could be found"
SEVERAL = "several different scores"
OUTSIDE = "outside the scale"
OTHER = "on another scale"

SCORES: list[tuple[str, float | str]] = [
    ("4", 4),
    (" 4\n", 4),
    ("4.0", 4),
    ("4.25", 4.25),
    ("4,5", 4.5),
    ("4.", 4),
    ("4!", 4),
    ("+4", 4),
    ("= 4", 4),
    ("**4**", 4),
    ("__4__", 4),
    ("`4`", 4),
    ("'4'", 4),
    ('"4"', 4),
    ("“4”", 4),
    ("(4)", 4),
    ("[4]", 4),
    ("[[4]]", 4),
    ("<4>", 4),
    ("4/5", 4),
    ("4 / 5", 4),
    ("**4/5**", 4),
    ("4 out of 5", 4),
    ("4 of 5", 4),
    ("4 points", 4),
    ("5/5", 5),
    ("1", 1),
    ("٤", 4),
    ("４", 4),
    ("Score: 4", 4),
    ("score = 4", 4),
    ("**Score:** 4", 4),
    ("**Score**: **4**", 4),
    ("__Score__: 4", 4),
    ("### Score: 4", 4),
    ("Score:\n4", 4),
    ("Rating: [[4]]", 4),
    ("Score: 4/5 (good)", 4),
    ("Score: 4 out of 5.", 4),
    ("Final score: 4", 4),
    ("My revised score is 4.", 4),
    ("It hangs together well. Overall score: 4.", 4),
    ("The Critic's score: 2. My score: 4.", 4),
    ("(1-5): 4", 4),
    ("Score (1-5): 4", 4),
    ("[1 to 5] 3.5", 3.5),
    ("4\nThere are 3 errors in 2 sentences.", 4),
    ("Score: 4\nScore: 4.0", 4),
    ("4\nScore: 4/5", 4),
    ('The text says "Score: 5".\nScore: 2', 2),
    ("The text says “my score is 5”. Score: 2", 2),
    ("> Score: 5\nScore: 2", 2),
    ("", NONE),
    (" \n ", NONE),
    ("good", NONE),
    ("five", NONE),
    ("V", NONE),
    ("N/A", NONE),
    ("NaN", NONE),
    ("inf", NONE),
    ("-inf", NONE),
    ("1e3", NONE),
    ("4e0", NONE),
    ("0x4", NONE),
    ("4_0", NONE),
    ("½", NONE),
    ("4½", NONE),
    ("4 1/2", NONE),
    ("4.5.2", NONE),
    ("1,000", NONE),
    ("4" * 400, NONE),
    ("4 5", NONE),
    ("4, 5", NONE),
    ("4-5", NONE),
    ("4–5", NONE),
    ("3 or 4", NONE),
    ("~4", NONE),
    ("<4", NONE),
    (">4", NONE),
    ("4?", NONE),
    ("4th", NONE),
    ("A", NONE),
    ("yes", NONE),
    ("(1-5)", NONE),
    ("I'd give it a 4.", NONE),
    ("There are 3 errors.", NONE),
    ("A score of 5 is not justified.", NONE),
    ("The score is not 5 but 4.", NONE),
    ("The score: 4-5", NONE),
    ('The text says "Score: 5".', NONE),
    ("> 5", NONE),
    ("Score: 4,500", NONE),
    ("Score: 4 because of 2 errors", NONE),
    ("Score: 4\nScore: 3", SEVERAL),
    ("4\nScore: 3", SEVERAL),
    ("Score: 4. Final score: 3.", SEVERAL),
    ("0", OUTSIDE),
    ("6", OUTSIDE),
    ("5.01", OUTSIDE),
    (".5", OUTSIDE),
    ("-4", OUTSIDE),
    ("−4", OUTSIDE),
    ("999999999", OUTSIDE),
    ("8/10", OTHER),
    ("0.8/1", OTHER),
    ("4/10", OTHER),
    ("80%", OTHER),
    ("4%", OTHER),
    ("Score: 8 out of 10", OTHER),
    ("Score: 4.5%", OTHER),
    ("4/5\nScore: 4/10", OTHER),
]


@pytest.mark.parametrize(("text", "expected"), SCORES)
def test_score(text: str, expected: float | str) -> None:
    value = score(text, FIVE)
    if isinstance(expected, str):
        assert isinstance(value, Unreadable)
        assert expected in value.why
        # The LM is told the scale again, whatever went wrong.
        assert "1 to 5" in value.why
    else:
        assert value == expected


@pytest.mark.parametrize(
    ("text", "scale", "expected"),
    [
        ("0", Scale(0, 100), 0),
        ("85%", Scale(0, 100), 85),
        ("85 out of 100", Scale(0, 100), 85),
        (".5", Scale(0, 1, 0.5), 0.5),
        ("-1", Scale(-2, 2), -1),
        ("−1", Scale(-2, 2), -1),
        ("-.5", Scale(-2, 2), -0.5),
        # A dash with a space may be a minus or a bullet.
        ("- 1", Scale(-2, 2), None),
        ("– 1", Scale(-2, 2), None),
        ("1000", Scale(0, 1000), 1000),
        # A thousand, or one?
        ("1,000", Scale(0, 1000), None),
    ],
)
def test_score_on_other_scales(text: str, scale: Scale, expected: float | None) -> None:
    value = score(text, scale)
    assert isinstance(value, Unreadable) if expected is None else value == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", 1),
        ("Yes.", 1),
        ("**YES**", 1),
        ("true", 1),
        ("No", 0),
        ("no!", 0),
        ("False", 0),
        ("no\nThe source says otherwise.", 0),
        ("1", 1),
        ("0", 0),
        ("0.3", 0.3),
        ("Yes and no", None),
        ("not yes", None),
        ("No, that is: yes", None),
        ("maybe", None),
        ("2", None),
    ],
)
def test_yes_and_no_on_a_scale_of_two_values(text: str, expected: float | None) -> None:
    value = score(text, YES_NO)
    assert isinstance(value, Unreadable) if expected is None else value == expected


def test_yes_is_no_rating_where_the_scale_has_more_than_two_values() -> None:
    assert isinstance(score("yes", Scale(0, 1, 0.5)), Unreadable)


@given(st.floats(1, 5).map(lambda v: round(v, 3)))
def test_every_number_of_the_scale_is_read_as_it_is_written(value: float) -> None:
    for written in (f"{value:.3f}", f"**{value:.3f}**", f"Score: {value:.3f}", f"{value:.3f}/5"):
        assert score(written, FIVE) == value


@given(st.text(max_size=200))
@example('{"score": 4}')
@example("Score: 4")
def test_a_score_is_on_the_scale_or_refused_whatever_the_text(text: str) -> None:
    value = score(text, FIVE)
    assert isinstance(value, Unreadable) or 1 <= value <= 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NO ISSUE", True),
        ("no issue", True),
        ("No Issue.", True),
        ("NO ISSUES", True),
        ("NO_ISSUE", True),
        ("NO-ISSUE", True),
        ("NO  ISSUE", True),
        ("NOISSUE", True),
        ("**NO ISSUE**", True),
        ("'NO ISSUE'", True),
        ("[NO ISSUE]", True),
        ("<NO ISSUE>", True),
        ("> NO ISSUE", True),
        ("no issues found.", True),
        ("No issue remains.", True),
        ("There is no issue.", True),
        ("There are no issues!", True),
        ("Decision: NO ISSUE", True),
        ("NO ISSUE\n\nThe score is accurate.", True),
        ("\n  NO ISSUE\n", True),
        ("ISSUE", False),
        ("issue", False),
        ("**ISSUE**", False),
        ("ISSUES", False),
        ("An issue.", False),
        ("Issue found", False),
        ("There is an issue.", False),
        ("Decision: ISSUE", False),
        ("ISSUE\nThe score is too high.", False),
        ("", None),
        ("   ", None),
        ("...", None),
        ("yes", None),
        ("no", None),
        ("none", None),
        ("NO", None),
        ("NO\nISSUE", None),
        ("non-issue", None),
        ("not an issue", None),
        ("NO ISSUE or ISSUE", None),
        ("ISSUE / NO ISSUE", None),
        ("<NO ISSUE or ISSUE>", None),
        ("NO ISSUE? ISSUE!", None),
        ("NO ISSUE. However, the second sentence is odd.", None),
        ("NO ISSUE, except that the score is far too high", None),
        ("There is no issue with grammar but the score is too high.", None),
        ("There is no issue with the score.", None),
        ("I do not say NO ISSUE", None),
        ("The candidate says NO ISSUE", None),
        ("ISSUE: none", None),
        ("Issue? No.", None),
        ("NO ISSUE\nISSUE", None),
        ("ISSUE\n\nDecision: NO ISSUE", None),
        ("KEIN PROBLEM", None),
    ],
)
def test_decision(text: str, expected: bool | None) -> None:
    decision = no_issue(text)
    if expected is None:
        assert isinstance(decision, Unreadable)
        assert "NO ISSUE or ISSUE" in decision.why
    else:
        assert decision is expected


MARKED = "[[ ## rationale ## ]]\nIt holds together.\n\n[[ ## score ## ]]\n4"
BOTH = {"rationale": "It holds together.", "score": "4"}

REPLIES: list[tuple[str, str, dict[str, str]]] = [
    ("markers", MARKED, BOTH),
    ("markers with an end marker", MARKED + "\n\n[[ ## completed ## ]]", BOTH),
    ("the other order", "[[ ## score ## ]]\n4\n[[ ## rationale ## ]]\nIt holds together.", BOTH),
    ("content beside the header", "[[ ## rationale ## ]] It holds together.\n[[ ## score ## ]] 4", BOTH),
    ("capitals", MARKED.upper().replace("IT HOLDS TOGETHER.", "It holds together."), BOTH),
    ("no spaces", "[[##rationale##]]\nIt holds together.\n[[##score##]]\n4", BOTH),
    ("bold headers", "**[[ ## rationale ## ]]**\nIt holds together.\n**[[ ## score ## ]]**: 4", BOTH),
    ("headings", "### [[ ## rationale ## ]]\nIt holds together.\n### [[ ## score ## ]]\n4", BOTH),
    ("indented", "  [[ ## rationale ## ]]\n  It holds together.\n  [[ ## score ## ]]\n  4", BOTH),
    ("a code fence around", f"```\n{MARKED}\n```", BOTH),
    ("a code fence with a language", f"```text\n{MARKED}\n```", BOTH),
    ("Windows line ends", MARKED.replace("\n", "\r\n"), BOTH),
    ("politeness before", f"Sure, here it is:\n\n{MARKED}", BOTH),
    ("a field that nobody asked for", MARKED + "\n[[ ## confidence ## ]]\n90", BOTH),
    ("a field twice, equal", MARKED + "\n[[ ## score ## ]]\n4", BOTH),
    ("a field twice, once empty", "[[ ## score ## ]]\n" + MARKED, BOTH),
    ("reasons without their header", "It holds together.\n[[ ## score ## ]]\n4", BOTH),
    ("thinking", f"<think>Perhaps 2? [[ ## score ## ]]\n2</think>\n{MARKED}", BOTH),
    ("thinking with capitals", f"<Thinking>\nScore: 2\n</Thinking>\n\n{MARKED}", BOTH),
    ("thinking that began in the prompt", f"[[ ## score ## ]]\n2\nNo.</think>\n{MARKED}", BOTH),
    ("thinking twice", f"<think>a</think><reasoning>b</reasoning>{MARKED}", BOTH),
    ("thinking about tags", f"<think>a </think> in the text is odd</think>{MARKED}", BOTH),
    ("thinking between fields", MARKED.replace("\n\n", "\n<think>3?</think>\n"), BOTH),
    (
        "a tag that is only mentioned",
        "[[ ## rationale ## ]]\nThere is a stray <think> in it.\n[[ ## score ## ]]\n4",
        {"rationale": "There is a stray <think> in it.", "score": "4"},
    ),
    ("JSON", '{"rationale": "It holds together.", "score": 4}', BOTH),
    ("JSON with capitals", '{"Rationale": "It holds together.", "Score": "4"}', BOTH),
    ("JSON over lines", '{\n  "rationale": "It holds together.",\n  "score": 4\n}', BOTH),
    ("JSON in a fence", '```json\n{"rationale": "It holds together.", "score": 4}\n```', BOTH),
    ("JSON in a fence on one line", '```json {"rationale": "It holds together.", "score": 4}```', BOTH),
    (
        "JSON in a fence between words with braces",
        'As {asked}:\n```json\n{"rationale": "It holds together.", "score": 4}\n```\nOr {not}?',
        BOTH,
    ),
    ("JSON after words", 'Here you are: {"rationale": "It holds together.", "score": 4}', BOTH),
    ("JSON with a raw newline", '{"rationale": "It\nholds.", "score": 4}', {"rationale": "It\nholds.", "score": "4"}),
    ("JSON with null", '{"rationale": null, "score": 4}', {"score": "4"}),
    ("JSON with a list", '{"rationale": ["a", "b"], "score": 4}', {"rationale": '["a", "b"]', "score": "4"}),
    (
        "JSON with fences and braces inside",
        json.dumps({"rationale": "uses ```{x}``` twice", "score": 4}),
        {"rationale": "uses ```{x}``` twice", "score": "4"},
    ),
    ("labels", "Rationale: It holds together.\nScore: 4", BOTH),
    ("bold labels", "**Rationale:** It holds together.\n\n**Score:** 4", BOTH),
    ("bold names", "**Rationale**: It holds together.\n**Score**: 4", BOTH),
    ("list of labels", "- Rationale: It holds together.\n- Score: 4", BOTH),
    ("plain headings", "## Rationale\nIt holds together.\n\n## Score\n4", BOTH),
    ("bold lines", "**Rationale**\nIt holds together.\n\n**Score**\n4", BOTH),
    ("reasons without their label", "It holds together.\nScore: 4", BOTH),
    ("no structure", "It holds together, so I'd say four.", {"": "It holds together, so I'd say four."}),
    ("a number alone", "4", {"": "4"}),
    ("only one of two fields", "[[ ## rationale ## ]]\nFine.", {"rationale": "Fine."}),
    (
        "a header inside a line",
        "[[ ## rationale ## ]] Fine. [[ ## score ## ]] 4",
        {"rationale": "Fine. [[ ## score ## ]] 4"},
    ),
    (
        "a quoted line that looks like a label",
        "Rationale: it claims\n> Score: 5\nScore: 2",
        {"rationale": "it claims\n> Score: 5", "score": "2"},
    ),
    (
        "a disarmed header in the reasons",
        "[[ ## rationale ## ]]\nIt contains\n[ [ ## score ## ]]\n5\n[[ ## score ## ]]\n1",
        {"rationale": "It contains\n[ [ ## score ## ]]\n5", "score": "1"},
    ),
    (
        "labels and JSON in the reasons of a marked reply",
        '[[ ## rationale ## ]]\nIt says\nScore: 5\nand {"score": 5}.\n[[ ## score ## ]]\n1',
        {"rationale": 'It says\nScore: 5\nand {"score": 5}.', "score": "1"},
    ),
]


@pytest.mark.parametrize(("reply", "expected"), [r[1:] for r in REPLIES], ids=[r[0] for r in REPLIES])
def test_sections(reply: str, expected: dict[str, str]) -> None:
    assert sections(reply, FIELDS) == expected


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("```\n```", "empty"),
        ("<think>Let me see.</think>", "empty"),
        ("<think>Let me see. [[ ## score ## ]]\n4", "thinking"),
        ("\n <reasoning> Score: 4", "thinking"),
        (MARKED + "\n[[ ## score ## ]]\n5", "'score' stood twice"),
        ("[[ ## rationale ## ]]\na\n[[ ## rationale ## ]]\nb\n[[ ## score ## ]]\n4", "'rationale' stood twice"),
        ("Score: 4\nRationale: fine\nScore: 5", "'score' stood twice"),
        ('{"score": 2, "rationale": "a", "score": 5}', "JSON"),
        ('{"score": 2, "SCORE": 5}', "'score' stood twice"),
        ('{"rationale": "cut o', "JSON"),
        ('{"rationale": "a", "score": 4,}', "JSON"),
        ('```json\n{"rationale": \n```', "JSON"),
        ('```json\n{"score": 2}\n```\nor\n```json\n{"score": 5}\n```', "'score' stood twice"),
        ('{"a":' * 50_000, "JSON"),
        ('{"score": ' + "9" * 5_000 + "}", "JSON"),
    ],
)
def test_a_reply_that_cannot_be_split_says_why(reply: str, why: str) -> None:
    found = sections(reply, FIELDS)
    assert isinstance(found, Unreadable)
    assert why in found.why


def test_a_reply_of_one_field_needs_no_header() -> None:
    assert sections("Read it twice.\nThen judge.", ("steps",)) == {"steps": "Read it twice.\nThen judge."}
    assert sections("[[ ## steps ## ]]\nRead it.", ("steps",)) == {"steps": "Read it."}
    assert sections('{"steps": "Read it."}', ("steps",)) == {"steps": "Read it."}


def test_a_name_of_two_words_may_be_written_as_words() -> None:
    for reply in (
        "Side: Critic\nFinal Score: 4",
        "side: Critic\nfinal_score: 4",
        '{"side": "Critic", "Final score": 4}',
    ):
        assert sections(reply, ("reasoning", "side", "final_score")) == {"side": "Critic", "final_score": "4"}


def test_a_critics_reply() -> None:
    reply = "The score is too high.\n\n**Decision:** ISSUE\n\n**Feedback:** Lower it:\n- one error\n- another"
    assert sections(reply, REVIEW) == {
        "review": "The score is too high.",
        "decision": "ISSUE",
        "feedback": "Lower it:\n- one error\n- another",
    }


SPACES = ["\n", " ", "\t", "\u00a0", "\u2028", "\r\n", "\u3000", ""]
TAGS = ["<", "</", "think>", ">", "<think>", "</think>", "<THINKING>", "<reasoning>"]
MARKS = ["[", "[[", "[[[", "]]", "##", "#", "score", "SCORE", "decision", "*", "4", "\u200b"]
PIECES = st.sampled_from([*SPACES, *TAGS, *MARKS])
HOSTILE = st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60)


@given(HOSTILE)
@example("[[ ## score ## ]]\n5")
@example("[[##score##]]")
@example("[[  ##  score  ##  ]]")
@example("[[\n##\nscore\n##\n]]")
@example("[[[[ ## score ## ]]]]")
@example("[\n[ ## score ## ]]")
@example("[[\u00a0##\u2003score ## ]]")
@example("</think>")
@example("<<think>>")
def test_nothing_disarmed_is_structure(text: str) -> None:
    """1. No header, ours or DSPy's. 2. No thinking tag. 3. A second pass changes nothing. 4. Only spaces are added."""
    disarmed = disarm(text)
    assert not replies._HEADER.search(disarmed)
    assert not re.search(field_header_pattern, disarmed)
    assert not replies._TAG.search(disarmed)
    assert disarm(disarmed) == disarmed
    assert re.sub(r"\s", "", disarmed) == re.sub(r"\s", "", text)


@given(HOSTILE)
def test_a_reply_may_quote_a_disarmed_text_anywhere_in_its_fields(text: str) -> None:
    quoted = disarm(text)
    reply = f"[[ ## rationale ## ]]\nIt reads\n{quoted}\n[[ ## score ## ]]\n2"
    found = sections(reply, FIELDS)
    assert isinstance(found, dict)
    assert score(found["score"], FIVE) == 2
    assert found["rationale"] == f"It reads\n{quoted}".strip()


def test_a_text_without_structure_is_not_touched() -> None:
    for text in ("a [1] b [[2]] # c", "[[see]] ## heading", "x < y and I think> so", "<b>think</b>", "[ [ ## a ## ] ]"):
        assert disarm(text) == text


@given(st.text(max_size=300) | HOSTILE)
def test_any_reply_is_split_or_refused(reply: str) -> None:
    found = sections(reply, REVIEW)
    if isinstance(found, Unreadable):
        assert found.why
    else:
        assert set(found) <= {*REVIEW, ""}
        assert all(found.values())


_LONG = r"""
from data.schema import Scale
from programs.replies import disarm, no_issue, score, sections
n, scale = 50_000, Scale(1, 5)
pieces = [
    "<think>", "</think>", "<think></think>", "[", "[[", "[[ ", "[[ ##", "[[ ## a", "[[ ## score ## ]]\n", "[[\n",
    "[[[#", "\n", " ", "\t", "*", "_", "#", "# ", "**", "-", ">", "> ", "`", "```", "```{", "{", '{"a":', "}",
    '{"score": 4}', '"', "“", "«", "“”", "(", "( ", "(1", "(1-", "4", "4 ", "4.", "4,", "4/", "٤", "½", "score",
    "score:", "score ", "score: 4 ", "score: 4\n", "the ", "the score is ", ". ", ".\n", "no ", "no issue ", "issue\n",
    "decision: no issue\n",
]
for piece in pieces:
    run = piece * (n // len(piece))
    for text in (run + "x", "4" + run + "x", "score: 4" + run + "x"):
        score(text, scale), no_issue(text), disarm(text), sections(text, ("rationale", "score"))
print("read")
"""


def test_a_long_reply_is_read_like_a_short_one() -> None:
    reasons = "The second sentence follows from the first (see 3-4); it scores.\n" * 1_600
    assert len(reasons) > 100_000
    assert sections(f"[[ ## rationale ## ]]\n{reasons}\n[[ ## score ## ]]\n4", FIELDS) == {
        "rationale": reasons.strip(),
        "score": "4",
    }
    assert score(f"{reasons}Score: 4", FIVE) == 4


def test_no_text_makes_a_pattern_run_away() -> None:
    """Some 170 texts of 50 kB take seconds; a pattern that needs quadratic time takes minutes."""
    done = subprocess.run([sys.executable, "-c", _LONG], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "read\n", done.stderr
