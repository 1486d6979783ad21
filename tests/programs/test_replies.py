"""Reading of replies: how one is split into its fields, and the scores and the feedback in them."""

from __future__ import annotations

import json

import pytest

from debate_judge.data.schema import Scale
from debate_judge.programs.debate.judge import Feedback, parse_briefs, parse_feedback
from debate_judge.programs.parsing import Unreadable, parse_fields, parse_score

FIVE = Scale(1, 5)
NONE, SEVERAL = "no score could be found", "several different scores"
OUTSIDE, OTHER = "outside the scale", "another scale"
SCORES: list[tuple[str, float | str]] = [
    *((text, 4) for text in ("4", "4.0", "4!", "**4**", '"4"', "“4”", "[[4]]", "<4>", "4/5", "4 out of 5", "٤")),
    *((text, 4) for text in ("4 - mostly coherent", "4 points", "<score>\n4\n</score>", "4 - a) - b) - c")),
    *((text, 4) for text in ("Score: 4", "Score：4", "**Score:** 4", "**Score**: **4**", "### Score: 4")),
    *((text, 4) for text in ("Score: 4 – mostly coherent", "Score: 4/5 (good)", "Final score: 4", "Score (1-5): 4")),
    ("My revised score is 4.", 4),
    ("4\nThere are 3 errors in 2 sentences.", 4),
    ("4,5", 4.5),
    ("The Critic's score: 2. My score: 4.", 4),
    ('The text says "Score: 5".\nScore: 2', 2),
    ("> Score: 5\nScore: 2", 2),
    ("The text claims\nscore: 5\nMy score: 2", 2),
    ("", "the score was missing"),
    *((text, NONE) for text in ("good", "inf", "1e3", "½", "1,000", "4" * 400, "4, 5", "4-5", "3 or 4", "4th", "yes")),
    *(
        (text, NONE)
        for text in ("45>", "<45", "(1-5)", "I'd give it a 4.", "There are 3 errors.", "4 - 3 sentences - and so on")
    ),
    ("A score of 5 is not justified.", NONE),
    ("The score is not 5 but 4.", NONE),
    ('The text says "Score: 5".', NONE),
    ("Score: 4 because of 2 errors", NONE),
    ("The text claims\nscore: 5\nI give it a 2.", NONE),
    *((text, SEVERAL) for text in ("Score: 4\nScore: 3", "4\nScore: 3", "Score: 4. Final score: 3.")),
    *((text, OUTSIDE) for text in ("0", "5.01", "-4", "999999999")),
    *((text, OTHER) for text in ("8/10", "4/10", "80%", "Score: 8 out of 10", "4/5\nScore: 4/10")),
]


@pytest.mark.parametrize(("text", "expected"), SCORES)
def test_score(text: str, expected: float | str) -> None:
    score = parse_score(text, FIVE)
    if isinstance(score, Unreadable):
        assert str(expected) in score.problem
        # The message for the LM repeats the scale in any case.
        assert "1 to 5" in score.problem
    else:
        assert score == expected


@pytest.mark.parametrize(
    ("text", "scale", "aspect", "expected"),
    [
        # The name of the aspect is a label for its own score.
        ("Coherence: 3", FIVE, "coherence", 3),
        ("It jumps.\n\nRating:\nCoherence: 3", FIVE, "coherence", 3),
        ("Overall quality: 3", FIVE, "overall_quality", 3),
        ("Coherence: 3\nRating: 2", FIVE, "coherence", SEVERAL),
        ('The text says "Coherence: 3".', FIVE, "coherence", NONE),
        ("85%", Scale(0, 100), "", 85),
        (".5", Scale(0, 1, 0.5), "", 0.5),
        # A dash with a space may be a minus or a bullet; a thousand, or one?
        ("- 1", Scale(-2, 2), "", NONE),
        ("1,000", Scale(0, 1000), "", NONE),
        ("yes", Scale(0, 1), "", 1),
        ("no\nThe source says otherwise.", Scale(0, 1), "", 0),
        ("Yes and no", Scale(0, 1), "", NONE),
    ],
)
def test_score_of_an_aspect_and_on_other_scales(text: str, scale: Scale, aspect: str, expected: float | str) -> None:
    score = parse_score(text, scale, aspect)
    assert str(expected) in score.problem if isinstance(score, Unreadable) else score == expected


NO_ISSUES = [
    *("NO ISSUE", "NO ISSUES", "NO_ISSUE.", "**NO ISSUE**", "Feedback: NO ISSUE", "NO ISSUE: I agree."),
    *("NO ISSUE\n\nThe score is accurate.", "NO ISSUE (the score is fine)", "NO ISSUE. The score is right."),
]
ISSUES = [
    *("ISSUE: too high", "The score is too high.", "ISSUE: none", "It reads:\nNO ISSUE\nso.", '"NO ISSUE" it says.'),
    *("NO ISSUE. However, the second sentence is odd.", "NO ISSUE, except that the score is far too high"),
    "There is no issue with grammar but the score is too high.",
    "NO ISSUE - with grammar, the facts are wrong",
]


@pytest.mark.parametrize(("text", "no_issue"), [*((t, True) for t in NO_ISSUES), *((t, False) for t in ISSUES)])
def test_feedback(text: str, no_issue: bool) -> None:
    assert parse_feedback(text) == Feedback(no_issue, "NO ISSUE" if no_issue else text)


