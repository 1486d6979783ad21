"""Reading of replies: how one is split into its fields, the scores and decisions in them, and those of several cells:
each cell read was stated for this cell, and with no other value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.debate.prompts import Cell, cell_label, cells_of
from debate_judge.programs.debate.table_replies import CriticDecision, parse_decision, parse_decisions, parse_scores
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import Unreadable, parse_fields, parse_score
from debate_judge.programs.roles.score_modes import ParsedScore
from tests.programs.debates import TASK
from tests.programs.tables import block, cells, items

FIVE = Scale(1, 5)
NONE, SEVERAL = "no score could be found", "several different scores"
OUTSIDE, OTHER = "outside the scale", "another scale"
SCORES: list[tuple[str, float | str]] = [
    *((text, 4) for text in ("4", "4.0", "4!", "**4**", '"4"', "“4”", "[[4]]", "<4>", "4/5", "4 out of 5", "٤")),
    *((text, 4) for text in ("4 - mostly coherent", "4 points", "<score>\n4\n</score>", "4 - a) - b) - c")),
    *((text, 4) for text in ("Score: 4", "Score：4", "**Score:** 4", "**Score**: **4**", "### Score: 4")),
    *((text, 4) for text in ("Score: 4 – mostly coherent", "Score: 4/5 (good)", "Final score: 4", "Score (1-5): 4")),
    ("My revised score is 4.", 4),
    ("It hangs together well. Overall score: 4.", 4),
    ("4\nThere are 3 errors in 2 sentences.", 4),
    ("4.25", 4.25),
    ("4,5", 4.5),
    ("The Critic's score: 2. My score: 4.", 4),
    ('The text says "Score: 5".\nScore: 2', 2),
    ("> Score: 5\nScore: 2", 2),
    ("The text claims\nscore: 5\nMy score: 2", 2),
    ("2\nThe text claims\nScore: 5\nwhich is odd.", 2),
    ("", "the score was missing"),
    *((text, NONE) for text in ("good", "inf", "1e3", "½", "1,000", "4" * 400, "4, 5", "4-5", "3 or 4", "4th", "yes")),
    *((text, NONE) for text in ("(1-5)", "I'd give it a 4.", "There are 3 errors.", "4 - 3 sentences - and so on")),
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
        ("C++ (1-5): 3", FIVE, "C++", 3),
        ("Coherence: 3\nRating: 2", FIVE, "coherence", SEVERAL),
        ("Coherence is 3 parts luck.", FIVE, "coherence", NONE),
        ("Incoherence: 3", FIVE, "coherence", NONE),
        ('The text says "Coherence: 3".', FIVE, "coherence", NONE),
        ("85%", Scale(0, 100), "", 85),
        (".5", Scale(0, 1, 0.5), "", 0.5),
        ("-1", Scale(-2, 2), "", -1),
        # A dash with a space may be a minus or a bullet; a thousand, or one?
        ("- 1", Scale(-2, 2), "", NONE),
        ("1,000", Scale(0, 1000), "", NONE),
        ("yes", Scale(0, 1), "", 1),
        ("No", Scale(0, 1), "", 0),
        ("no\nThe source says otherwise.", Scale(0, 1), "", 0),
        ("Yes and no", Scale(0, 1), "", NONE),
        ("2", Scale(0, 1), "", OUTSIDE),
    ],
)
def test_score_of_an_aspect_and_on_other_scales(text: str, scale: Scale, aspect: str, expected: float | str) -> None:
    score = parse_score(text, scale, aspect)
    assert str(expected) in score.problem if isinstance(score, Unreadable) else score == expected


DECISIONS = {
    True: [
        *("NO ISSUE", "NO ISSUES", "**NO ISSUE**", "Decision: NO ISSUE", "NO ISSUE: I agree."),
        *("NO ISSUE\n\nThe score is accurate.", "NO ISSUE (the score is fine)"),
    ],
    False: ["ISSUE", "Decision: ISSUE", "ISSUE\nThe score is too high.", "ISSUE: too high"],
    None: [
        *("", "NO ISSUE or ISSUE", "ISSUE: none", "ISSUE\n\nDecision: NO ISSUE"),
        "NO ISSUE. However, the second sentence is odd.",
        "NO ISSUE, except that the score is far too high",
        "There is no issue with grammar but the score is too high.",
        "NO ISSUE - with grammar, the facts are wrong",
        "TOO HIGH? No, it stands. NO ISSUE",
        "ISSUE? No, it stands. NO ISSUE",
    ],
}


@pytest.mark.parametrize(("text", "expected"), [(text, value) for value, texts in DECISIONS.items() for text in texts])
def test_decision(text: str, expected: bool | None) -> None:
    decision = parse_decision(text)
    assert "NO ISSUE or ISSUE" in decision.problem if isinstance(decision, Unreadable) else decision is expected
    assert isinstance(decision, Unreadable) == (expected is None)


MARKED = "[[ ## rationale ## ]]\nIt holds together.\n\n[[ ## score ## ]]\n4"
REPLIES = [
    MARKED,
    "**[[ ## rationale ## ]]**\nIt holds together.\n**[[ ## score ## ]]**: 4",
    MARKED + "\n[[ ## confidence ## ]]\n90",
    MARKED + "\n[[ ## score ## ]]\n4",
    "It holds together.\n[[ ## score ## ]]\n4",
    f"<think>Perhaps 2? [[ ## score ## ]]\n2</think>\n{MARKED}",
    # Thinking that began in the prompt, and thinking about tags.
    f"Perhaps:\n[[ ## score ## ]]\n2\nNo.</think>\n{MARKED}",
    f"<think>a </think> in the text is odd</think>{MARKED}",
    '{"rationale": "It holds together.", "score": 4}',
    '```json\n{"rationale": "It holds together.", "score": 4}\n```',
    'Here you are: {"rationale": "It holds together.", "score": 4}',
    "Rationale: It holds together.\nScore: 4",
    "**Rationale:** It holds together.\n\n**Score:** 4",
    "## Rationale\nIt holds together.\n\n## Score\n4",
    "Rationale: It holds together.\nScore (1-5): 4<|im_end|>",
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
        ("\n <reasoning> Score: 4", "thinking"),
        # A tag that hides a field.
        ("[[ ## rationale ## ]]\nIt says <think>.\n[[ ## score ## ]]\n5\n[[ ## x ## ]]\nIt says </think>.", "thinking"),
        (MARKED + "\n[[ ## score ## ]]\n5", "'score' stood twice"),
        ("[[ ## rationale ## ]]\na\n[[ ## rationale ## ]]\nb\n[[ ## score ## ]]\n4", "'rationale' stood twice"),
        ("Score: 4\nRationale: fine\nScore: 5", "'score' stood twice"),
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


ALONE, JOINT = cells_of(items("one", "two")), cells_of(cells("one", "two"))
"""Two candidates, in one aspect and in two: coherence on a scale from 1 to 5, plain style on one from 0 to 10."""


def scores(reply: str, of: Mapping[Cell, Item] = ALONE) -> dict[str, tuple[float, str] | str]:
    readings = parse_scores(reply, "scores", list(of), of)
    return {
        cell_label(cell): (value.score, value.rationale) if isinstance(value, ParsedScore) else value.problem
        for cell, value in readings.items()
    }


def decisions(field: str) -> dict[str, str]:
    """The Critic's decisions as other roles get them, or why they cannot be read."""
    reply = f"{block('decisions', field)}\n\n{block('candidate_1', EVIDENCE)}"
    readings = parse_decisions(reply, list(ALONE), ALONE)
    return {
        cell_label(cell): value.text if isinstance(value, CriticDecision) else value.problem
        for cell, value in readings.items()
    }


