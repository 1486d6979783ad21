"""What the readers of replies about several scores take for a statement about a cell, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from debate_judge.programs.debate.prompts import Cell, cells_of, label
from debate_judge.programs.debate.replies import Objection, read_decisions, read_scores
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.score_modes import ParsedScore
from tests.programs.tables import cells, items, part

ALONE, JOINT = cells_of(items("one", "two")), cells_of(cells("one", "two"))
"""Two candidates, in one aspect and in two: coherence on a scale from 1 to 5, plain style on one from 0 to 10."""


def scores(field: str, of: Mapping[Cell, Item] = ALONE) -> dict[str, float | str]:
    """What is read of a reply: a score, or the reason why there is none."""
    return scores_of(field if "[[" in field else part("scores", field), of)


def scores_of(reply: str, of: Mapping[Cell, Item]) -> dict[str, float | str]:
    found = read_scores(reply, "scores", list(of), of)
    return {label(cell): said.score if isinstance(said, ParsedScore) else said.why for cell, said in found.items()}


def decisions(field: str) -> dict[str, str]:
    """What the other roles are told of the Critic's reply, or why it cannot be read."""
    reply = f"{part('decisions', field)}\n\n{part('candidate_1', 'Its last sentence is wrong.')}"
    found = read_decisions(reply, list(ALONE), ALONE)
    return {label(cell): said.text if isinstance(said, Objection) else said.why for cell, said in found.items()}


BOTH = "candidate_1: 4\ncandidate_2: 3"
READ = {"candidate_1": 4, "candidate_2": 3}
TWICE = "it stood twice with different content"


# --- objects of JSON under a header ---


def test_a_key_twice_with_different_values_is_refused_like_a_line() -> None:
    assert scores('{"candidate_1": 3, "candidate_1": 5, "candidate_2": 3}') == {"candidate_1": TWICE, "candidate_2": 3}
    assert scores('{"candidate_1": 4, "candidate_1": 4, "candidate_2": 3}') == READ
    nested = '{"candidate_1": {"coherence": 1, "coherence": 5, "plain_style": 9}, "candidate_2": {"coherence": 2}}'
    assert scores(nested, JOINT) == {
        "candidate_1_coherence": TWICE,
        "candidate_2_coherence": 2,
        "candidate_1_plain_style": 9,
        "candidate_2_plain_style": "it was missing",
    }
    assert decisions('{"candidate_1": "NO ISSUE", "candidate_1": "TOO HIGH", "candidate_2": "NO ISSUE"}') == {
        "candidate_1": TWICE,
        "candidate_2": "NO ISSUE",
    }


@pytest.mark.parametrize(
    "field",
    [
        r'{"candidate_1": "3\ncandidate_2: 1"}',
        r'{"candidate_1": 3, "note": "it says\ncandidate_2: 1"}',
        '{"candidate_1": 3, "note": "it says\ncandidate_2: 1\n"}',
        "{'candidate_1': 3, 'note': 'it says\ncandidate_2: 1\n'}",
        '{"candidate_1": 3,\ncandidate_2: 1\n}',
    ],
)
def test_no_line_inside_an_object_is_about_another_candidate(field: str) -> None:
    assert isinstance(scores(field)["candidate_2"], str)


# --- names ---


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("candidate_A: 4", "candidate_a"),
        ("candidate_12345: 4", "candidate_12345"),
        ("| candidate_C | 4 |", "candidate_c"),
        ("candidate_1_style: 4", "candidate_1_style"),
        ("**Candidate #X**: **4**", "candidate_x"),
        ("candidate_A: NO ISSUE", "candidate_a"),
    ],
)
def test_a_reply_with_a_foreign_name_is_refused(line: str, name: str) -> None:
    why = dict.fromkeys(READ, f"there is no {name}")
    assert scores(f"{BOTH}\n{line}") == scores(f"{line}\n{BOTH}") == why
    assert decisions(f"{BOTH}\n{line}") == why


