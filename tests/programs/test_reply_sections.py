"""How a reply is split into its fields."""

from __future__ import annotations

import json

import pytest

from debate_judge.programs.roles.parsing import Unreadable, parse_fields

FIELDS = ("rationale", "score")

MARKED = "[[ ## rationale ## ]]\nIt holds together.\n\n[[ ## score ## ]]\n4"
BOTH = {"rationale": "It holds together.", "score": "4"}

REPLIES: list[tuple[str, str, dict[str, str]]] = [
    ("markers", MARKED, BOTH),
    ("bold headers", "**[[ ## rationale ## ]]**\nIt holds together.\n**[[ ## score ## ]]**: 4", BOTH),
    ("a field that nobody asked for", MARKED + "\n[[ ## confidence ## ]]\n90", BOTH),
    ("a field twice, equal", MARKED + "\n[[ ## score ## ]]\n4", BOTH),
    ("reasons without their header", "It holds together.\n[[ ## score ## ]]\n4", BOTH),
    ("thinking", f"<think>Perhaps 2? [[ ## score ## ]]\n2</think>\n{MARKED}", BOTH),
    ("thinking that began in the prompt", f"Perhaps:\n[[ ## score ## ]]\n2\nNo.</think>\n{MARKED}", BOTH),
    ("thinking about tags", f"<think>a </think> in the text is odd</think>{MARKED}", BOTH),
    (
        "a tag that is only mentioned",
        "[[ ## rationale ## ]]\nThere is a stray <think> in it.\n[[ ## score ## ]]\n4",
        {"rationale": "There is a stray <think> in it.", "score": "4"},
    ),
    ("JSON", '{"rationale": "It holds together.", "score": 4}', BOTH),
    ("JSON in a fence", '```json\n{"rationale": "It holds together.", "score": 4}\n```', BOTH),
    ("JSON after words", 'Here you are: {"rationale": "It holds together.", "score": 4}', BOTH),
    ("JSON with a raw newline", '{"rationale": "It\nholds.", "score": 4}', {"rationale": "It\nholds.", "score": "4"}),
    (
        "JSON with fences and braces inside",
        json.dumps({"rationale": "uses ```{x}``` twice", "score": 4}),
        {"rationale": "uses ```{x}``` twice", "score": "4"},
    ),
    (
        "JSON that a label's text quotes",
        'Rationale: The text ends with {"score": 5} and so on.\nScore: 2',
        {"rationale": 'The text ends with {"score": 5} and so on.', "score": "2"},
    ),
    (
        "a block of JSON that a label's text quotes",
        'Rationale: It has\n```json\n{"rationale": "Perfect.", "score": 5}\n```\nScore: 2',
        {"rationale": 'It has\n```json\n{"rationale": "Perfect.", "score": 5}\n```', "score": "2"},
    ),
    (
        "labels that JSON quotes",
        '{"rationale": "It ends with\nScore: 5\nand {\\"score\\": 5}.", "score": 2}',
        {"rationale": 'It ends with\nScore: 5\nand {"score": 5}.', "score": "2"},
    ),
    (
        "the end of thinking in a field",
        "[[ ## rationale ## ]]\nIt has a stray </think> in it.\n[[ ## score ## ]]\n4",
        {"rationale": "It has a stray </think> in it.", "score": "4"},
    ),
    (
        "the end of thinking after the score",
        "Score: 4\nRationale: It has a stray </think> in it.",
        {"rationale": "It has a stray </think> in it.", "score": "4"},
    ),
    (
        "the end of thinking in JSON",
        '{"rationale": "a stray </think> in it", "score": 4}',
        {"rationale": "a stray </think> in it", "score": "4"},
    ),
    ("labels", "Rationale: It holds together.\nScore: 4", BOTH),
    ("bold labels", "**Rationale:** It holds together.\n\n**Score:** 4", BOTH),
    ("plain headings", "## Rationale\nIt holds together.\n\n## Score\n4", BOTH),
    ("the scale in the label", "Rationale: It holds together.\nScore (1-5): 4", BOTH),
    ("the end of a turn", "Rationale: It holds together.\nScore: 4<|im_end|>", BOTH),
    ("reasons without their label", "It holds together.\nScore: 4", BOTH),
    ("no structure", "It holds together, so I'd say four.", {"": "It holds together, so I'd say four."}),
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
    assert parse_fields(reply, FIELDS) == expected


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ('{"score": 5} is what it claims.\nScore: 2', "two forms"),
        ('Fine.\n```json\n{"rationale": "a", "score": 5}\n```\nScore: 2', "two forms"),
        ("The text claims\nscore: 5\nI give it a 2.", "not clear where"),
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
    found = parse_fields(reply, FIELDS)
    assert isinstance(found, Unreadable)
    assert why in found.problem


@pytest.mark.parametrize(
    "reply",
    [
        'The text ends with {"rationale": "Perfect.", "score": 5}',
        'The text {"rationale": "Perfect.", "score": 5} is odd: I give it a 2.',
        'It has {"score": 5} in it.',
        'Look: {"score": 5}',
    ],
)
def test_json_in_a_sentence_is_no_answer(reply: str) -> None:
    assert parse_fields(reply, FIELDS) == {"": reply}


def test_a_reply_of_one_field_needs_no_header() -> None:
    assert parse_fields("Read it twice.\nThen judge.", ("steps",)) == {"steps": "Read it twice.\nThen judge."}
    assert parse_fields("[[ ## steps ## ]]\nRead it.", ("steps",)) == {"steps": "Read it."}
    assert parse_fields('{"steps": "Read it."}', ("steps",)) == {"steps": "Read it."}


def test_a_name_of_two_words_may_be_written_as_words() -> None:
    for reply in (
        "Side: Critic\nFinal Score: 4",
        "side: Critic\nfinal_score: 4",
        '{"side": "Critic", "Final score": 4}',
    ):
        assert parse_fields(reply, ("reasoning", "side", "final_score")) == {"side": "Critic", "final_score": "4"}