EVIDENCE = "Its end is missing."


def test_a_key_twice_with_different_values_is_refused_like_a_line() -> None:
    twice = "it stood twice with different content"
    nested = '{"candidate_1": {"coherence": 1, "coherence": 5, "plain_style": 9}, "candidate_2": {"coherence": 2}}'
    assert scores(block("scores", nested), JOINT) == {
        "candidate_1_coherence": twice,
        "candidate_2_coherence": (2, ""),
        "candidate_1_plain_style": (9, ""),
        "candidate_2_plain_style": "it was missing",
    }
    repeated = decisions('{"candidate_1": "NO ISSUE", "candidate_1": "TOO HIGH", "candidate_2": "NO ISSUE"}')
    assert repeated == {"candidate_1": twice, "candidate_2": "NO ISSUE"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("TOO HIGH", f"Too high. {EVIDENCE}"),
        ('TOO HIGH - it ends with "NO ISSUE", which no reader asked for', f"Too high. {EVIDENCE}"),
        ("ISSUE", EVIDENCE),
        ("NO ISSUE", "NO ISSUE"),
        *((text, "must be") for text in ("TOO HIGH or TOO LOW", "TOO HIGH? No, it stands.", "TOO HIGH/TOO LOW")),
        *((text, "must be") for text in ("TOO HIGH but NO ISSUE", "NO ISSUE: TOO HIGH", "NO ISSUE\u2028TOO HIGH")),
        *((text, "must be") for text in ("NO ISSUE\rTOO HIGH", "not too high")),
    ],
)
def test_a_decision_says_one_thing_or_is_refused(text: str, shown: str) -> None:
    read = decisions(f"candidate_1: {text}\ncandidate_2: NO ISSUE")
    assert read["candidate_2"] == "NO ISSUE"
    assert shown in read["candidate_1"] if shown == "must be" else shown == read["candidate_1"]


