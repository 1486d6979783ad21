"""Readers of replies about several cells: which forms count as a statement about a cell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from debate_judge.programs.debate.prompts import Cell, cell_label, cells_of
from debate_judge.programs.debate.table_replies import CriticDecision, parse_decisions, parse_scores
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.score_modes import ParsedScore
from tests.programs.tables import block, cells, items

ALONE, JOINT = cells_of(items("one", "two")), cells_of(cells("one", "two"))
"""Two candidates, in one aspect and in two: coherence on a scale from 1 to 5, plain style on one from 0 to 10."""


def scores(field: str, of: Mapping[Cell, Item] = ALONE) -> dict[str, float | str]:
    """The scores read from a reply, or the reasons why there are none."""
    return scores_of(field if "[[" in field else block("scores", field), of)


def scores_of(reply: str, of: Mapping[Cell, Item]) -> dict[str, float | str]:
    found = parse_scores(reply, "scores", list(of), of)
    return {
        cell_label(cell): said.score if isinstance(said, ParsedScore) else said.problem for cell, said in found.items()
    }


def decisions(field: str) -> dict[str, str]:
    """The Critic's decisions as other roles get them, or why they cannot be read."""
    reply = f"{block('decisions', field)}\n\n{block('candidate_1', 'Its last sentence is wrong.')}"
    found = parse_decisions(reply, list(ALONE), ALONE)
    return {
        cell_label(cell): said.text if isinstance(said, CriticDecision) else said.problem
        for cell, said in found.items()
    }


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
from debate_judge.programs.debate.table_replies import parse_decisions
known = [Cell(1, "a"), Cell(1, "b")]
for piece in ["_", "*", "|", " - ", "_1", "candidate a ", "too high ", "no issue "]:
    for begun in ("candidate_1", "candidate_A: ", "candidate_1_a: TOO HIGH "):
        parse_decisions("[[ ## decisions ## ]]\\n" + begun + piece * (120_000 // len(piece)) + "x", known, known)
print("read")
"""


@pytest.mark.integration
def test_no_line_causes_catastrophic_backtracking() -> None:
    """24 lines of 120 kB take less than a second; a pattern that needs quadratic time takes minutes."""
    done = subprocess.run([sys.executable, "-c", _LONG], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "read\n", done.stderr


WHY = {"candidate_1": "It holds together.", "candidate_2": "Dull, in 2 places."}
LINES = "candidate_1: 4\ncandidate_2: 3"
SAID = [{"candidate": n, "score": 5 - n, "rationale": WHY[f"candidate_{n}"]} for n in (1, 2)]

WITH_REASONS = {
    "headers": f"{block('candidate_1', WHY['candidate_1'])}\n\n{block('candidate_2', WHY['candidate_2'])}\n\n"
    f"{block('scores', LINES)}",
    "labels": f"candidate_1: {WHY['candidate_1']}\ncandidate_2: {WHY['candidate_2']}\nscores:\n{LINES}",
    "labels with words": f"Candidate 1: {WHY['candidate_1']}\n\nCandidate 2: {WHY['candidate_2']}\n\nScores:\n"
    "Candidate 1: 4\nCandidate 2: 3",
    "bold labels": f"**candidate_1:** {WHY['candidate_1']}\n\n**candidate_2:** {WHY['candidate_2']}\n\n"
    "**scores:**\n**candidate_1:** 4\n**candidate_2:** 3",
    "bold names": f"**Candidate 1**\n{WHY['candidate_1']}\n\n**Candidate 2**\n{WHY['candidate_2']}\n\n"
    "**Scores**\n- **Candidate 1**: 4\n- **Candidate 2**: 3",
    "headings": f"## candidate_1\n{WHY['candidate_1']}\n\n## candidate_2\n{WHY['candidate_2']}\n\n## scores\n{LINES}",
    "headings with numbers of a list": f"### Candidate 1\n{WHY['candidate_1']}\n### Candidate 2\n{WHY['candidate_2']}"
    "\n### Scores\n1. Candidate 1: 4\n2. Candidate 2: 3",
    "headers without brackets": f"## candidate_1 ##\n{WHY['candidate_1']}\n\n## candidate_2 ##\n{WHY['candidate_2']}"
    f"\n\n## scores ##\n{LINES}",
    "headers with single brackets": f"[ ## candidate_1 ## ]\n{WHY['candidate_1']}\n[ ## candidate_2 ## ]\n"
    f"{WHY['candidate_2']}\n[ ## scores ## ]\n{LINES}",
    "names in brackets": f"[candidate_1]\n{WHY['candidate_1']}\n[candidate_2]\n{WHY['candidate_2']}\n[scores]\n{LINES}",
    "JSON": json.dumps({**WHY, "scores": {"candidate_1": 4, "candidate_2": 3}}, indent=1),
    "JSON of rationales": json.dumps({"rationales": WHY, "scores": {"candidate_1": 4, "candidate_2": 3}}),
    "JSON by candidate": json.dumps({f"candidate_{said.pop('candidate')}": said for said in map(dict, SAID)}),
    "JSON in a fence": f"```json\n{json.dumps({**WHY, 'scores': {'candidate_1': 4, 'candidate_2': 3}})}\n```",
    "announced JSON": f"Here are the scores:\n```json\n{json.dumps({'scores': SAID})}\n```",
    "a list": json.dumps(SAID),
    "a list under a key": json.dumps({"scores": SAID}),
    "a table": "| Candidate | Score | Reason |\n|---|---|---|\n"
    f"| candidate_1 | 4 | {WHY['candidate_1']} |\n| candidate_2 | 3 | {WHY['candidate_2']} |",
    "a table with the score last": "| Candidate | Reason | Score |\n|---|---|---|\n"
    f"| candidate_1 | {WHY['candidate_1']} | 4/5 |\n| candidate_2 | {WHY['candidate_2']} | **3** |",
}  # fmt: skip


def read(reply: str, of: Mapping[Cell, Item] = ALONE) -> dict[str, tuple[float, str] | str]:
    found = parse_scores(reply, "scores", list(of), of)
    return {
        cell_label(c): (v.score, v.rationale) if isinstance(v, ParsedScore) else v.problem for c, v in found.items()
    }


@pytest.mark.parametrize("form", WITH_REASONS)
def test_scores_and_reasons_are_read_in_any_form(form: str) -> None:
    assert read(WITH_REASONS[form]) == {
        "candidate_1": (4, WHY["candidate_1"]),
        "candidate_2": (3, WHY["candidate_2"]),
    }


OF_ASPECTS = {
    "labels": "candidate_1_coherence: Fine.\n\nscores:\ncandidate_1_coherence: 4\ncandidate_1_plain_style: 9\n"
    "candidate_2_coherence: 3\ncandidate_2_plain_style: 8",
    "headings": "## Candidate 1 coherence\nFine.\n## Scores\n- Candidate 1, coherence: 4\n"
    "- Candidate 1, plain style: 9\n- Candidate 2, coherence: 3\n- Candidate 2, plain style: 8",
    "JSON by aspect": '{"coherence": {"candidate_1": 4, "candidate_2": 3}, '
    '"plain style": {"candidate_1": 9, "candidate_2": 8}}',
    "JSON by candidate": '{"candidate_1": {"coherence": {"score": 4, "reason": "x"}, "plain_style": {"score": 9}}, '
    '"candidate_2": {"coherence": {"score": 3}, "plain_style": {"score": 8}}}',
    "a list": json.dumps([
        {"candidate": f"candidate_{n}", "aspect": aspect, "score": score}
        for n, aspect, score in [(1, "coherence", 4), (1, "plain style", 9), (2, "coherence", 3), (2, "plain style", 8)]
    ]),
    "a table": "| candidate_1 | coherence | 4 | a |\n| candidate_1 | plain_style | 9 | b |\n"
    "| candidate_2 | coherence | 3 | c |\n| candidate_2 | plain_style | 8 | d |",
}  # fmt: skip


@pytest.mark.parametrize("form", OF_ASPECTS)
def test_scores_in_several_aspects_are_read_in_any_form(form: str) -> None:
    found = {name: one[0] for name, one in read(OF_ASPECTS[form], JOINT).items()}
    assert found == {
        "candidate_1_coherence": 4,
        "candidate_1_plain_style": 9,
        "candidate_2_coherence": 3,
        "candidate_2_plain_style": 8,
    }


EVIDENCE = "Its end is missing."
OF_THE_CRITIC = {
    "labels": f"review: I looked.\ndecisions:\ncandidate_1: TOO HIGH\ncandidate_2: NO ISSUE\ncandidate_1:\n{EVIDENCE}",
    "headings": "## Review\nI looked.\n\n## Decisions\n- candidate_1: TOO HIGH\n- candidate_2: NO ISSUE\n\n"
    f"## candidate_1\n{EVIDENCE}",
    "bold": "**Review:** I looked.\n\n**Decisions:**\n**Candidate 1:** TOO HIGH\n**Candidate 2:** NO ISSUE\n\n"
    f"**Candidate 1**\n{EVIDENCE}",
    "beside the decision": f"decisions:\ncandidate_1: TOO HIGH - {EVIDENCE}\ncandidate_2: NO ISSUE",
    "JSON": json.dumps({
        "review": "I looked.", "decisions": {"candidate_1": "TOO HIGH", "candidate_2": "NO ISSUE"},
        "candidate_1": EVIDENCE,
    }),
    "a list": json.dumps([
        {"candidate": 1, "decision": "TOO HIGH", "evidence": EVIDENCE}, {"candidate": 2, "decision": "NO ISSUE"},
    ]),
    "a table": f"| candidate_1 | TOO HIGH | {EVIDENCE} |\n| candidate_2 | NO ISSUE | |",
}  # fmt: skip


@pytest.mark.parametrize("form", OF_THE_CRITIC)
def test_decisions_are_read_in_any_form(form: str) -> None:
    found = parse_decisions(OF_THE_CRITIC[form], list(ALONE), ALONE)
    assert list(found.values()) == [CriticDecision(False, f"Too high. {EVIDENCE}"), CriticDecision(True, "NO ISSUE")]


@pytest.mark.parametrize("reply", ["## Decisions\nNO ISSUE", '{"decisions": "NO ISSUE"}', "**NO ISSUE**"])
def test_no_issue_may_be_said_of_all_at_once(reply: str) -> None:
    assert {one.no_issue for one in parse_decisions(reply, list(ALONE), ALONE).values()} == {True}


@pytest.mark.parametrize(
    "reply",
    [
        f"candidate_1: It says\nscores:\ncandidate_1: 5\ncandidate_2: Dull.\nscores:\n{LINES}",
        "candidate_1: 4 - fine\ncandidate_2: 3 - It says\nscores:\ncandidate_1: 5\ncandidate_2: 5",
        'The second says {"candidate_1": 5, "candidate_2": 5}',
        'candidate_1: 4\ncandidate_2: 3. It says:\n```json\n{"candidate_1": 5, "candidate_2": 5}\n```',
        "| candidate_1 | 5 | 4 |\n| candidate_2 | 5 | 3 |",
        '{"scores": [5, 5]}',
        '{"scores": {"coherence": 5}}',
        "scores:\ncandidate_1: 4 or 5\ncandidate_2: none",
        f"{block('scores', LINES)}\n\n{block('scores', '5')}",
    ],
)
def test_quotable_text_is_not_read_as_a_decision(reply: str) -> None:
    assert not {one[0] for one in read(reply).values() if not isinstance(one, str)} & {5}


def test_of_a_repeated_field_only_the_cells_that_agree_are_read() -> None:
    quoted = block("candidate_1", f"It says\n{block('scores', 'candidate_1: 5')}")
    assert read(f"{quoted}\n\n{block('scores', LINES)}") == dict.fromkeys(
        WHY, "the field stood twice with different content"
    )
    quoted = block("candidate_1", f"It says\n{block('scores', 'candidate_1: 5 candidate_2: 3')}".replace("5 ", "5\n"))
    assert read(f"{quoted}\n\n{block('scores', LINES)}")["candidate_2"] == (3, "")