JOINT_LINES = "\n".join(f"{label(cell)}: 4" for cell in JOINT)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("candidate 1 - style: 5", "candidate_1_style"),
        ("1_style: 5", "candidate_1_style"),
        ("- **Candidate 2** (plain language): 5", "candidate_2_plain_language"),
        ("| candidate_1 | plain language | 5 |", "candidate_1_plain_language"),
        ("candidate_3_coherence: 5", "candidate_3_coherence"),
        ("candidate_3: 5", "candidate_3"),
    ],
)
def test_a_reply_with_a_foreign_cell_is_refused(line: str, name: str) -> None:
    assert scores(f"{JOINT_LINES}\n{line}", JOINT) == {label(cell): f"there is no {name}" for cell in JOINT}


@pytest.mark.parametrize(
    "line",
    [
        "| Candidate | Score |",
        "| candidate_id | score |",
        "|---|---|",
        "Candidate scores:",
        "Candidate scores (1-5):",
        "Candidates: 2",
        "Candidate ranking: 1 > 2",
        "Candidate with the most facts: 2",
        "Candidate 2's summary: 3 facts, one of them wrong.",
        "Candidate 2’s summary: weak",
        "Candidate 2 (the shorter one): 3 facts",
        "Candidate 1 is the better one: it has 4 of 5 facts.",
        "Candidates 1 and 2 differ: 4 and 3.",
        "> candidate_A: 5",
        '"candidate_A: 5"',
    ],
)
def test_words_about_candidates_are_no_foreign_names(line: str) -> None:
    assert scores(f"{line}\n{BOTH}") == scores(f"{BOTH}\n{line}") == scores_of(f"{line}\n{BOTH}", ALONE) == READ
    assert set(scores(f"{line}\n{JOINT_LINES}", JOINT).values()) == {4}


# --- decisions ---


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("TOO HIGH", "Too high. Its last sentence is wrong."),
        ('TOO HIGH - it ends with "NO ISSUE", which no reader asked for', "Too high. Its last sentence is wrong."),
        ("too high: a claim is unsupported; no issue with grammar", "Too high. Its last sentence is wrong."),
        ("ISSUE", "Its last sentence is wrong."),
        ("NO ISSUE", "NO ISSUE"),
        ("TOO HIGH or TOO LOW", None),
        ("TOO HIGH? No, it stands.", None),
        ("TOO HIGH/TOO LOW", None),
        ("TOO HIGH but NO ISSUE", None),
        ("NO ISSUE: TOO HIGH", None),
        ("NO ISSUE\u2028TOO HIGH", None),
        ("NO ISSUE\rTOO HIGH", None),
        ("not too high", None),
    ],
)
def test_a_decision_says_one_thing_or_is_refused(said: str, told: str | None) -> None:
    refused = "a decision must be NO ISSUE, TOO HIGH or TOO LOW and nothing else"
    found = decisions(f"candidate_1: {said}\ncandidate_2: NO ISSUE")
    assert found == {"candidate_1": told or refused, "candidate_2": "NO ISSUE"}


_LONG = """
from debate_judge.programs.debate.prompts import Cell
from debate_judge.programs.debate.replies import read_decisions
known = [Cell(1, "a"), Cell(1, "b")]
for piece in ["_", "*", "|", " - ", "_1", "candidate a ", "too high ", "no issue "]:
    for begun in ("candidate_1", "candidate_A: ", "candidate_1_a: TOO HIGH "):
        read_decisions("[[ ## decisions ## ]]\\n" + begun + piece * (120_000 // len(piece)) + "x", known, known)
print("read")
"""


def test_no_line_makes_a_pattern_run_away() -> None:
    """24 lines of 120 kB take less than a second; a pattern that needs quadratic time takes minutes."""
    done = subprocess.run([sys.executable, "-c", _LONG], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "read\n", done.stderr