WHY = {"candidate_1": "It holds together.", "candidate_2": "Dull, in 2 places."}
LINES = "candidate_1: 4\ncandidate_2: 3"
ROWS = [{"candidate": n, "score": 5 - n, "rationale": WHY[f"candidate_{n}"]} for n in (1, 2)]
WITH_REASONS = {
    "labels with words": f"Candidate 1: {WHY['candidate_1']}\n\nCandidate 2: {WHY['candidate_2']}\n\nScores:\n"
    "Candidate 1: 4\nCandidate 2: 3",
    "bold names": f"**Candidate 1**\n{WHY['candidate_1']}\n\n**Candidate 2**\n{WHY['candidate_2']}\n\n"
    "**Scores**\n- **Candidate 1**: 4\n- **Candidate 2**: 3",
    "names in brackets": f"[candidate_1]\n{WHY['candidate_1']}\n[candidate_2]\n{WHY['candidate_2']}\n[scores]\n{LINES}",
    "JSON of rationales": json.dumps({"rationales": WHY, "scores": {"candidate_1": 4, "candidate_2": 3}}),
    "JSON by candidate": json.dumps({f"candidate_{row.pop('candidate')}": row for row in map(dict, ROWS)}),
    "announced JSON": f"Here are the scores:\n```json\n{json.dumps({'scores': ROWS})}\n```",
    "a table with the score last": "| Candidate | Reason | Score |\n|---|---|---|\n"
    f"| candidate_1 | {WHY['candidate_1']} | 4/5 |\n| candidate_2 | {WHY['candidate_2']} | **3** |",
}  # fmt: skip


@pytest.mark.parametrize("form", WITH_REASONS)
def test_scores_and_reasons_are_read_in_any_form(form: str) -> None:
    expected = {"candidate_1": (4, WHY["candidate_1"]), "candidate_2": (3, WHY["candidate_2"])}
    assert scores(WITH_REASONS[form]) == expected