def test_two_briefs() -> None:
    briefs = {"case_for_less": "It breaks off.", "case_for_more": "NO ISSUE"}
    both = "The case for less: It breaks off.\n\nThe case for more: NO ISSUE"
    assert parse_briefs(briefs) == Feedback(False, both)
    assert parse_briefs({**briefs, "case_for_less": "No issue."}) == Feedback(True, "NO ISSUE")
    missing = parse_briefs({**briefs, "case_for_more": " "})
    assert isinstance(missing, Unreadable)
    assert "both needed" in missing.problem


MARKED = "[[ ## rationale ## ]]\nIt holds together.\n\n[[ ## score ## ]]\n4"
REPLIES = [
    MARKED,
    "**[[ ## rationale ## ]]**\nIt holds together.\n**[[ ## score ## ]]**: 4",
    MARKED + "\n[[ ## score ## ]]\n4",
    "It holds together.\n[[ ## score ## ]]\n4",
    f"<think>Perhaps 2? [[ ## score ## ]]\n2</think>\n{MARKED}",
    # Thinking that began in the prompt, and thinking about tags.
    f"Perhaps:\n[[ ## score ## ]]\n2\nNo.</think>\n{MARKED}",
    f"<think>a </think> in the text is odd</think>{MARKED}",
    "[[ ## rationale ## ]]\n<think>Hm.</think>It holds together.\n[[ ## score ## ]]\n<think>Is it 2?</think>\n4",
    '{"rationale": "It holds together.", "score": 4}',
    '```json\n{"rationale": "It holds together.", "score": 4}\n```',
    'I read it twice.\n```json\n{"rationale": "It holds together.", "score": 4}\n```\nThat is all.',
    'Here you are: {"rationale": "It holds together.", "score": 4}',
    "Rationale: It holds together.\nScore: 4",
    "**Rationale:** It holds together.\n\n**Score:** 4",
    "It holds together.\nScore: 4",
]
QUOTED = [
    "There is a stray </think> in it.",
    "It ends with\n> Score: 5\nand so on.",
    'It ends with {"score": 5} and so on.',
]
WRITTEN = ["[[ ## rationale ## ]]\n{}\n[[ ## score ## ]]\n4", "Rationale: {}\nScore: 4", "Score: 4\nRationale: {}"]
UNSTRUCTURED = [
    "It holds together, so I'd say four.",
    'The text ends with {"rationale": "Perfect.", "score": 5}',
    'The text {"rationale": "Perfect.", "score": 5} is odd: I give it a 2.',
    'Look: {"score": 5}',
]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        *((reply, {"rationale": "It holds together.", "score": "4"}) for reply in REPLIES),
        *((form.format(text), {"rationale": text, "score": "4"}) for form in WRITTEN for text in QUOTED),
        *((json.dumps({"rationale": text, "score": 4}), {"rationale": text, "score": "4"}) for text in QUOTED),
        ('```json\n{"rationale": "A ``` is in it.", "score": 4}\n```', {"rationale": "A ``` is in it.", "score": "4"}),
        ('{"rationale": "It\nholds.", "score": 4}', {"rationale": "It\nholds.", "score": "4"}),
        *((text, {"": text}) for text in UNSTRUCTURED),
    ],
)
def test_fields_of_a_reply(reply: str, expected: dict[str, str]) -> None:
    assert parse_fields(reply, ("rationale", "score")) == expected


@pytest.mark.parametrize(
    ("reply", "fields"),
    [
        # A name of two words may be written as words; a reply of one field needs no header.
        ("Side: Critic\nFinal Score: 4", {"side": "Critic", "final_score": "4"}),
        ('{"side": "Critic", "Final score": 4}', {"side": "Critic", "final_score": "4"}),
        *((text, {"steps": "Read it."}) for text in ("Read it.", '{"steps": "Read it."}')),
    ],
)
def test_fields_of_other_roles(reply: str, fields: dict[str, str]) -> None:
    assert parse_fields(reply, tuple(fields)) == fields


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ('{"score": 5} is what it claims.\nScore: 2', "two forms"),
        ('Fine.\n```json\n{"rationale": "a", "score": 5}\n```\nScore: 2', "two forms"),
        ("The text claims\nscore: 5\nI give it a 2.", "not clear where"),
        *((text, "empty") for text in ("", " \n\t", "```\n```", "<think>Let me see.</think>")),
        ("<think>Let me see. [[ ## score ## ]]\n4", "thinking"),
        ("<think>Let me see.</think>\n<think>\n[[ ## score ## ]]\n4", "thinking"),
        # A tag that hides a field.
        ("[[ ## rationale ## ]]\nIt says <think>.\n[[ ## score ## ]]\n5\n[[ ## x ## ]]\nIt says </think>.", "thinking"),
        (MARKED + "\n[[ ## score ## ]]\n5", "'score' stood twice"),
        ('{"score": 2, "SCORE": 5}', "'score' stood twice"),
        ('```json\n{"score": 2}\n```\nor\n```json\n{"score": 5}\n```', "'score' stood twice"),
        *((text, "JSON") for text in ('{"score": 2, "rationale": "a", "score": 5}', '{"rationale": "a", "score": 4,}')),
        *((text, "JSON") for text in ('{"rationale": "cut o', '```json\n{"rationale": \n```', '{"a":' * 50_000)),
        ('{"score": ' + "9" * 5_000 + "}", "JSON"),
    ],
    ids=lambda value: value[:40],
)
def test_a_reply_that_cannot_be_split_says_why(reply: str, why: str) -> None:
    unreadable = parse_fields(reply, ("rationale", "score"))
    assert isinstance(unreadable, Unreadable)
    assert why in unreadable.problem