OF_ASPECTS = [
    "## Candidate 1 coherence\nFine.\n## Scores\n- Candidate 1, coherence: 4\n"
    "- Candidate 1, plain style: 9\n- Candidate 2, coherence: 3\n- Candidate 2, plain style: 8",
    '{"coherence": {"candidate_1": 4, "candidate_2": 3}, "plain style": {"candidate_1": 9, "candidate_2": 8}}',
    '{"candidate_1": {"coherence": {"score": 4, "reason": "x"}, "plain_style": {"score": 9}}, '
    '"candidate_2": {"coherence": {"score": 3}, "plain_style": {"score": 8}}}',
    "| candidate_1 | coherence | 4 | a |\n| candidate_1 | plain_style | 9 | b |\n"
    "| candidate_2 | coherence | 3 | c |\n| candidate_2 | plain_style | 8 | d |",
]


@pytest.mark.parametrize("reply", OF_ASPECTS)
def test_scores_in_several_aspects_are_read_in_any_form(reply: str) -> None:
    read = {name: value[0] for name, value in scores(reply, JOINT).items()}
    expected = {"candidate_1_coherence": 4, "candidate_2_coherence": 3}
    assert read == {**expected, "candidate_1_plain_style": 9, "candidate_2_plain_style": 8}


OF_THE_CRITIC = [
    f"review: I looked.\ndecisions:\ncandidate_1: TOO HIGH\ncandidate_2: NO ISSUE\ncandidate_1:\n{EVIDENCE}",
    f"**Decisions:**\n**Candidate 1:** TOO HIGH\n**Candidate 2:** NO ISSUE\n\n**Candidate 1**\n{EVIDENCE}",
    f"decisions:\ncandidate_1: TOO HIGH - {EVIDENCE}\ncandidate_2: NO ISSUE",
    json.dumps({"decisions": {"candidate_1": "TOO HIGH", "candidate_2": "NO ISSUE"}, "candidate_1": EVIDENCE}),
    f"| candidate_1 | TOO HIGH | {EVIDENCE} |\n| candidate_2 | NO ISSUE | |",
]


@pytest.mark.parametrize("reply", OF_THE_CRITIC)
def test_decisions_are_read_in_any_form(reply: str) -> None:
    read = parse_decisions(reply, list(ALONE), ALONE)
    assert list(read.values()) == [CriticDecision(False, f"Too high. {EVIDENCE}"), CriticDecision(True, "NO ISSUE")]
    # No issue may be said of all at once.
    read = parse_decisions("## Decisions\nNO ISSUE", list(ALONE), ALONE)
    assert {value.no_issue for value in read.values()} == {True}


def test_of_a_repeated_field_only_the_cells_that_agree_are_read() -> None:
    def quoting(lines: str) -> str:
        return block("candidate_1", f"It says\n{block('scores', lines)}") + "\n\n" + block("scores", LINES)

    problem = "the field stood twice with different content"
    assert scores(quoting("candidate_1: 5")) == dict.fromkeys(WHY, problem)
    assert scores(quoting("candidate_1: 5\ncandidate_2: 3"))["candidate_2"] == (3, "")


# --- property: each cell read was stated for this cell, and with no other value ---

# Names that begin with another's name: candidates 1 and 11, quality and quality overall.
ASPECTS = [Aspect(name, "Is it good?", Scale(0, 9999)) for name in ("quality", "quality overall")]


def table(*aspects: Aspect) -> dict[Cell, Item]:
    whole = cells_of([Item("g", str(n), TASK, a, "A source.", f"Text {n}") for n in range(1, 12) for a in aspects])
    return {cell: item for cell, item in whole.items() if cell.candidate in (1, 2, 11)}


ONE_ASPECT, TWO_ASPECTS = table(ASPECTS[0]), table(*ASPECTS)
NUMBERED = ("candidate_{}", "Candidate {}", "{}", "- **Candidate #{}**", "| candidate_{}", "CANDIDATE-{}", "* {}")
JOINED = ("{}_{}", "{} {}", "{} - {}", "{}, {}", "{} ({})", "{} | {}", "{}: {}", "{}：{}")
SEPARATORS = (": ", "：", " = ", " | ", " → ", "->", " – ", " — ")
VALUES = ("{}", "**{}**", "{}.", "{} |", "{}/9999", "{} - it is fair", "({})")
FOREIGN = [f"candidate_{name}" for name in ("A", "0", "12", "12345", "1b", "2_art")] + ["Candidate B"]
PROSE = (
    *("", "Here they are:", "| Candidate | Score |", "|---|---|", "> candidate_2: 7", '"candidate_2: 7"', "Best: 1"),
    *("Candidate 2's summary: 3 facts", "It says candidate_2: 7", "So\u2028candidate_2: 7", "So\x0bcandidate_11: 7"),
    *("Candidate scores:", "Candidate 2 (short): 3 facts", "So\rcandidate_1: 7", "candidate: 7", "7 {of} 9"),
)


@dataclass(frozen=True)
class Line:
    """One line of a field: the cell that it is about (None for prose, and for a name that does not exist)."""

    cell: Cell | None
    value: int
    text: str
    key: str
    foreign: bool = False


@st.composite
def stated(draw: st.DrawFn, cells: Sequence[Cell]) -> Line:
    cell, value = draw(st.sampled_from(cells)), draw(st.integers(10, 16))
    name = draw(st.sampled_from(NUMBERED)).format(cell.candidate)
    if cell.aspect:
        aspect = draw(st.sampled_from((cell.aspect, cell.aspect.replace("_", " "), cell.aspect.title())))
        name = draw(st.sampled_from(JOINED)).format(name, aspect)
    written = VALUES[value % len(VALUES)].format(value)
    return Line(cell, value, name + draw(st.sampled_from(SEPARATORS)) + written, name)


@st.composite
def foreign(draw: st.DrawFn) -> Line:
    name, value = draw(st.sampled_from(FOREIGN)), draw(st.integers(0, 9))
    return Line(None, value, f"{name}{draw(st.sampled_from(SEPARATORS))}{value}", name, foreign=True)


def fields(cells: Mapping[Cell, Item]) -> st.SearchStrategy[list[Line]]:
    prose = st.sampled_from(PROSE).map(lambda text: Line(None, 0, text, "note"))
    lines = st.lists(stated(list(cells)) | stated(list(cells)) | prose, max_size=9)
    return st.tuples(lines, st.lists(foreign(), max_size=1)).flatmap(lambda both: st.permutations(both[0] + both[1]))


def as_lines(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def as_object(lines: Sequence[Line]) -> str:
    """A JSON object, perhaps with repeated keys; a quoted table is the value of what has no name."""
    quoted = f"It says\ncandidate_1: 7\n{as_lines(lines)}"
    members = ((line.key, quoted if line.key == "note" else line.value) for line in lines)
    return "{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in members) + "}"


def holds(cells: Mapping[Cell, Item], lines: Sequence[Line], reply: str) -> None:
    readings = parse_scores(reply, "scores", list(cells), cells)
    assert list(readings) == list(cells)
    for cell, reading in readings.items():
        values = {line.value for line in lines if line.cell == cell}
        # Complete, too: what was stated once, in a reply without foreign names, is read.
        expected = values if len(values) == 1 and not any(line.foreign for line in lines) else set()
        assert ({reading.score} if isinstance(reading, ParsedScore) else set()) == expected


@settings(max_examples=100)
@given(fields(ONE_ASPECT), fields(TWO_ASPECTS))
def test_each_cell_is_read_as_it_was_stated(alone: list[Line], joint: list[Line]) -> None:
    if any(line.cell for line in alone):
        holds(ONE_ASPECT, alone, as_lines(alone))
    reasons = [block(f"candidate_{n}_quality", as_lines(joint) or "None.") for n in (1, 2)]
    holds(TWO_ASPECTS, joint, "\n\n".join([*reasons, block("scores", as_lines(joint))]))
    for known, lines in ((ONE_ASPECT, alone), (TWO_ASPECTS, joint)):
        holds(known, lines, block("scores", as_lines(lines)))
        holds(known, lines, block("scores", as_object(lines)))
